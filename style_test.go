package tickslot_test

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// These tests enforce the style rules that can be checked. Each comment gives the rule's reason.

// Readers do not finish a longer README. Good examples of other projects have 81 to 1,387 words.
//
// Fails when the table of defaults is added again.
func TestREADMEIsShort(t *testing.T) {
	t.Parallel()
	const most = 1200
	if words := len(strings.Fields(read(t, "README.md"))); words > most {
		t.Errorf("%d words, at most %d: move the rest to docs", words, most)
	}
}

// The README's program is examples/first, which its test compiles and runs.
func TestREADMEProgramIsAnExample(t *testing.T) {
	t.Parallel()
	_, program, found := strings.Cut(read(t, "README.md"), "```go\npackage main\n")
	program, _, _ = strings.Cut(program, "```")
	if want := read(t, "examples/first/main.go"); !found || "package main\n"+program != want {
		t.Error("the first program of the README is not examples/first/main.go: copy it")
	}
}

// Wider comments are cut off in side-by-side reviews. Tabs count as four columns. The output of an
// Example, and code and commands in a comment, are exempt.
//
// Fails when a wide comment is added.
func TestCommentsAreNarrow(t *testing.T) {
	t.Parallel()
	const columns = 100
	for path := range goFiles(t) {
		output := false
		for i, line := range strings.Split(read(t, path), "\n") {
			if output = output && line != "}" || strings.HasPrefix(line, "\t// Output:"); output {
				continue
			}
			comment := strings.TrimSpace(line)
			if !strings.HasPrefix(comment, "//") || strings.HasPrefix(comment, "//\t") ||
				strings.HasPrefix(comment, "//go:") || strings.HasPrefix(comment, "//lint:") {
				continue
			}
			if utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > columns {
				t.Errorf("%s:%d is wider than %d columns: wrap it", path, i+1, columns)
			}
		}
	}
}

// Wider code is cut off in side-by-side reviews. Tabs count as four columns. Raw strings are
// exempt.
//
// Fails when a wide line is added.
func TestCodeIsNarrow(t *testing.T) {
	t.Parallel()
	const columns = 120
	for path := range goFiles(t) {
		text := read(t, path)
		raw := rawLines(text)
		for i, line := range strings.Split(text, "\n") {
			line = strings.ReplaceAll(line, "\t", "    ")
			comment := strings.HasPrefix(strings.TrimSpace(line), "//")
			if !comment && !raw[i+1] && utf8.RuneCountInString(line) > columns {
				t.Errorf("%s:%d is wider than %d columns: wrap it", path, i+1, columns)
			}
		}
	}
}

// rawLines returns the numbers of all lines that contain part of a raw string.
func rawLines(text string) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && literal[0] == '`' {
			first := file.Line(pos)
			for i := range 1 + strings.Count(literal, "\n") {
				lines[first+i] = true
			}
		}
	}
}

// If two types have a constant called Skip or OK, a reader cannot tell which one is meant. So a
// constant of one of our types begins with the first word of the type's name: ReasonPaused,
// OutcomeOK, StoreDownSkip.
//
// Fails when a constant loses its prefix.
func TestConstantsCarryTheirType(t *testing.T) {
	t.Parallel()
	word := regexp.MustCompile(`^[A-Z][a-z]*`)
	for path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/") ||
			strings.HasPrefix(path, "examples/") || strings.HasPrefix(path, "proof/") {
			continue
		}
		for _, decl := range parsed(t, path).Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			typ := "" // a constant without a type has the previous one's
			for _, spec := range group.Specs {
				spec := spec.(*ast.ValueSpec)
				if id, ok := spec.Type.(*ast.Ident); ok {
					typ = id.Name
				} else if len(spec.Values) > 0 {
					typ = ""
					if call, ok := spec.Values[0].(*ast.CallExpr); ok { // a conversion
						typ = receiver(call.Fun)
					}
				}
				for _, name := range spec.Names {
					prefixed := strings.HasPrefix(name.Name, word.FindString(typ))
					if name.IsExported() && ast.IsExported(typ) && !prefixed {
						t.Errorf("%s: %s of type %s: begin its name with the first word of its type's", path,
							name.Name, typ)
					}
				}
			}
		}
	}
}

