package tickslot_test

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

// Types that may have more methods than others, each with its reason.
var manyMethods = map[string]string{
	"dlock/redislock.Store":                   "the contract of a store asks for them",
	"durable/internal/memory.Store":           "the contract of a database asks for them",
	"durable/internal/postgres.Store":         "the contract of a database asks for them",
	"durable/internal/sqlite.Store":           "the contract of a database asks for them",
	"durable/internal/storetest.check":        "each method is a test",
	"cmd/tickslot/internal/commands.app":      "each method is a command",
	"cmd/tickslot/internal/commands.target":   "it embeds app",
	"cmd/tickslot/internal/commands.runLists": "it embeds app",
	"internal/timertest.standstill":           "it embeds a fleet, and each method is a test",
	"benchmarks.lab":                          "each method is a benchmark",
}

// A type with more methods has more than one job, and its state more than one owner. Methods of
// types that it embeds count.
//
// Fails when a part takes over another's work.
func TestMethodSetsAreSmall(t *testing.T) {
	t.Parallel()
	const most = 30
	methods, embeds := map[string]int{}, map[string][]string{}
	for file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		folder := path.Dir(file)
		for _, decl := range parsed(t, file).Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv != nil {
					methods[folder+"."+methodOf(decl)]++
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if typ, ok := spec.(*ast.TypeSpec); ok {
						embeds[folder+"."+typ.Name.Name] = embedded(folder, typ.Type)
					}
				}
			}
		}
	}
	if len(methods) < 100 {
		t.Fatalf("%d types with methods were found", len(methods))
	}
	for typ := range embeds {
		n := countMethods(typ, methods, embeds)
		if _, may := manyMethods[typ]; n > most != may {
			t.Errorf("%s has %d methods, at most %d, except for those that are listed", typ, n, most)
		}
	}
}

func countMethods(typ string, methods map[string]int, embeds map[string][]string) int {
	n := methods[typ]
	for _, inner := range embeds[typ] {
		n += countMethods(inner, methods, embeds)
	}
	return n
}

// embedded returns the types of the same package that a struct embeds.
func embedded(folder string, typ ast.Expr) (names []string) {
	s, ok := typ.(*ast.StructType)
	if !ok {
		return nil
	}
	for _, field := range s.Fields.List {
		if len(field.Names) > 0 {
			continue
		}
		if name := receiver(field.Type); name != "" {
			names = append(names, folder+"."+name)
		}
	}
	return names
}
