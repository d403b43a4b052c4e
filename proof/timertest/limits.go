package timertest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Four hosts have short and long jobs on schedules and many triggers. Replies are sometimes lost,
// and one host is replaced halfway. The watcher counts the valid runs. The limits must be reached,
// or nothing would be shown.
//
// Fails when the attempt asks for slots()+1.
func overlap(s *suite, t *testing.T) {
	f := s.fleet(t)
	every := schedule.Every(s.Period)
	timers := []timer.Timer{
		{Name: "three", Schedule: every, MaxConcurrency: 3, MaxPerTick: 3, OnStoreDown: timer.StoreDownSkip,
			Run: job(80*time.Millisecond, 300*time.Millisecond)},
		{Name: "one", Schedule: every, OnStoreDown: timer.StoreDownSkip,
			Run: job(30*time.Millisecond, 200*time.Millisecond)},
		{Name: "manual", MaxConcurrency: 2, OnStoreDown: timer.StoreDownSkip,
			Run: job(20*time.Millisecond, 100*time.Millisecond)},
	}
	storm := make(chan struct{})
	var triggers sync.WaitGroup
	defer triggers.Wait()
	calm := sync.OnceFunc(func() { close(storm) })
	defer calm()
	begin := func() *host {
		h := f.start(timer.Config{}, timers...)
		for range 3 {
			h.Link.InjectN(5, dlocktest.Fault{}, dlocktest.OpAcquire)
			h.Link.InjectN(1, dlocktest.LostReply, dlocktest.OpAcquire)
		}
		for range 2 {
			triggers.Go(func() {
				for !over(storm) {
					_ = h.Trigger(context.Background(), "manual") // refused or not, the watcher sees the result
					time.Sleep(s.Period/5 + rand.N(s.Period/2))   // the pace of the triggers
				}
			})
		}
		return h
	}
	for range 4 {
		begin()
	}
	enough := func(n int) func() bool {
		return func() bool {
			return f.watch.runs("three", all) >= n && f.watch.runs("one", all) >= n/2 &&
				f.watch.runs("manual", all) >= n
		}
	}
	f.until("a good number of runs", enough(30))
	f.stop(f.Hosts[0])
	begin()
	f.until("as many again", enough(60))
	for name, limit := range map[string]int{"three": 3, "one": 1, "manual": 2} {
		f.until(name+" reaches its limit", func() bool {
			valid, _ := f.watch.peak(name)
			return valid >= limit
		})
	}
	calm()
	triggers.Wait()
	f.stop()
}

// job returns a handler that takes up to brief, or one time in five long, or less if its context
// ends.
func job(brief, long time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		d := rand.N(brief)
		if rand.IntN(5) == 0 {
			d = long
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return nil
	}
}

// hold returns a handler that runs until the gate opens, if there is one, or its context ends.
func hold(gate <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The attempts of five hosts reach the store one after another, each when the previous short job is
// over. Only the tick keeps them from running it again. (gocron with a Redis lock runs 14 times for
// 5 such ticks on 3 hosts.)
//
// Fails when the attempt claims no tick (TryAcquire instead of TryAcquireTick).
func rate(s *suite, t *testing.T) {
	f := s.fleet(t)
	every := schedule.Every(4 * s.Period)
	most := map[string]int{"plain": 1, "once": 1, "twice": 2}
	short := func(context.Context) error { return nil }
	for i := range 5 {
		l := f.connect()
		l.lag = time.Duration(i) * 40 * time.Millisecond
		f.startOn(l, timer.Config{},
			timer.Timer{Name: "plain", Schedule: every, OnStoreDown: timer.StoreDownSkip, Run: short},
			timer.Timer{Name: "once", Schedule: every, MaxConcurrency: 5, MaxPerTick: 1,
				OnStoreDown: timer.StoreDownSkip, Run: short},
			timer.Timer{Name: "twice", Schedule: every, MaxConcurrency: 5, MaxPerTick: 2,
				OnStoreDown: timer.StoreDownSkip, Run: short})
	}
	for name, n := range most {
		f.until(name+" is refused, and has run its ticks as often as it may", func() bool {
			_, perTick := f.watch.peak(name)
			return f.watch.ticks(name) >= 8 && perTick >= n && skipped(name, timer.ReasonTickTaken, f.Hosts...) >= 8
		})
	}
	f.stop()
}
