//go:build unix

package timertest

import (
	"context"
	"crypto/rand"
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/timer"
)

const (
	// StoppedTTL is the length of the leases of Stopped.
	StoppedTTL    = 3 * time.Second
	stoppedPeriod = 100 * time.Millisecond
)

// A StoppedHarness tells Stopped how to reach a store from two processes.
type StoppedHarness struct {
	// New returns a new, empty namespace, and a command that calls Child with a client for it.
	New func(t testing.TB) (Store, *exec.Cmd)

	// Embedded says that hosts exclude each other with a lock that a paused host keeps. If the
	// child was paused while it held the lock, it is resumed for a moment and paused again.
	Embedded bool
}

// Stopped shows that overrides reach every host, even if one of them, in another process, is paused
// (SIGSTOP) meanwhile. The other host obeys at once, the paused one when it resumes. Limits, fences
// and counts are exact; durations are only logged.
//
// Fails when the store's acquire ignores a pause (then the child starts a run when it resumes) or a
// limit override, or counts only the slots below the limit; when its extend renews a revoked lease,
// or does not report overrides; when a revoked slot is free at once; when a release does not
// compare tokens; when two hosts run one trigger; and when a paused host trusts its expired lease.
func Stopped(t *testing.T, h StoppedHarness) {
	testkit.SkipShort(t)
	s := &suite{Harness: Harness{TTL: StoppedTTL, Period: stoppedPeriod}, late: testkit.MeasureLateness(t, minStall)}
	for name, outlived := range map[string]bool{"its leases survive": false, "its leases end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := *s
			var cmd *exec.Cmd
			one.New = func(t testing.TB) (store Store) {
				store, cmd = h.New(t)
				return store
			}
			for range 3 { // on a very busy machine, not every change may be made in time
				f := one.fleet(t)
				st := &standstill{realFleet: f, embedded: h.Embedded, outlived: outlived, child: newChild(t, cmd),
					took: map[string]time.Duration{}}
				if st.show(t) {
					return
				}
			}
			t.Error("the machine was too busy three times: nothing was shown")
		})
	}
}

// A standstill is one fleet of two hosts, one of which is paused for a while.
type standstill struct {
	*realFleet
	embedded bool
	outlived bool // it is paused for longer than its leases
	child    *child
	here     *host // the host in this process, which is not paused
	events   book  // its events

	stoppedAt, resumedAt time.Time
	took                 map[string]time.Duration
}

