package migrate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The pages quote the code that is compiled here word for word and in full.
//
// Fails when a function or its page is changed without the other.
func TestPagesQuoteTheCode(t *testing.T) {
	t.Parallel()
	code := functions(t)
	pages, err := filepath.Glob("../../docs/migrate/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			name, ok := code[block[1]]
			if !ok {
				t.Errorf("%s quotes what is no function here:\n%s", page, block[1])
			}
			delete(code, block[1])
			if lines := strings.Count(block[1], "\n"); lines > 30 {
				t.Errorf("%s: %s has %d lines, at most 30", page, name, lines)
			}
		}
	}
	for _, name := range code {
		t.Errorf("no page quotes %s", name)
	}
}

// functions returns the names of the package's functions by their text.
func functions(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	code := map[string]string{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				from, to := set.Position(f.Pos()).Offset, set.Position(f.End()).Offset
				code[string(text[from:to])+"\n"] = f.Name.Name
			}
		}
	}
	return code
}
