package timertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// The server is down when the hosts start, hangs during their runs, and later fails calls at once
// or executes them and loses the replies. Each time, timers with StoreDownRunLocal continue, timers
// with StoreDownSkip start nothing, no call takes too long, and everything works again afterwards
// without a restart.
//
// Fails when down or lost ignores the policy, when a failed acquire counts as an answer (the host
// never reports that the store is down), when a session stops trying after a failure, when the
// heartbeat ends with a failure, and when the store ignores the deadline of its context.
// deadline of its context.
func outages(s *suite, t *testing.T) {
	testkit.SkipShort(t)
	t.Run("down at the start", func(t *testing.T) {
		t.Parallel()
		o := newOutage(s, t)
		o.down()
		for range 2 {
			o.begin()
		}
		o.goesOn()
		if n := o.watch.runs("skip", all); n > 0 {
			t.Errorf("%d runs of a timer that is to skip started without the store", n)
		}
		for _, h := range o.Hosts {
			o.bounded("a trigger", 1, func() {
				if err := h.Trigger(t.Context(), "skip"); !refused(err, timer.ReasonStoreDown) &&
					!refused(err, timer.ReasonHostFull) {
					t.Errorf("trigger: %v, want that the store is down", err)
				}
			})
		}
		o.up()
		o.recovers()
		o.stop()
	})
	t.Run("silent under runs", func(t *testing.T) {
		t.Parallel()
		o := newOutage(s, t)
		first, last := o.begin(), o.begin()
		o.recovers() // it was well
		o.trigger(first, "keeps on")
		o.trigger(first, "ends")
		o.until("both run", func() bool { return o.watch.now("keeps on") != nil && o.watch.now("ends") != nil })
		keepsOn, ends := o.watch.now("keeps on"), o.watch.now("ends")
		o.down()
		o.goesOn()
		o.until("the run under StoreDownRunLocal goes on without its lease",
			func() bool { return keepsOn.Degraded() && !keepsOn.Valid() })
		o.until("the run under StoreDownSkip is told", func() bool { return ends.ctx.Err() != nil })
		if cause := context.Cause(ends.ctx); !errors.Is(cause, dlock.ErrLost) {
			t.Errorf("cause %v, want one that matches dlock.ErrLost", cause)
		}
		if err := keepsOn.ctx.Err(); err != nil {
			t.Errorf("the context of the run under StoreDownRunLocal has ended: %v", context.Cause(keepsOn.ctx))
		}
		// Attempts and releases in flight end with their calls.
		last.Cancel()
		o.bounded("draining", 3, func() { receive(t, "Run returns", last.done) })
		o.up()
		o.Hosts = o.Hosts[:1]
		o.open()
		o.recovers()
		o.stop()
	})
	for name, fault := range map[string]dlocktest.Fault{"failing": dlocktest.Error(errors.New("connection refused")),
		"losing replies": dlocktest.LostReply} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutage(s, t)
			for range 2 {
				o.begin()
			}
			o.recovers()
			o.survives()
			o.inject(fault)
			o.goesOn()
			o.heal()
			o.open()
			o.recovers()
			o.stop()
		})
	}
}

// An outage is a fleet with a timer for each policy, and a second one for each that is triggered
// and holds its slot.
type outage struct {
	*realFleet
	begun time.Time
	gate  <-chan struct{}
}

func newOutage(s *suite, t *testing.T) *outage {
	o := &outage{realFleet: s.fleet(t), begun: time.Now()}
	o.gate, _ = o.realFleet.gate()
	return o
}

func (o *outage) begin() *host {
	o.t.Helper()
	every := schedule.Every(o.suite.Period)
	short := func(context.Context) error { return nil }
	return o.start(timer.Config{},
		timer.Timer{Name: "local", Schedule: every, OnStoreDown: timer.StoreDownRunLocal, Run: short},
		timer.Timer{Name: "skip", Schedule: every, OnStoreDown: timer.StoreDownSkip, Run: short},
		timer.Timer{Name: "keeps on", OnStoreDown: timer.StoreDownRunLocal, Run: hold(o.gate)},
		timer.Timer{Name: "ends", OnStoreDown: timer.StoreDownSkip, Run: hold(o.gate)})
}

