package tickslot_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// isProduct reports whether a file is part of what users run.
func isProduct(path string) bool {
	return !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "proof/") &&
		!strings.HasPrefix(path, "examples/")
}

// Whoever searches for what a name means finds its doc comment by "// name": it begins with the
// name that is declared, or with an article and it.
//
// Fails when something is renamed, and the comment before it is not.
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
					continue // the comment of a group is about all that is in it
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

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
