package timertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// cuts are ways in which one host can lose the store.
var cuts = map[string]dlocktest.Fault{
	"calls hang": dlocktest.Hang,
	"calls fail": dlocktest.Error(errors.New("connection refused")),
}

// The policy is StoreDownSkip. The handler of the next run in the slot examines the previous run.
// That run's Valid must be false without any grace. Its context must also have ended, or, if this
// process was stalled, end within a second of resuming.
//
// Fails when lost cancels nothing, and when the trust window is longer than the lease (trust
// returns 2*ttl).
func loss(s *suite, t *testing.T) {
	testkit.SkipShort(t)
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := s.fleet(t)
			work := timer.Timer{Name: "a", Schedule: schedule.Every(s.Period), OnStoreDown: timer.StoreDownSkip,
				Run: hold(nil)}
			victim := f.start(timer.Config{}, work)
			f.until("the first host runs", func() bool { return f.watch.now("a") != nil })
			first := f.watch.now("a")

			type sight struct {
				slot         int
				valid, ended bool
			}
			seen := make(chan sight, 1)
			work.Run = func(ctx context.Context) error {
				r, _ := timer.RunFromContext(ctx)
				select {
				case seen <- sight{r.Slot(), first.Valid(), first.ctx.Err() != nil}:
				default:
				}
				return nil
			}
			f.start(timer.Config{}, work)
			at := time.Now()
			victim.Link.Inject(cut)
			got := receive(t, "the slot is granted to the other host", seen)
			if got.slot != first.Slot() {
				t.Errorf("slot %d, want that of the host which is cut off, %d", got.slot, first.Slot())
			}
			if got.valid {
				t.Error("the run was valid when the next had its slot")
			}
			if !got.ended {
				stood := s.late.Since(at)
				if stood == 0 {
					t.Error("the run's context had not ended when the next had its slot")
				}
				select {
				case <-first.ctx.Done():
				case <-time.After(time.Second + stood):
					t.Errorf("the run's context has not ended though this process stood still for no more than %v",
						stood)
				}
			}
			if cause := context.Cause(first.ctx); !errors.Is(cause, dlock.ErrLost) {
				t.Errorf("cause %v, want one that matches dlock.ErrLost", cause)
			}
			f.until("the run is over", func() bool { return f.status(victim, "a").Last != nil })
			if last := f.status(victim, "a").Last; last.Outcome != timer.OutcomeLeaseLost {
				t.Errorf("outcome %s, want lease_lost", last.Outcome)
			}
			victim.Link.Heal()
			f.stop()
		})
	}
}

// A killed host sends nothing any more, and its leases began before the answer to their last
// renewal. A request a TTL later must not be refused because all slots are held, and gets them
// soon. (If calls failed on a busy machine, the other host may have got a slot without knowing.)
// MaxRunTime does not matter.
//
// Fails when the lease is as long as MaxRunTime, and when the store keeps it for two TTLs or ends
// it early.
func killed(s *suite, t *testing.T) {
	testkit.SkipShort(t)
	f := s.fleet(t)
	gate, open := f.gate()
	work := timer.Timer{Name: "a", Schedule: schedule.Every(s.Period), MaxConcurrency: 2,
		MaxPerTick: 2, MaxRunTime: 3 * time.Hour,
		OnStoreDown: timer.StoreDownSkip, Run: hold(gate)}
	victim := f.start(timer.Config{}, work)
	f.until("the first host has both slots", func() bool { return f.watch.runs("a", all) == 2 })
	f.until("a heartbeat", victim.Link.beat())
	at := time.Now()
	victim.Link.Inject(dlocktest.Hang) // also blocks the release
	other := f.start(timer.Config{}, work)
	f.until("both slots come back", func() bool {
		return f.watch.latest("a", 0).host == other &&
			f.watch.latest("a", 1).host == other
	})
	var ends time.Time // the latest instant at which they can have ended
	for slot := range 2 {
		renewed, granted := victim.Link.last("timer:a", slot), f.watch.latest("a", slot).began
		if took := granted.Sub(renewed.answered); took > s.TTL+s.TTL/2 && !f.strained(other, at) {
			t.Errorf("slot %d was granted %v after its last renewal, TTL %v", slot, took, s.TTL)
		}
		if took := granted.Sub(renewed.sent); took < s.TTL {
			t.Errorf("slot %d was granted %v after its last renewal, before the TTL of %v was over", slot, took, s.TTL)
		}
		if end := renewed.answered.Add(s.TTL); end.After(ends) {
			ends = end
		}
	}
	if refused := other.Link.lastFull("timer:a"); refused.After(ends.Add(s.TTL/20)) && other.Link.failed(at) == 0 {
		t.Errorf("all slots were said to be held %v after the last of their leases had ended", refused.Sub(ends))
	}
	victim.Link.Heal()
	open()
	f.stop()
}
