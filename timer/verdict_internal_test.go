package timer

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/tickslot/tickslot/dlock"
)

// Every Reason of a skipped tick, and every Outcome, has a verdict, so that Explain can report it.
// The reason of a custom store is read from its error.
//
// Fails when a Reason or an Outcome is missing in verdicts.
func TestEveryReasonIsAVerdict(t *testing.T) {
	for file, typ := range map[string]string{"reason.go": "Reason", "run.go": "Outcome"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		ast.Inspect(parsed, func(node ast.Node) bool {
			c, ok := node.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if id, ok := c.Type.(*ast.Ident); !ok || id.Name != typ {
				return true
			}
			text, err := strconv.Unquote(c.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			n++
			// Only Trigger returns ReasonNotRunning.
			if text != string(ReasonNotRunning) && !slices.Contains(verdicts[1:], text) {
				t.Errorf("%s %q has no verdict", typ, text)
			}
			return true
		})
		if n < 5 {
			t.Errorf("%s: found %d of type %s", file, n, typ)
		}
	}
	foreign := &dlock.NotAcquiredError{Reason: "full moon"}
	if v := verdictOf(reasonOf(foreign)); v.reason(foreign) != "full moon" {
		t.Errorf("a store's own reason is shown as %q", v.reason(foreign))
	}
	if v := verdictOf(reasonOf(errors.New("down"))); v.reason(nil) != ReasonStoreDown {
		t.Errorf("a store that is down is shown as %q", v.reason(nil))
	}
}
