package testkit

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// FieldComments returns the comments of the exported fields of all structs in a folder's package,
// by "Type.Field", each as one line. A field directly below another one, without a comment of its
// own, shares the other's comment if that names it: "Rate and Per bound …".
func FieldComments(t testing.TB, dir string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					addFields(comments, spec.Name.Name, s)
				}
			}
			return true
		})
	}
	return comments
}

func addFields(comments map[string]string, typ string, s *ast.StructType) {
	above := "" // comment of the field above
	for _, field := range s.Fields.List {
		text := field.Doc.Text()
		shared := text == ""
		if shared {
			text = above
		}
		above = text
		for _, name := range field.Names {
			if !name.IsExported() {
				continue
			}
			if shared && !regexp.MustCompile(`\b`+name.Name+`\b`).MatchString(text) {
				text = ""
			}
			comments[typ+"."+name.Name] = strings.Join(strings.Fields(text), " ")
		}
	}
}

// CheckDefaults fails the test if the comment of a setting does not state the given default, such
// as "Default 15 s". dir is the folder of the package. Settings are named like "Config.TTL".
func CheckDefaults(t testing.TB, dir string, defaults map[string]any) {
	t.Helper()
	comments := FieldComments(t, dir)
	for setting, value := range defaults {
		if comment := comments[setting]; !saysDefault(comment, value) {
			t.Errorf("%s: its default is %s, and its comment says: %s", setting, inWords(value), comment)
		}
	}
}

func saysDefault(comment string, value any) bool {
	return regexp.MustCompile(`\bDefault ` + regexp.QuoteMeta(inWords(value)) + `[.,:]( |$)`).MatchString(comment)
}

// inWords formats a value as comments do.
func inWords(value any) string {
	d, ok := value.(time.Duration)
	if !ok {
		return fmt.Sprint(value)
	} else if d == 0 {
		return "0"
	}
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"days", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if d%unit.of == 0 && (unit.of < 24*time.Hour || d > unit.of) {
			return fmt.Sprintf("%d %s", d/unit.of, unit.name)
		}
	}
	return d.String()
}
