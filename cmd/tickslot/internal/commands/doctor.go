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

func (a *app) doctor() *cobra.Command {
	calls := 0
	c := &cobra.Command{Use: "doctor", Short: "Look for what endangers the fleet", GroupID: groupCare,
		Args: cobra.NoArgs,
		Long: "Measures round trips, and looks at the clocks, at eviction, persistence and replicas (Redis), at " +
			"tables,\n" +
			"grants and a pooler (databases), and at hosts that differ in version, environment or limits. Each " +
			"finding\n" +
			"says how to mend it. It changes nothing. The exit code is 1 if there is one.",
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
		findings := doctor.Examine(ctx, doctor.Patient{Store: a.store, Snapshot: a.snapshot, Calls: calls})
		sick := false
		for i := range findings {
			f := &findings[i]
			f.Text, f.Mend = a.store.Hide(f.Text), a.store.Hide(f.Mend)
			sick = sick || !f.Well
		}
		switch format {
		case show.FormatJSON, show.FormatYAML:
			if err := (&show.Table{Data: findings}).Print(a.Out, format, 0); err != nil {
				return err
			}
		default:
			for _, f := range findings {
				mark := "ok  "
				if !f.Well {
					mark = "MEND"
				}
				fmt.Fprintln(a.Out, strings.TrimRight(mark+" "+inert.Line(f.About+": "+f.Text), " "))
				if f.Mend != "" {
					fmt.Fprintln(a.Out, "     "+inert.Line(f.Mend))
				}
			}
		}
		if sick {
			return errFound
		}
		return nil
	})
	a.formatFlags(c)
	c.Flags().IntVar(&calls, "calls", 20, "round trips that are measured")
	return c
}