// A field called Since or Expiry could be an instant or a duration. So the name of each exported
// field, and of each method without parameters, tells them apart: ExpiresAt is an instant,
// ExpiresIn a duration.
//
// Fails when an instant is called Started, or a duration Since.
func TestInstantsAndDurationsAreToldApart(t *testing.T) {
	t.Parallel()
	names := map[string]*regexp.Regexp{
		"Time": regexp.MustCompile(`(At|From|Until|Before|Next|Since|Tick)$`),
		"Duration": regexp.MustCompile(`(In|For|Ago|Age|Took|TTL|Timeout|Delay|Wait|Window|Retention|Slack|` +
			`Lateness|RunTime|ElapsedTime|Interval|Offset|Skew)$|^By[A-Z]|` + // timer.Delay has ByTimer and ByHost
			`^(Hosts|Leases|Events|Runs|Succeeded|Dead|Canceled|Unseen|Dispatched|Per)$`), // Retention: how long they are kept
	}
	seen := 0
	check := func(path, name string, typ ast.Expr) {
		of, ok := typ.(*ast.SelectorExpr)
		if !ok || !ast.IsExported(name) {
			return
		}
		if pkg, ok := of.X.(*ast.Ident); !ok || pkg.Name != "time" || names[of.Sel.Name] == nil {
			return
		}
		seen++
		if !names[of.Sel.Name].MatchString(name) {
			t.Errorf("%s: %s is a time.%s: let its name match %s", path, name, of.Sel.Name, names[of.Sel.Name])
		}
	}
	for path, file := range publicFiles(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StructType:
				for _, field := range n.Fields.List {
					for _, name := range field.Names {
						check(path, name.Name, field.Type)
					}
				}
			case *ast.FuncDecl:
				if n.Recv != nil && n.Type.Params.NumFields() == 0 && n.Type.Results.NumFields() == 1 {
					check(path, n.Name.Name, n.Type.Results.List[0].Type)
				}
			}
			return true
		})
	}
	if seen < 30 {
		t.Errorf("%d instants and durations were looked at: the test does not find them", seen)
	}
}

// An outdated decision misleads readers, so each page has a status. Readers cannot find a page that
// is missing from the list of decisions.
func TestDecisionsHaveAStatus(t *testing.T) {
	t.Parallel()
	list := read(t, "docs/decisions/README.md")
	pages, err := filepath.Glob("docs/decisions/0*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		if !regexp.MustCompile(`(?m)^\*\*Status:\*\* (accepted|superseded)`).MatchString(read(t, page)) {
			t.Errorf("%s has no status", page)
		}
		if !strings.Contains(list, "("+filepath.Base(page)+")") {
			t.Errorf("%s is not in docs/decisions/README.md", page)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goFiles returns the Go files of all modules in this repository.
func goFiles(t *testing.T) map[string]bool { return filesThatEnd(t, ".go") }

// public reports whether a file belongs to a package that others may import.
func public(path string) bool {
	folders := strings.Split(path, "/")
	return !strings.HasSuffix(path, "_test.go") && !slices.Contains(folders, "internal") && folders[0] != "proof" &&
		!slices.Contains(folders, "examples")
}

// publicFiles returns the parsed files of the packages that others may import.
func publicFiles(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for path := range goFiles(t) {
		if public(path) {
			files[path] = parsed(t, path)
		}
	}
	return files
}

func parsed(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// exported returns the exported names of the packages that others may import: Name, Type.Field and
// Type.Method. A method is also there as Type.Method().
func exported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	packages := map[string]map[string]bool{}
	for _, file := range publicFiles(t) {
		names := packages[file.Name.Name]
		if names == nil {
			names = map[string]bool{}
			packages[file.Name.Name] = names
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				name := decl.Name.Name
				if decl.Recv != nil {
					name = receiver(decl.Recv.List[0].Type) + "." + name
					names[name+"()"] = true
				}
				names[name] = true
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					addSpec(names, spec)
				}
			}
		}
	}
	return packages
}

func receiver(typ ast.Expr) string {
	switch typ := typ.(type) {
	case *ast.StarExpr:
		return receiver(typ.X)
	case *ast.IndexExpr:
		return receiver(typ.X)
	case *ast.Ident:
		return typ.Name
	}
	return ""
}

func addSpec(names map[string]bool, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			names[name.Name] = true
		}
	case *ast.TypeSpec:
		names[spec.Name.Name] = true
		var fields *ast.FieldList
		switch typ := spec.Type.(type) {
		case *ast.StructType:
			fields = typ.Fields
		case *ast.InterfaceType:
			fields = typ.Methods
		default:
			return
		}
		for _, field := range fields.List {
			for _, name := range field.Names {
				if name.IsExported() {
					names[spec.Name.Name+"."+name.Name] = true
				}
			}
		}
	}
}
