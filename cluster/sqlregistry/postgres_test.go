package sqlregistry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A write leaves no work for VACUUM and updates no index: Postgres puts the new version of the row
// on the same page.
//
// Fails when an indexed column changes with writes, or when pages are full.
//
// The test is not parallel, because Postgres keeps old row versions while other transactions are
// open.
func TestWritesAreHotPostgres(t *testing.T) {
	s := ways["Postgres"](t)
	s.migrated(t)
	db := s.db(t, "", "")
	db.SetMaxOpenConns(1)
	store := s.of(db, sqlregistry.Options{})
	const hosts, writes = 20, 30
	for i := range writes {
		for host := range hosts {
			b := batch(fmt.Sprint("host", host))
			b.Leases[0].Name = b.Host.Holder.Host
			b.Events, b.Runs = nil, nil
			b.Host.UpFor += time.Duration(i) * time.Second
			if i > 0 {
				b.Host.Detail = nil
			}
			if _, err := store.Write(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
	}
	db.Close() // closing makes the server publish its counters
	stats := s.db(t, "", "")
	testkit.Eventually(t, 30*time.Second, "updates are counted, and are HOT", func(ctx context.Context) error {
		var all, hot int
		err := stats.QueryRowContext(ctx, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables "+
			"WHERE relname = 'tickslot_registry'").Scan(&all, &hot)
		if want := 2 * hosts * (writes - 1); err == nil && (all != want || hot < all*95/100) {
			err = fmt.Errorf("of %d updates %d are HOT, want %d and 95 %% of them", all, hot, want)
		}
		return err
	})
}
