package tickslot_test

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"testing"
)

// mostBack is the percentage of uses between a package's files that may go against the direction of
// the others.
const mostBack = 15

// tied lists the packages that exceed mostBack, with their percentage. Each must decrease.
var tied = map[string]int{
	"cluster/clustertest":            32,
	"cmd/tickslot/internal/commands": 21,
	"dlock":                          19,
	"dlock/dlocktest":                21,
	"durable/internal/storetest":     21,
	"examples/internal/demo":         18,
	"leader":                         25,
	"outbox/internal/storetest":      30,
	"schedule":                       20,
}

// If every file of a package uses every other, a reader must know all of them first. So files have
// a direction: later files use earlier ones. If two files use each other, one of the two uses goes
// against the direction. The test counts such uses in the best order of the files.
//
// Fails when a package gets more ties, or has fewer than are listed.
func TestFilesPointInOneDirection(t *testing.T) {
	t.Parallel()
	for folder, pkg := range packages(t) {
		back, uses := against(t, folder, pkg)
		if uses < 20 { // a single tie would exceed the bound
			continue
		}
		share := (100*len(back) + uses/2) / uses
		t.Logf("%-40s %3d uses, %2d %% back", folder, uses, share)
		if most := cmp.Or(tied[folder], mostBack); share > most {
			t.Errorf("%s: %d of %d uses between files, %d %%, go against the direction of the others, at most %d %%: "+
				"%q", folder, len(back), uses, share, most, back)
		}
		if listed, ok := tied[folder]; ok && share < listed {
			t.Errorf("%s: %d %% of the uses go back, and %d are listed: list %[2]d, or nothing up to %d", folder, share,
				listed, mostBack)
		}
	}
}

// A nothing importer imports nothing: only declarations of the package itself matter.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, errors.New("not looked at") }

// against searches for the file order in which the fewest uses go back. It returns these uses and
// the number of all uses. A file counts once for each other file that it uses.
func against(t *testing.T, folder string, pkg *build.Package) (back []string, uses int) {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range pkg.GoFiles {
		f, err := parser.ParseFile(files, filepath.Join(folder, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: nothing{}, Error: func(error) {}}
	checked, _ := checker.Check(folder, files, parsed, info)
	number := map[string]int{}
	for i, name := range pkg.GoFiles {
		number[name] = i
	}
	of := func(pos token.Pos) int { return number[filepath.Base(files.Position(pos).Filename)] }
	use := make([][]bool, len(pkg.GoFiles))
	for i := range use {
		use[i] = make([]bool, len(use))
	}
	for ident, object := range info.Uses {
		if object.Pkg() == checked && object.Pos().IsValid() && of(ident.Pos()) != of(object.Pos()) {
			use[of(ident.Pos())][of(object.Pos())] = true
		}
	}
	order := bestOrder(use)
	for i, a := range order {
		for j, b := range order {
			if use[a][b] {
				uses++
				if j < i {
					back = append(back, fmt.Sprintf("%s -> %s", pkg.GoFiles[a], pkg.GoFiles[b]))
				}
			}
		}
	}
	slices.Sort(back)
	return back, uses
}

// bestOrder returns an order in which few uses go back. From each of several start orders, it moves
// one file at a time to its best place until no move improves the order.
func bestOrder(use [][]bool) (best []int) {
	n := len(use)
	fewest := n * n
	for try := range 30 {
		order := make([]int, n)
		for i := range order {
			order[i] = (i*(2*try+1) + try) % max(n, 1)
		}
		if len(slices.Compact(slices.Sorted(slices.Values(order)))) < n {
			continue // it has a file twice
		}
		for improved := true; improved; {
			improved = false
			for file := range n {
				at := slices.Index(order, file)
				rest := slices.Delete(slices.Clone(order), at, at+1)
				back := 0 // uses by this file that go back if it comes first
				for _, other := range rest {
					if use[other][file] {
						back++
					}
				}
				place, least, now := 0, back, back
				for i, other := range rest {
					if use[other][file] {
						back--
					}
					if use[file][other] {
						back++
					}
					if i+1 == at {
						now = back
					}
					if back < least {
						place, least = i+1, back
					}
				}
				if least < now {
					order, improved = slices.Insert(rest, place, file), true
				}
			}
		}
		if back := countBack(use, order); back < fewest {
			best, fewest = order, back
		}
	}
	return best
}

func countBack(use [][]bool, order []int) (n int) {
	for i, a := range order {
		for _, b := range order[:i] {
			if use[a][b] {
				n++
			}
		}
	}
	return n
}
