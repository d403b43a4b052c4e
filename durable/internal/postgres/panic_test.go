package postgres

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A tracer panics in batches of statements while panics is set.
type tracer struct{ panics atomic.Bool }

func (t *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	if t.panics.Load() {
		panic("tracer")
	}
	return ctx
}

func (*tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (*tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The application's functions that pgx calls when it connects or sends may panic. The worker
// reports the panic, and continues when the functions no longer panic.
//
// Fails when a call that panics keeps its connection. After four such calls, all other calls would
// wait forever.
func TestApplicationPanicsInACall(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.migrated(t)
	config := d.pool(t, "", "").Config()
	var trace tracer
	var connects atomic.Bool
	config.ConnConfig.Tracer = &trace
	config.AfterConnect = func(context.Context, *pgx.Conn) error {
		if connects.Load() {
			panic("connects")
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := on(t, pool, "durable")
	for _, panics := range []*atomic.Bool{&connects, &trace.panics} {
		panics.Store(true)
		for range 3 * maxOwn {
			func() {
				defer func() {
					if p := recover(); p == nil {
						t.Error("no panic")
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
				defer cancel()
				_, err := s.Due(ctx, store.DueSchedule{}, 1000)
				t.Error(err)
			}()
		}
		panics.Store(false)
		if _, err := s.Due(t.Context(), store.DueSchedule{}, 1000); err != nil {
			t.Error(err)
		}
	}
}
