package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Both sides use the same number of connections, so all workers reach the server at once.
//
// Fails when the stores are built from a pool of two connections: each then has two, and half of
// their workers wait for one.
func TestConnectionsToPostgresAreEqual(t *testing.T) {
	const slots, held = 4, 2
	sqltest.RequirePostgres(t)
	p, err := startPostgres()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.admin.Close(); p.Close() })
	if err := p.prepare(slots, held); err != nil {
		t.Fatal(err)
	}
	for table, open := range map[string]func(int, int) (runner, error){"distributed_locks": p.oursOn,
		"naive": p.naiveOn} {
		side, err := open(slots, pgConnections)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := p.admin.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "LOCK TABLE "+table); err != nil {
			t.Fatal(err)
		}
		played := make(chan error, 1)
		go func() {
			_, err := side.measure(time.Millisecond)
			played <- err
		}()
		err = testkit.Poll(2*time.Second, "workers of "+table, func(ctx context.Context) error {
			var waiting int
			err := p.admin.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE relation = $1::text::regclass AND "+
				"NOT granted", table).Scan(&waiting)
			if err == nil && waiting != pgConnections {
				err = fmt.Errorf("%d of %d are at the server", waiting, pgConnections)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := errors.Join(tx.Rollback(ctx), <-played, side.close()); err != nil {
			t.Error(table, err)
		}
	}
}
