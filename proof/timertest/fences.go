package timertest

import (
	"context"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// The slots move between hosts by release and by expiry, and to a client that is no scheduler. The
// watcher compares the fence of each run with the previous one of its slot.
//
// Fails when Run.Fence is constant, when the store's fences for a name do not grow, and when they
// start again after an expiry.
func fences(s *suite, t *testing.T) {
	testkit.SkipShort(t)
	f := s.fleet(t)
	work := timer.Timer{Name: "a", Schedule: schedule.Every(s.Period), MaxConcurrency: 2, MaxPerTick: 2,
		OnStoreDown: timer.StoreDownSkip,
		Run:         job(10*time.Millisecond, 80*time.Millisecond)}
	holding := work
	holding.MaxPerHost, holding.Run = 1, hold(nil)
	both := func(n int) func() bool {
		return func() bool { return f.watch.runs("a", in(0)) >= n && f.watch.runs("a", in(1)) >= n }
	}
	for range 2 {
		f.start(timer.Config{}, work)
	}
	f.until("both slots are used in turn", both(10))

	victim := f.start(timer.Config{}, holding)
	var lost *visit
	f.until("the third host has a slot", func() bool { lost = f.watch.on(victim, "a"); return lost != nil })
	victim.Link.Inject(dlocktest.Hang)
	slot := lost.Slot()
	f.until("its lease ends and the slot is used again", func() bool {
		return f.watch.latest("a",
			slot).host != victim
	})
	f.until("both slots are used in turn again", func() bool {
		return f.watch.runs("a", func(v *visit) bool {
			return v.valid && v.Slot() == slot &&
				v.Fence() > lost.Fence()
		}) >= 5
	})
	victim.Link.Heal()
	f.stop()

	before := map[int]dlock.Fence{0: fenceOf(f.watch.latest("a", 0)), 1: fenceOf(f.watch.latest("a", 1))}
	for slot, fence := range f.take("timer:a", 2, 2) {
		if fence <= before[slot] {
			t.Errorf("slot %d: fence %d for a client after the runs, %d before", slot, fence, before[slot])
		}
		before[slot] = fence
	}
	gate, open := f.gate()
	next := f.start(timer.Config{}, timer.Timer{Name: "a", MaxConcurrency: 2, OnStoreDown: timer.StoreDownSkip,
		Run: hold(gate)})
	for range 2 {
		f.trigger(next, "a")
	}
	f.until("a new host runs in both slots", func() bool {
		return f.watch.latest("a", 0).host == next &&
			f.watch.latest("a", 1).host == next
	})
	for slot, fence := range before {
		if got := fenceOf(f.watch.latest("a", slot)); got <= fence {
			t.Errorf("slot %d: fence %d on a new host, %d before", slot, got, fence)
		}
	}
	open()
	f.stop()
}

// A stranger knows everything about a lease except its token, and has tokens of expired leases. It
// can neither extend nor release the lease, and the run is not affected.
//
// Fails when the store does not compare tokens.
func strangers(s *suite, t *testing.T) {
	f := s.fleet(t)
	gate, open := f.gate()
	first := make(chan struct{}, 1)
	first <- struct{}{}
	work := timer.Timer{Name: "a", OnStoreDown: timer.StoreDownSkip, Run: func(ctx context.Context) error {
		select {
		case <-first: // the first run ends at once
			return nil
		case <-gate:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	owner, other := f.start(timer.Config{}, work), f.start(timer.Config{}, work)
	f.trigger(owner, "a")
	f.until("the first run is over", func() bool { return f.status(owner, "a").Last != nil })
	ended := owner.Link.last("timer:a", driver.AnySlot)
	f.trigger(owner, "a")
	f.until("the second run goes on", func() bool { return f.watch.now("a") != nil })
	run, at := f.watch.now("a"), time.Now()

	for _, token := range []string{"stranger", ended.Token} {
		grant := driver.Grant{Name: "timer:a", Slots: 1, Slot: run.Slot(), Token: token, Fence: run.Fence()}
		anywhere := grant
		anywhere.Slot = driver.AnySlot
		for what, do := range map[string]func(ctx context.Context) ([]driver.Result, error){
			"extends": func(ctx context.Context) ([]driver.Result,
				error) {
				return f.taker.Extend(ctx, s.TTL, grant)
			},
			"releases": func(ctx context.Context) ([]driver.Result,
				error) {
				return f.taker.Release(ctx, grant)
			},
			"releases by a token": func(ctx context.Context) ([]driver.Result,
				error) {
				return f.taker.Release(ctx, anywhere)
			},
		} {
			results, err := call(t, do)
			if err != nil || len(results) != 1 || results[0].Outcome != driver.GrantLost {
				t.Errorf("a stranger %s: %+v, %v; want lost", what, results, err)
			}
		}
	}
	if err := f.answered(other, "a"); !refused(err, timer.ReasonFull) && !f.strained(owner, at) {
		t.Errorf("another host was told %v, want that the slot is held", err)
	}
	beaten := owner.Link.beat()
	f.until("the owner's heartbeat", func() bool { return beaten() || run.ctx.Err() != nil })
	if (!run.Valid() || run.ctx.Err() != nil) && !f.strained(owner, at) {
		t.Errorf("the run was disturbed: valid %v, context %v", run.Valid(), context.Cause(run.ctx))
	}
	open()
	f.trigger(other, "a") // as soon as the owner has released it
	f.stop()
}
