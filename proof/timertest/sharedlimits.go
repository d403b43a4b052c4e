package timertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// sharedSize is the size of the timers' shared limit.
const sharedSize = 3

// Five hosts have four timers that share a limit of three. Replies are sometimes lost, and one host
// is replaced halfway. The watcher counts the valid runs of all four. If a store cannot enforce
// such a limit, New must refuse it.
//
// Fails when the attempt does not ask for the limit.
func shared(s *suite, t *testing.T) {
	f := s.fleet(t)
	var busy atomic.Int64 // total time of all runs
	work := func(ctx context.Context) error {
		began := time.Now()
		defer func() { busy.Add(int64(time.Since(began))) }()
		return hold(nil)(contextFor(ctx, s.Period+rand.N(3*s.Period)))
	}
	var timers []timer.Timer
	for i := range 4 {
		timers = append(timers, timer.Timer{Name: fmt.Sprintf("mail-%d", i), Schedule: schedule.Every(s.Period),
			MaxConcurrency: sharedSize,
			MaxPerTick:     sharedSize, Limits: []string{"smtp"}, OnStoreDown: timer.StoreDownSkip,
			Run: func(ctx context.Context) error { _ = work(ctx); return nil }})
	}
	config := timer.Config{Limits: []timer.Limit{{Name: "smtp", Size: sharedSize}}}
	multi := driver.CapabilitiesOf(f.taker).SharedLimiter
	if multi == nil || multi.CheckShared("timer:mail-0", "limit:smtp") != nil {
		config.Store = f.taker
		config.TTL, config.StoreTimeout = s.TTL, f.storeTimeout()
		if _, err := timer.New(config, timers...); err == nil || !strings.Contains(err.Error(), "Limits") {
			t.Errorf("the store cannot keep a limit that timers share, and New says %v", err)
		}
		return
	}
	f.watch.sizes["smtp"] = sharedSize
	begin := func() {
		h := f.start(config, timers...)
		for range 3 {
			h.Link.InjectN(5, dlocktest.Fault{}, dlocktest.OpAcquire)
			h.Link.InjectN(1, dlocktest.LostReply, dlocktest.OpAcquire)
		}
	}
	for range 5 {
		begin()
	}
	total := func() (n int) {
		for _, job := range timers {
			n += f.watch.runs(job.Name, all)
		}
		return n
	}
	f.until("a good number of runs", func() bool { return total() >= 25 })
	f.stop(f.Hosts[0])
	f.Hosts = f.Hosts[1:]
	begin()
	began, was := time.Now(), busy.Load()
	f.until("as many again", func() bool { return total() >= 50 })
	used := float64(busy.Load()-was) / float64(sharedSize*time.Since(began))
	t.Logf("%.0f %% of the limit was used", 100*used)
	f.until("the limit is reached", func() bool {
		valid, _ := f.watch.peak("limit smtp")
		return valid == sharedSize
	})
	f.until("a tick is refused because of the limit", func() bool {
		n := uint64(0)
		for _, job := range timers {
			n += skipped(job.Name, timer.ReasonLimitFull, f.Hosts...)
		}
		return n > 0
	})
	f.stop()
	f.takeNow("limit:smtp", sharedSize, sharedSize)
}

// contextFor returns a context that ends with ctx or after d.
func contextFor(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx
}