// show reports whether the intended situation occurred.
func (s *standstill) show(t *testing.T) (shown bool) {
	defer func() {
		if t.Failed() && s.here != nil { // a timeout says only what did not happen
			st := say(s.here.Scheduler, s.here.Link)
			state, err := s.operator().Inspect(context.Background(), manual)
			t.Logf("here: pause %v, limit %v; since the child was stopped %d calls failed, and this process stood "+
				"still for %v; the trigger is %+v, the last tick %v (%v); %v", st.Paused, st.Limit,
				s.here.Link.failed(s.stoppedAt), s.suite.late.Since(s.stoppedAt), state.Trigger, state.LastTick, err,
				s.took)
		}
	}()
	let, open := s.gate()
	keep, giveUp := s.gate()
	s.here = s.start(timer.Config{}, members(stoppedPeriod, let, keep, s.events.add)...)
	for name, b := range s.hosts() {
		s.until(name+" runs at every tick", func() bool { return b.count(began, often) >= 3 })
	}
	s.until("the host in this process has the second slot", func() bool { return s.kept() != nil })
	held := s.holds()
	beat, ok := s.stop(held)
	if !ok {
		s.child.signal(syscall.SIGKILL)
		return false
	}

	// These changes are made while it is paused.
	op := s.operator()
	before := time.Now()
	op.does("a pause", func(ctx context.Context) error { return op.Pause(ctx, often, time.Now().Add(time.Hour), ann) })
	pausedAt := time.Now()
	paused := s.stamp()
	op.does("a limit", func(ctx context.Context) error { return op.SetMaxConcurrency(ctx, wide, 1, ann) })
	limitedAt := time.Now()
	limited := s.stamp()
	op.does("the release", func(ctx context.Context) error {
		err := op.CancelSlot(ctx, endless, held.Slot, ann)
		if errors.Is(err, timer.ErrNoRun) && time.Since(beat) >= StoppedTTL { // the machine was busy for too long
			return nil
		}
		return err
	})
	triggered, most := op.triggers(manual)
	s.took["all changed"] = time.Since(before)

	look := func() bool {
		st := say(s.here.Scheduler, s.here.Link)
		s.note("here: pause known", pausedAt, st.Paused != nil && *st.Paused == ann)
		s.note("here: limit known", limitedAt, st.Limit == 1)
		s.note("trigger obeyed", triggered, s.events.count(began, manual)+s.child.count(began, manual) > 0)
		return s.took["here: pause known"]*s.took["here: limit known"]*s.took["trigger obeyed"] != 0
	}
	var next *visit
	if s.outlived {
		s.until("the host that is not stopped obeys", look)
		next = s.takesOver(beat)
	}
	least := StoppedTTL/3 + StoppedTTL/15 // longer than a beat
	if s.outlived {
		least = StoppedTTL + StoppedTTL/15
	}
	s.until("it stood still for long enough", func() bool { look(); return time.Since(s.stoppedAt) > least })
	failures := s.child.failures()
	s.resume()

	s.until("its run is told", func() bool { look(); return s.child.count(lost, endless) == 1 })
	shown = s.judge(s.child.first(lost, endless), beat)
	s.until("the host that is not stopped obeys", look)
	s.until("the child knows the overrides", func() bool {
		x := s.child.asks()
		return x.Said.Limit == 1 && x.Said.Paused != nil && *x.Said.Paused == ann
	})
	s.took["child: pause and limit known"] = s.child.last(status, "").At.Sub(s.resumedAt)
	s.until("the child has heard of the trigger", func() bool { return s.child.count(looked, manual) > 0 })
	s.took["child: trigger heard of"] = s.child.first(looked, manual).At.Sub(s.resumedAt)

	if next == nil {
		next = s.takesOver(beat)
	}
	s.child.tells("return")
	s.until("the child gives its slot back", func() bool { return s.child.count(released, endless) > 0 })
	if e := s.child.first(released, endless); e.Cause == driver.GrantOK.String() || e.Fence != held.Fence {
		t.Errorf("its late release of fence %d: %s; fence %d has the slot", e.Fence, e.Cause, next.Fence())
	}
	if err := s.asks(endless); next.Valid() && !refusedAs(err, dlock.ReasonFull) {
		t.Errorf("while the next holder runs: %v, want full", err)
	}
	s.until("the next holder's beat", s.here.Link.beat())
	if !next.Valid() && !s.strained(s.here, s.resumedAt) {
		t.Errorf("the next holder's run has ended: %v", context.Cause(next.ctx))
	}

	// It has opportunities to run.
	skipped := s.child.asks().Said.Skipped
	s.until("the child asks during the pause", func() bool {
		return s.child.asks().Said.Skipped >= skipped+3 || len(after(s.runs(often), paused)) > 0
	})
	s.until("the first slot is free", func() bool {
		return s.going(wide) <= 1 || len(after(s.runs(wide), limited)) > 0
	})
	free := time.Now()
	// The other host has its one run and need not ask.
	s.until("the child asks while the second slot is held", func() bool {
		return s.child.asks().Said.Full.After(free) || s.kept() == nil || len(after(s.runs(wide), limited)) > 0
	})
	if n := len(after(s.runs(wide), limited)); n > 0 && s.kept() != nil {
		t.Errorf("%d runs were granted beside the one that the limit allows, which was granted before", n)
	}
	giveUp()
	s.until("it goes on with the limit", func() bool { return len(after(s.runs(wide), limited)) >= 5 })
	for name, b := range s.hosts() {
		if list := after(b.runs(often), paused); len(list) != 0 {
			t.Errorf("%s began %d runs that were granted during the pause, from µs %d on, the first with fence %d",
				name, len(list), paused, list[0].fence)
		}
	}

	resumed := s.stampOf(func() {
		op.does("to resume", func(ctx context.Context) error { return op.Resume(ctx, often, ann) })
	})
	at := time.Now()
	for name, b := range s.hosts() {
		s.until(name+" runs again", func() bool { return len(after(b.runs(often), resumed)) > 0 })
	}
	s.took["both run again"] = time.Since(at)

	strain := s.child.asks().Said.Failed - failures
	open()
	s.child.ends()
	s.realFleet.stop()
	if n := s.events.count(began, manual) + s.child.count(began, manual); n < 1 || n > most {
		t.Errorf("%d runs after %d triggers", n, most)
	}
	if n := together(s.runs(wide), limited); n > 1 {
		t.Errorf("%d runs at once, one of which was granted after the limit of 1 was set, at µs %d", n, limited)
	}
	for _, e := range s.child.all(failed, "") {
		t.Errorf("the child could not: %+v", e)
	}
	s.inTime(strain)
	return shown
}

