package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer"
)

var errReplaced = errors.New("a later run has written")

// createAccount belongs in the migrations of a real service. A lock makes two pods that start at
// the same time take turns, because CREATE TABLE IF NOT EXISTS can fail when run concurrently. The
// lock lasts until the statements have ended.
func createAccount(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
		SELECT pg_advisory_xact_lock(hashtextextended('create account', 0));
		CREATE TABLE IF NOT EXISTS account (id int PRIMARY KEY, settled bigint NOT NULL, fence bigint NOT NULL);
		INSERT INTO account VALUES (1, 0, 0) ON CONFLICT DO NOTHING`)
	return err
}

// balance returns a handler that responds with the balance.
func balance(pool *pgxpool.Pool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var settled int64
		if err := pool.QueryRow(r.Context(), "SELECT settled FROM account").Scan(&settled); err != nil {
			http.Error(w, "The account cannot be read now.", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "settled:", settled)
	}
}

// settle returns a timer handler that takes half a second and then writes with its run's fence.
func settle(pool *pgxpool.Pool) timer.Handler {
	return func(ctx context.Context) (err error) {
		run, _ := timer.RunFromContext(ctx)
		slog.Info("settle starts", "tick", run.Tick(), "slot", run.Slot(), "fence", run.Fence())
		defer func() {
			slog.Info("settle ends", "tick", run.Tick(), "slot", run.Slot(), "fence", run.Fence(), "err", err)
		}()
		select {
		case <-time.After(500 * time.Millisecond):
			return book(ctx, pool, run.Fence())
		case <-ctx.Done(): // the lease was lost, or draining took too long
			return context.Cause(ctx)
		}
	}
}

// book adds one to the account unless a run with a higher fence has written. The statement compares
// the fence, so no other write can come in between.
func book(ctx context.Context, pool *pgxpool.Pool, fence dlock.Fence) error {
	tag, err := pool.Exec(ctx,
		`UPDATE account SET settled = settled + 1, fence = $1 WHERE id = 1 AND fence <= $1`, int64(fence))
	if err == nil && tag.RowsAffected() == 0 {
		return errReplaced
	}
	return err
}
