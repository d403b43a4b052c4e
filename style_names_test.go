package tickslot_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// isProduct reports whether a file is part of code that users run.
func isProduct(path string) bool {
	return !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "proof/") &&
		!strings.HasPrefix(path, "examples/")
}

// Searching for "// name" finds the doc comment of a name, because it begins with the declared
// name, or with an article and the name.
//
// Fails when something is renamed and its comment is not.
func TestDocCommentsBeginWithTheName(t *testing.T) {
	t.Parallel()
	docs := 0
	check := func(path string, doc *ast.CommentGroup, names ...*ast.Ident) {
		if doc == nil {
			return
		}
		text := strings.TrimSpace(doc.Text())
		if text == "" || strings.HasPrefix(text, "Deprecated:") {
			return // a directive
		}
		docs++
		for _, article := range []string{"A ", "An ", "The "} {
			text = strings.TrimPrefix(text, article)
		}
		for _, name := range names {
			rest, ok := strings.CutPrefix(text, name.Name)
			if ok && (rest == "" || !isWord(rest[0])) {
				return
			}
		}
		t.Errorf("%s: the doc comment of %s does not begin with its name: %.60q", path, names[0].Name, text)
	}
	for path := range goFiles(t) {
		if !isProduct(path) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				check(path, decl.Doc, decl.Name)
			case *ast.GenDecl:
				if decl.Tok == token.IMPORT || decl.Lparen.IsValid() {
					continue // the comment of a group describes all its members
				}
				switch spec := decl.Specs[0].(type) {
				case *ast.TypeSpec:
					check(path, decl.Doc, spec.Name)
				case *ast.ValueSpec:
					check(path, decl.Doc, spec.Names...)
				}
			}
		}
	}
	if docs < 2000 {
		t.Errorf("%d doc comments: the test does not find them", docs)
	}
}

// A receiver is named after the first letter of its type, so a reader need not look it up: r is a
// registry in every file.
//
// Fails when a receiver has another name, or a type has receivers with two names.
func TestReceiversAreFirstLetters(t *testing.T) {
	t.Parallel()
	methods := 0
	for path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, decl := range parsed(t, path).Decls {
			method, ok := decl.(*ast.FuncDecl)
			if !ok || method.Recv == nil || len(method.Recv.List[0].Names) == 0 {
				continue
			}
			name, typ := method.Recv.List[0].Names[0].Name, receiver(method.Recv.List[0].Type)
			if typ == "" || typ == "told" && path == "proof/timertest/told.go" { // there t is the test
				continue
			}
			methods++
			first, _ := utf8.DecodeRuneInString(typ)
			if want := string(unicode.ToLower(first)); name != want && name != "_" {
				t.Errorf("%s: the receiver of %s.%s is called %s: call it %s", path, typ, method.Name.Name, name, want)
			}
		}
	}
	if methods < 2000 {
		t.Errorf("%d methods: the test does not find them", methods)
	}
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