// kept returns the run that the host in this process has in the second slot of wide, or nil if it
// has none or lost it.
func (s *standstill) kept() *visit {
	if v := s.watch.latest(wide, 1); v != nil && v.Valid() {
		return v
	}
	return nil
}

// going returns the number of current runs of a timer.
func (s *standstill) going(name string) (n int) {
	for _, b := range s.hosts() {
		n += b.count(began, name) - b.count(returned, name)
	}
	return n
}

// hosts returns the reports of both hosts.
func (s *standstill) hosts() map[string]*book {
	return map[string]*book{"the child": &s.child.book, "the host in this process": &s.events}
}

// holds makes the child start a long run, and returns the run's start. On a busy machine, an
// attempt can fail.
func (s *standstill) holds() event {
	s.t.Helper()
	for asked, told := time.Now(), 0; time.Since(asked) < patience; told++ {
		s.child.tells("run")
		s.until("the child holds a slot", func() bool {
			return s.child.count(began, endless)+s.child.count(failed, endless) > told
		})
		if s.child.count(began, endless) > 0 {
			s.child.forget(failed)
			return s.child.first(began, endless)
		}
	}
	s.t.Fatalf("no run of the child began within %v: %s", patience, s.child.last(failed, endless).Cause)
	return event{}
}

// stop pauses the child after a beat, so that its leases are fresh, and returns when the beat was
// sent. It returns false if the child lost its run to a busy machine first.
func (s *standstill) stop(held event) (beat time.Time, ok bool) {
	s.t.Helper()
	for again := range 20 {
		asked := s.child.asks().At
		s.until("a beat", func() bool {
			return s.child.last(beaten, endless).At.After(asked) || s.child.count(lost, endless) > 0
		})
		if s.child.count(lost, endless) > 0 {
			if again == 0 && !s.strained(s.here, held.At) && s.child.asks().Said.Failed == 0 {
				s.t.Fatalf("the run of fence %d was lost before anything was changed", held.Fence)
			}
			return time.Time{}, false
		}
		s.child.signal(syscall.SIGSTOP)
		s.stoppedAt = time.Now()
		if !s.embedded || s.free() {
			if again > 0 {
				s.t.Logf("stopped with the lock that keeps the others out before that: %d", again)
			}
			return s.child.last(beaten, endless).At, true
		}
		s.child.signal(syscall.SIGCONT)
	}
	s.t.Fatal("each time the child was stopped it kept the others out")
	return time.Time{}, false
}

func (s *standstill) resume() {
	s.resumedAt = time.Now()
	s.child.signal(syscall.SIGCONT)
}

// free reports whether the store answers.
func (s *standstill) free() bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), StoppedTTL/6)
	defer cancel()
	g, err := s.taker.TryAcquire(ctx, driver.Request{Name: "timertest:free", Slots: 1, Token: rand.Text(),
		TTL: time.Second})
	if err == nil {
		_, err = s.taker.Release(ctx, g)
	}
	return err == nil
}

