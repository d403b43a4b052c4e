package retention_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/retention"
)

// Hosts that share the work sweep once per Interval in total, not all at the same time. While
// batches are full, they continue immediately. A sweep that fails or panics loses only its own
// turn.
//
// Fails when Next ignores the number of hosts or a full batch, or is not random.
func TestSweepersShareTheWork(t *testing.T) {
	for name, fault := range map[string]func(int) error{
		"well":  func(int) error { return nil },
		"fails": func(n int) error { return map[bool]error{true: errors.New("no")}[n%3 == 0] },
		"panics": func(n int) error {
			if n%3 == 0 {
				panic("oh")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const hosts, day = 20, 24 * time.Hour
				old := 100_000
				calls := make(chan int, 1)
				calls <- 0
				at := map[time.Time]int{}
				ctx, stop := context.WithCancel(t.Context())
				failures := make(chan int)
				sweepers := make([]*retention.Sweeper, hosts)
				for i := range sweepers {
					sweepers[i] = &retention.Sweeper{Interval: time.Minute, Pause: time.Second, Batch: 1_000,
						Delete: func(_ context.Context, limit int) (int, error) {
							n := <-calls + 1
							defer func() { calls <- n }()
							at[time.Now()]++
							if err := fault(n); err != nil {
								return 0, err
							}
							k := min(old, limit)
							old -= k
							return k, nil
						}}
					go func() {
						failed := 0
						defer func() { failures <- failed }()
						for {
							select {
							case <-ctx.Done():
								return
							case <-time.After(sweepers[i].Next(hosts)):
							}
							if sweepers[i].Once(ctx) != nil {
								failed++
							}
						}
					}()
				}
				time.Sleep(day)
				stop()
				rows, failed := uint64(0), 0
				for range sweepers {
					failed += <-failures
				}
				for _, s := range sweepers {
					rows += s.Rows()
				}
				n := <-calls
				if most := int(day/time.Minute) * 5 / 4; n > most+200 || n < most/2 {
					t.Errorf("%d sweeps", n)
				}
				if old != 0 || rows != 100_000 || (failed > 0) != (name != "well") {
					t.Errorf("%d rows are left, %d deleted, %d failures", old, rows, failed)
				}
				if len(at) < n*9/10 {
					t.Errorf("%d sweeps at %d instants", n, len(at))
				}
			})
		})
	}
}

// A running sweeper deletes while it is its turn, continues after a failure, and stops with its
// context.
//
// Fails when a host deletes out of turn, when one failure ends the deletes, or when they continue
// after the end.
func TestSweeperRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, turn := 0, true
		s := retention.Sweeper{Interval: time.Minute, Pause: time.Second, Batch: 10,
			Delete: func(context.Context, int) (int, error) {
				calls++
				return 0, errors.New("connection refused")
			}}
		run := func(mine func() bool) (n int) {
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			before := calls
			s.Run(ctx, mine)
			return calls - before
		}
		if n := run(nil); n < 40 || n > 120 {
			t.Errorf("%d deletes in an hour", n)
		}
		if n := run(func() bool { turn = !turn; return turn }); n < 20 || n > 60 {
			t.Errorf("%d deletes in an hour, of which half is its turn", n)
		}
		if n := run(func() bool { return false }); n > 0 {
			t.Errorf("%d deletes, and it is never its turn", n)
		}
	})
}
