package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// BenchmarkRuns claims and finishes runs in batches of 16, with different numbers of loops. One
// operation is one run.
func BenchmarkRuns(b *testing.B) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		for _, limit := range []int{0, 1000} {
			for _, loops := range []int{1, 4} {
				b.Run(fmt.Sprintf("%v/limit=%d/loops=%d", mode, limit, loops), func(b *testing.B) {
					d := newDatabase(b)
					d.mode = mode
					s := d.migrated(b)
					d.fill(b, s, "orders", b.N)
					handlers := []store.Handler{{Name: "orders", MaxAttempts: 3, MaxConcurrency: limit}}
					if err := s.Register(b.Context(), "w", handlers, nil, true); err != nil {
						b.Fatal(err)
					}
					b.ResetTimer()
					var all sync.WaitGroup
					for range loops {
						all.Go(func() { claimAndFinish(b, s, handlers) })
					}
					all.Wait()
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
				})
			}
		}
	}
}

// fill queues runs that are due.
func (d database) fill(t testing.TB, s *Store, handler string, n int) {
	t.Helper()
	d.exec(t, fmt.Sprintf("INSERT INTO %s (handler, run_at, payload) SELECT '%s', now(), '{}' "+
		"FROM generate_series(1, %d)", s.names["runs"], handler, n), "ANALYZE")
}

func claimAndFinish(b *testing.B, s *Store, handlers []store.Handler) {
	for {
		claimed, err := s.Claim(context.Background(), store.ClaimRequest{Worker: "w", Handlers: handlers, Limit: 16,
			TTL: 1e12})
		if err != nil {
			b.Error(err)
		}
		if len(claimed.Runs) == 0 {
			return
		}
		var results []store.Result
		for _, run := range claimed.Runs {
			results = append(results, store.Result{RunKey: run.RunKey, Outcome: store.OutcomeOK,
				State: store.StateSucceeded})
		}
		done, err := s.Finish(context.Background(), "w", results)
		if err != nil || len(done.Counted) != len(results) {
			b.Error(len(done.Counted), err)
		}
	}
}
