package commands

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/doctor"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/internal/inert"
)

var marks = map[doctor.Severity]string{doctor.SeverityOK: "ok  ", doctor.SeverityNote: "note",
	doctor.SeverityWarning: "warn", doctor.SeverityFailure: "FAIL"}

func (a *app) doctor() *cobra.Command {
	calls := 0
	c := &cobra.Command{Use: "doctor", Short: "Check the fleet and its store for risks", GroupID: groupMaintain,
		Args: cobra.NoArgs,
		Long: "Measures round trips, and checks the clocks; eviction, persistence and replicas (Redis);\n" +
			"tables, grants and a pooler (databases); and whether hosts differ in version,\n" +
			"environment or limits. Whatever is not ok says how to fix it. It changes nothing.\n" +
			"The exit code is 1 only if a check fails: not for notes (it may be meant), nor for warnings (it\n" +
			"passes after a roll-out, or is a danger only if something else happens).",
		Example: "  tickslot doctor\n  tickslot doctor -o json --calls 100",
	}
	c.RunE = a.withStore(func(ctx context.Context, _ []string) error {
		format, err := show.ParseFormat(a.format)
		if err != nil {
			return err
		}
		if calls < 1 || calls > 1000 {
			return fmt.Errorf("--calls %d: use 1 to 1000", calls)
		}
		results := doctor.Check(ctx, doctor.Target{Store: a.store, Snapshot: a.snapshot, Calls: calls})
		failed := false
		for i := range results {
			r := &results[i]
			r.Text, r.Fix = a.store.Hide(r.Text), a.store.Hide(r.Fix)
			failed = failed || r.Severity == doctor.SeverityFailure
		}
		switch format {
		case show.FormatJSON, show.FormatYAML:
			if err := (&show.Table{Data: results}).Print(a.Out, format, 0); err != nil {
				return err
			}
		default:
			for _, r := range results {
				fmt.Fprintln(a.Out, strings.TrimRight(marks[r.Severity]+" "+inert.Line(r.About+": "+r.Text), " "))
				if r.Fix != "" {
					fmt.Fprintln(a.Out, "     "+inert.Line(r.Fix))
				}
			}
		}
		if failed {
			return errFound
		}
		return nil
	})
	a.formatFlags(c)
	c.Flags().IntVar(&calls, "calls", 20, "round trips that are measured")
	return c
}
