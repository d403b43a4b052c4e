package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// Starts recorded while the clock was two hours ahead count as if they had happened now, in
// addition to earlier starts.
//
// Fails when a handler waits until the clock has caught up, or the starts are forgotten.
func TestStartsOfAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	handlers := []store.Handler{{Name: "orders", MaxAttempts: 1, Rate: 3, Per: time.Second}}
	if err := s.Register(t.Context(), "w", handlers, nil, true); err != nil {
		t.Fatal(err)
	}
	log := ""
	for _, at := range []time.Duration{-time.Minute, 2 * time.Hour, 2*time.Hour + time.Minute} {
		log += fmt.Sprintf("%016d%010d", time.Now().Add(at).UnixMicro(), 1)
	}
	d.exec(t, "INSERT INTO durable_runs (handler, run_at) SELECT 'orders', now() FROM generate_series(1, 5)",
		"UPDATE durable_handlers SET starts = '"+log+"' WHERE name = 'orders'")
	claim := func(want int) store.Claimed {
		t.Helper()
		claimed, err := s.Claim(t.Context(), store.ClaimRequest{Worker: "w", Handlers: handlers, Limit: 10,
			TTL: time.Minute})
		if err != nil || len(claimed.Runs) != want {
			t.Fatalf("%d runs were claimed, %v; want %d", len(claimed.Runs), err, want)
		}
		return claimed
	}
	claimed := claim(1) // two of the three starts happened before
	wait := claimed.Next.Sub(claimed.Now)
	if wait <= 0 || wait > time.Second+time.Millisecond {
		t.Fatalf("the next run may start in %v", wait)
	}
	time.Sleep(wait + time.Millisecond)
	claim(3)
}
