package sqlstore_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// On MySQL, the regular calls of a relay lock single rows of messages. They never lock the gap
// between two rows or the end of the table, where a producer would have to wait to append its next
// message.
//
// Fails when a statement at REPEATABLE READ finds its rows by anything but their key, or searches
// for a row that does not exist.
func TestRelayLocksNoGapOnMySQL(t *testing.T) {
	t.Parallel()
	server := quickMySQL(t)
	s := mysqlOn(t, server, oneTrip)
	box, db := s.migrated(t)
	crowdedMySQL(t, s, 1000, "DAY")
	s.exec(t, "CREATE TRIGGER slow_update AFTER UPDATE ON tickslot_outbox FOR EACH ROW "+sqltest.ShowRowLocks,
		"CREATE TRIGGER slow_delete AFTER DELETE ON tickslot_outbox FOR EACH ROW "+sqltest.ShowRowLocks)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	due, err := box.Due(ctx, store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 4})
	if err != nil || len(due.Messages) < 4 {
		t.Fatal(len(due.Messages), err)
	}
	var begun []store.Begun
	results := []store.Result{{ID: store.ID{1}, Seq: 1 << 40, Outcome: store.OutcomeOK}} // deleted since
	for _, m := range due.Messages {
		begun = append(begun, store.Begun{ID: m.ID, Seq: m.Seq})
		results = append(results, store.Result{ID: m.ID, Seq: m.Seq, Outcome: store.OutcomeOK})
	}
	// Matches locks on dead or dispatched messages. The key may be missing.
	ended := regexp.MustCompile(`^tickslot_outbox\.finished X: (0x(64656164|64697370617463686564),.*)?$`)
	for _, call := range []struct {
		what string
		do   func() error
	}{
		{"NoteBegun", func() error { return box.NoteBegun(ctx, begun) }},
		{"Mark", func() error { _, err := box.Mark(ctx, "r", results); return err }},
		{"Sweep", func() error {
			_, err := box.Sweep(ctx, store.Retention{Dispatched: 100 * 24 * time.Hour, Dead: 100 * 24 * time.Hour}, 20)
			return err
		}},
	} {
		locks := sqltest.RowLocks(t, db, s.database, func() {
			if err := call.do(); err != nil {
				t.Errorf("%s: %v", call.what, err)
			}
		})
		rows := 0
		for _, lock := range locks {
			// A sweep also locks the gaps between ended messages.
			if !strings.HasPrefix(lock, "tickslot_outbox.") || ended.MatchString(lock) {
				continue
			}
			rows++
			if !strings.Contains(lock, "REC_NOT_GAP") {
				t.Errorf("%s locks a gap: %s", call.what, lock)
			}
		}
		if rows == 0 {
			t.Errorf("%s: no lock was seen: %q", call.what, locks)
		}
	}
}
