package sqlstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// In the regular calls of relays, a row that another session keeps locked delays only changes to
// that row.
//
// Fails when the result of another message is not written, when the result of the locked message is
// reported as written or as not counting, or when other old rows are kept because one is locked.
func TestWhatALockedRowCosts(t *testing.T) {
	t.Parallel()
	for kind, d := range map[string]dialect{"Postgres": dialects["Postgres"], "MariaDB": dialects["MariaDB"]} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := d.of(t)
			box, db := s.migrated(t)
			d.fill(t, s, "m", "'a'", "pending", 0, d.now, 1)
			d.fill(t, s, "n", "'b'", "pending", 0, d.now, 5)
			d.fill(t, s, "o", "'c'", "dispatched", 1, d.now, 5)
			first := map[string]int64{}
			for _, key := range []string{"a", "c"} {
				query := fmt.Sprintf("SELECT min(seq) FROM tickslot_outbox WHERE %s = '%s'", quotedKey(s), key)
				seq := int64(0)
				if err := db.QueryRowContext(t.Context(), query).Scan(&seq); err != nil {
					t.Fatal(err)
				}
				first[key] = seq
			}
			lock := func(key string) (unlock func()) {
				t.Helper()
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback() })
				row := fmt.Sprintf("SELECT 1 FROM tickslot_outbox WHERE seq = %d FOR UPDATE", first[key])
				if _, err := tx.ExecContext(t.Context(), row); err != nil {
					t.Fatal(err)
				}
				return func() { _ = tx.Rollback() }
			}
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			due, err := box.Due(ctx, store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 10})
			if err != nil || len(due.Messages) != 6 {
				t.Fatal(len(due.Messages), err)
			}
			var results []store.Result
			for _, m := range due.Messages {
				results = append(results, store.Result{ID: m.ID, Seq: m.Seq, Outcome: store.OutcomeOK})
			}
			mark := func(when string, counted, locked int) {
				t.Helper()
				marked, err := box.Mark(ctx, "n", results)
				if err != nil || len(marked.Counted) != counted || len(marked.Locked) != locked ||
					locked > 0 && !slices.Contains(marked.Locked, results[0].ID) {
					t.Errorf("Mark, %s: %d results count, %d are of locked rows, %v, want %d and %d", when,
						len(marked.Counted), len(marked.Locked), err, counted, locked)
				}
			}
			unlock := lock("a")
			var begun []store.Begun
			for _, m := range due.Messages {
				begun = append(begun, store.Begun{ID: m.ID, Seq: m.Seq, Crashes: 1})
			}
			if err := box.NoteBegun(ctx, begun); err != nil {
				t.Errorf("NoteBegun: %v", err)
			}
			noted := 0
			if err := db.QueryRowContext(ctx, "SELECT count(*) FROM tickslot_outbox WHERE crashes = 1").
				Scan(&noted); err != nil || noted != 5 {
				t.Errorf("NoteBegun: %d rows, %v, want the 5 that are not locked", noted, err)
			}
			mark("one row is locked", 5, 1)
			mark("again", 5, 1)
			unlock()
			mark("none is locked", 6, 0)
			unlock = lock("a")
			mark("a row is locked that was written", 6, 0)
			unlock()
			defer lock("c")()
			if n, err := box.Sweep(ctx, store.Retention{Dispatched: time.Microsecond}, 100); err != nil || n != 10 {
				t.Errorf("Sweep: %d, %v, want the 10 rows that are not locked", n, err)
			}
		})
	}
}
