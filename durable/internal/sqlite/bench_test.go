package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// BenchmarkRuns queues runs one by one, and claims and finishes them in batches of 16.
func BenchmarkRuns(b *testing.B) {
	s := migrated(b, on(b, open(b, "file:"+filepath.Join(b.TempDir(), "durable.db")+"?_pragma=synchronous(normal)")))
	orders := []store.Handler{{Name: "orders", MaxAttempts: 3}}
	var inserting, ending time.Duration
	runs := 0
	for b.Loop() {
		began := time.Now()
		for range 160 {
			if _, err := s.Insert(b.Context(), nil, store.NewRun{Handler: "orders"}); err != nil {
				b.Fatal(err)
			}
		}
		queued := time.Now()
		inserting += queued.Sub(began)
		for range 10 {
			claimed, err := s.Claim(b.Context(), store.ClaimRequest{Worker: "w", Handlers: orders, Limit: 16,
				TTL: time.Minute})
			if err != nil || len(claimed.Runs) != 16 {
				b.Fatal(claimed, err)
			}
			var results []store.Result
			for _, r := range claimed.Runs {
				results = append(results, store.Result{RunKey: r.RunKey, Outcome: store.OutcomeOK,
					State: store.StateSucceeded})
			}
			if _, err := s.Finish(b.Context(), "w", results); err != nil {
				b.Fatal(err)
			}
		}
		ending += time.Since(queued)
		runs += 160
	}
	b.ReportMetric(float64(runs)/inserting.Seconds(), "queued/s")
	b.ReportMetric(float64(runs)/ending.Seconds(), "runs/s")
}
