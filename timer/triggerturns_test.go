package timer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// Ticks of another timer, or of the timer itself, keep a limit of one run busy. An accepted trigger
// runs within a TTL plus two of the runs before it, on one host and on several hosts. With three
// triggers of two timers, each waits for one more run. Ticks continue in the meantime.
//
// Fails when no host offers the place of a run that ends. Also fails when that place goes to the
// host's own next tick, to a waiting tick, or to hosts whose tick is then due.
func TestTriggersBesideABusyLimit(t *testing.T) {
	const ttl = 15 * time.Second
	second := schedule.Every(time.Second).Offset(0)
	for _, c := range []struct {
		name    string
		run     time.Duration // how long a run of a tick takes; there is a tick each second
		onFull  timer.FullPolicy
		latency time.Duration
	}{
		{"half of the time", 500 * time.Millisecond, timer.FullSkip, 0},
		{"95 %", 950 * time.Millisecond, timer.FullSkip, 0},
		{"95 % on a slow store", 950 * time.Millisecond, timer.FullSkip, 10 * time.Millisecond},
		{"99.9 % on a slow store", 999*time.Millisecond - 20*time.Millisecond, timer.FullSkip, 10 * time.Millisecond},
		{"always", 1500 * time.Millisecond, timer.FullWait, 0},
		{"always, on a slow store", 1500 * time.Millisecond, timer.FullWait, 10 * time.Millisecond},
	} {
		for _, hosts := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%s, %d hosts", c.name, hosts), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFleet(t)
					var ran payloads
					var ticks atomic.Int64
					busy := timer.Timer{Name: "busy", Schedule: second, OnFull: c.onFull, Limits: []string{"db"},
						Run: func(ctx context.Context) error { ticks.Add(1); return sleep(ctx, c.run) }}
					a, b := ran.timer("a", time.Second), ran.timer("b", time.Second)
					a.Limits, b.Limits = busy.Limits, busy.Limits
					for range hosts {
						h := f.start(timer.Config{TTL: ttl, Limits: []timer.Limit{{Name: "db", Size: 1}}}, busy, a, b)
						if c.latency > 0 {
							h.Link.Inject(dlocktest.Slow(c.latency))
						}
					}
					time.Sleep(time.Minute)
					ctl := control.New(control.Config{Store: f.store})
					var worst time.Duration
					for i := range 8 {
						list := []string{fmt.Sprint("a", i)}
						if i%4 == 3 {
							list = append(list, fmt.Sprint("b", i), fmt.Sprint("a'", i))
						}
						asked, before := time.Now(), len(ran.got())
						for _, payload := range list {
							order(t, ctl, payload[:1], payload, time.Hour)
						}
						for len(ran.got()) < before+len(list) && time.Since(asked) < 30*time.Minute {
							time.Sleep(50 * time.Millisecond)
						}
						bound := ttl + time.Duration(len(list))*2*max(c.run, time.Second)
						if took := time.Since(asked); took > bound {
							t.Errorf("%d triggers ran after %v, at most %v", len(list), took, bound)
						}
						worst = max(worst, time.Since(asked))
						time.Sleep(7 * time.Second)
					}
					t.Logf("after %v at worst, with %d ticks", worst, ticks.Load())
					if n := ticks.Load(); n < 60 {
						t.Errorf("%d ticks ran", n)
					}
					f.Stop()
				})
			})
		}
	}
}