// takesOver makes the host in this process run the child's trigger as soon as the store allows it,
// which is not before the child's lease has ended.
func (s *standstill) takesOver(beat time.Time) *visit {
	s.t.Helper()
	s.trigger(s.here, endless)
	s.until("the next holder runs", func() bool { return s.watch.on(s.here, endless) != nil })
	next := s.watch.on(s.here, endless)
	if early := StoppedTTL - next.began.Sub(beat); early > 0 {
		s.t.Errorf("the slot was granted %v before the lease of the one who did not give it back had ended", early)
	}
	return next
}

// judge checks how the child learned that it lost its run. It returns false if the child had to
// lose it because it was paused for too long.
func (s *standstill) judge(e event, beat time.Time) bool {
	s.t.Helper()
	s.took["child: its run told"] = e.At.Sub(s.resumedAt)
	if e.Valid {
		s.t.Error("its run was valid after it was told")
	}
	window := StoppedTTL - StoppedTTL/10 // how long a lease is trusted
	switch {
	case e.By != nil && *e.By != ann:
		s.t.Errorf("it was told: %s, want %v", e.Cause, ann)
	case e.By == nil && !s.outlived && e.At.Sub(beat) < window:
		s.t.Errorf("it was told: %s, want who did it", e.Cause)
	case e.By == nil && !s.outlived:
		s.t.Logf("it did not ask before its lease could no longer be trusted: %s", e.Cause)
		return false
	}
	return true
}

// stamp returns the store's time in µs. The fences of all later grants exceed it.
func (s *standstill) stamp() dlock.Fence {
	return max(s.take("timertest:stamp", 1, 1)[0], dlock.Fence(time.Now().UnixMicro()))
}

// stampOf returns a stamp from before an update. The fences of all grants after the update exceed
// it.
func (s *standstill) stampOf(update func()) dlock.Fence {
	stamp := s.stamp()
	update()
	return stamp
}

// asks requests a slot of a timer from the store, and returns the answer.
func (s *standstill) asks(name string) (err error) {
	req := driver.Request{Name: "timer:" + name, Slots: 1, Token: rand.Text(), TTL: StoppedTTL}
	s.until("the store answers", func() bool {
		_, err = call(s.t, func(ctx context.Context) (driver.Grant, error) {
			return s.taker.TryAcquire(ctx, req)
		})
		return err == nil || errors.Is(err, dlock.ErrNotAcquired)
	})
	return err
}

func refusedAs(err error, reason dlock.Reason) bool {
	no, ok := errors.AsType[*dlock.NotAcquiredError](err)
	return ok && no.Reason == reason
}

// note records how long something took.
func (s *standstill) note(what string, since time.Time, is bool) {
	if _, known := s.took[what]; is && !known {
		s.took[what] = time.Since(since)
	}
}

// inTime checks the recorded durations. A host with failed calls is excused, including a child that
// was paused during a call.
func (s *standstill) inTime(strain int) {
	s.t.Helper()
	for what, d := range s.took {
		s.took[what] = d.Round(time.Millisecond / 10)
	}
	s.t.Logf("stopped for %v; %d calls of the child failed; its run was told %q; %v",
		s.resumedAt.Sub(s.stoppedAt).Round(time.Millisecond), strain, s.child.first(lost, endless).Cause, s.took)
	late := s.late(s.stoppedAt)
	strained := s.strained(s.here, s.stoppedAt) || strain > 0
	for what, bound := range map[string]time.Duration{
		"here: pause known": stoppedPeriod + s.storeTimeout(), "here: limit known": stoppedPeriod + s.storeTimeout() +
			remembered,
		"trigger obeyed": s.hears(), "child: its run told": s.hears(), "child: pause and limit known": s.hears(),
		"child: trigger heard of": s.hears(),
	} {
		if took := s.took[what]; took > bound+late && !strained {
			s.t.Errorf("%s: after %v, want %v", what, took, bound)
		}
	}
}

// remembered is how long a host waits before it asks again after it found all slots held.
const remembered = time.Second

// runs returns the runs of both hosts.
func (s *standstill) runs(name string) []span {
	return append(s.events.runs(name), s.child.runs(name)...)
}