// survives shows that a failed heartbeat costs no lease. The host has no other lease that would
// cause an earlier heartbeat.
func (o *outage) survives() {
	o.t.Helper()
	h := o.start(timer.Config{}, timer.Timer{Name: "alone", OnStoreDown: timer.StoreDownSkip, Run: hold(o.gate)})
	o.Hosts = slices.DeleteFunc(o.Hosts, func(other *host) bool { return other == h })
	for began := time.Now(); time.Since(began) < patience; {
		o.trigger(h, "alone")
		o.until("it runs", func() bool { return o.watch.now("alone") != nil })
		run, at := o.watch.now("alone"), time.Now()
		h.Link.InjectN(1, dlocktest.Error(errors.New("connection reset")), dlocktest.OpExtend)
		o.until("a heartbeat fails", func() bool { return h.Link.failed(at) > 0 || run.ctx.Err() != nil })
		beaten := h.Link.beat()
		o.until("the next one", func() bool { return beaten() || run.ctx.Err() != nil })
		if run.Valid() && run.ctx.Err() == nil {
			return
		}
		if o.suite.late.Since(at) < o.suite.TTL/8 && h.Link.failed(at) <= 1 {
			o.t.Errorf("one heartbeat failed and the lease was lost: %v", context.Cause(run.ctx))
			return
		}
		// Other heartbeats failed too, because the machine was so busy.
		o.until("the run that lost its lease ends", func() bool { return o.watch.now("alone") == nil })
	}
	o.t.Error("this machine was too busy to tell whether a heartbeat that fails costs a lease")
}

// goesOn checks timers while the store is unreachable. A host tries one tick of a timer at a time.
// So once it has skipped a tick because of the store, all later ticks were tried after the store
// had become unreachable.
func (o *outage) goesOn() {
	o.t.Helper()
	at := time.Now()
	for _, h := range o.Hosts {
		before := skipped("skip", timer.ReasonStoreDown, h)
		o.until("a tick is skipped because of the store", func() bool {
			return skipped("skip", timer.ReasonStoreDown,
				h) > before
		})
		started := o.status(h, "skip").Started
		local := func(v *visit) bool { return v.host == h && v.Degraded() && v.began.After(at) }
		o.until("runs go on without the store", func() bool { return o.watch.runs("local", local) >= 5 })
		if n := o.status(h, "skip").Started - started; n > 0 {
			o.t.Errorf("%d runs of a timer that is to skip started without the store", n)
		}
		if n := o.watch.runs("local", func(v *visit) bool { return local(v) && v.valid }); n > 0 {
			o.t.Errorf("%d runs without the store were valid", n)
		}
		o.until("the host says that the store is away", func() bool {
			return h.Degraded() != nil &&
				!h.Status().Store.Up
		})
		if err := errors.Join(h.Ready(), h.Live()); err != nil {
			o.t.Errorf("a store that is down made the host unfit: %v", err)
		}
	}
}

// recovers checks that everything works again: runs with both policies get slots from the store,
// and every host reports that. If a grant's reply was lost, its slot may stay taken for a TTL.
func (o *outage) recovers() {
	o.t.Helper()
	at := time.Now()
	for _, name := range []string{"local", "skip"} {
		o.until(name+" runs with the store's leave", func() bool {
			return o.watch.runs(name, func(v *visit) bool { return v.valid && v.began.After(at) }) >= 5
		})
	}
	for _, h := range o.Hosts {
		o.until("the host says that the store is well", func() bool {
			return h.Status().Store.Up &&
				h.Degraded() == nil
		})
	}
	for _, h := range o.Hosts {
		if longest, slowest := h.Link.times(); longest > o.storeTimeout() || slowest > o.late(o.begun) {
			o.t.Errorf("a call was given %v, StoreTimeout %v; a call came back %v after its deadline", longest,
				o.storeTimeout(), slowest)
		}
	}
	o.watch.check(o.t)
}

// bounded fails the test if do takes longer than this many calls in sequence may take.
func (o *outage) bounded(what string, calls int, do func()) {
	o.t.Helper()
	began := time.Now()
	do()
	if took, most := time.Since(began), time.Duration(calls)*o.storeTimeout()+o.late(began); took > most {
		o.t.Errorf("%s took %v, want at most %v", what, took, most)
	}
}
