package timer

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
)

// At most one tick of a timer waits, the latest, whatever it waits for. An earlier tick that
// returns is refused. In a queue the later tick takes over the turn of the earlier one. Otherwise
// the later tick itself is tried.
//
// Fails when mayWait does not check for the latest tick, or when waiting.overtake takes a tick out
// of a queue, or ignores one that waits elsewhere.
func TestOnlyTheLatestTickWaits(t *testing.T) {
	s, err := New(Config{Store: memlock.New(), MaxRuns: 1, Logger: slog.New(slog.DiscardHandler)},
		Timer{Name: "a", Schedule: schedule.Every(time.Hour), OnFull: FullWait, Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	s.registry.setPhase(PhaseRunning)
	w, set := s.waiting, s.registry.get("a")
	for _, c := range []struct {
		on    waitsFor
		wait  func(tick) bool
		why   Reason // the reason of the overtaken tick
		waits bool   // whether the later tick waits instead
	}{
		{forTime, func(t tick) bool { return w.later(t, time.Minute) }, ReasonMissed, false},
		{forRun, func(t tick) bool { return w.refuse(t, ReasonFull, nil, false) }, ReasonFull, false},
		{forPlace, func(t tick) bool { return w.refuse(t, ReasonMaxRuns, nil, false) }, ReasonMaxRuns, true},
		{forCall, func(t tick) bool { _, why := w.call(t); return why == "" }, ReasonStoreBusy, true},
	} {
		w.inFlight = maxInFlight
		s.registry.places = 1 // otherwise the place is reserved immediately
		set.entry.ticks.set(2, time.Time{})
		if c.wait(tick{s: set, at: 1}) {
			t.Errorf("%d: an earlier tick waits", c.on)
		}
		if !c.wait(tick{s: set, at: 2}) || set.entry.pending == nil || set.entry.pending.on != c.on {
			t.Errorf("%d: the latest tick does not wait", c.on)
		}
		if c.wait(tick{s: set, at: 2}) {
			t.Errorf("%d: two wait", c.on)
		}
		set.entry.ticks.set(3, time.Time{})
		earlier, waits := w.overtake(tick{s: set, at: 3})
		if earlier == nil || earlier.at != 2 || earlier.why != c.why || waits != c.waits {
			t.Errorf("%d: overtook %+v, waits %v", c.on, earlier, waits)
		}
		left := w.close()
		if waits != (len(left) == 1 && left[0].at == 3) || set.entry.pending != nil {
			t.Errorf("%d: %d are left", c.on, len(left))
		}
	}
}

// A tick that begins to wait for a run to end while its timer is removed does not keep waiting.
// Either refuse sees that the timer was removed, or withdraw takes the tick out.
//
// Fails when waiting.refuse makes a tick wait without still holding the mutex with which it checked
// the timer.
func TestNoTickOfARemovedTimerWaits(t *testing.T) {
	s, err := New(Config{Store: memlock.New(), Logger: slog.New(slog.DiscardHandler)},
		Timer{Name: "a", Schedule: schedule.Every(time.Hour), OnFull: FullWait, Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	s.registry.setPhase(PhaseRunning)
	set := s.registry.get("a")
	set.entry.ticks.set(1, time.Time{})
	left := 0
	for range 200_000 {
		set.registration.removed.Store(false)
		var both sync.WaitGroup
		both.Go(func() { s.waiting.refuse(tick{s: set, at: 1}, ReasonFull, nil, false) })
		both.Go(func() {
			s.registry.mu.Lock()
			set.registration.removed.Store(true)
			s.registry.mu.Unlock()
			s.registry.mu.Lock()
			s.waiting.withdraw(set.entry)
			s.registry.mu.Unlock()
		})
		both.Wait()
		if set.entry.pending != nil {
			left++
			s.registry.mu.Lock()
			s.waiting.withdraw(set.entry)
			s.registry.mu.Unlock()
		}
	}
	if left > 0 {
		t.Errorf("%d times a tick of a removed timer kept waiting", left)
	}
}

// If a tick is tried before its time, its item does not remain in byTime until then, however many
// such ticks there are.
//
// Fails when waiting.at does not tidy byTime, or when takeOut does not count.
func TestTimesOfTicksThatWereTriedAreForgotten(t *testing.T) {
	s, err := New(Config{}, Timer{Name: "a", Schedule: schedule.Every(time.Hour), Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	s.registry.setPhase(PhaseRunning)
	w, set := s.waiting, s.registry.get("a")
	for n := range int64(10_000) {
		set.entry.ticks.set(n+1, time.Time{})
		w.later(tick{s: set, at: n + 1}, time.Hour)
		w.overtake(tick{s: set, at: n + 2})
	}
	if len(w.byTime) > 200 || w.timed != 0 {
		t.Errorf("%d items, %d ticks", len(w.byTime), w.timed)
	}
}

// If a place becomes free after a tick has found none and before the tick waits in line, the place
// is reserved for the tick. Otherwise no other run might ever free a place.
//
// Fails when waiting.refuse does not serve the line.
func TestPlaceThatIsFreedMeanwhileIsReserved(t *testing.T) {
	s, err := New(Config{MaxRuns: 1}, Timer{Name: "b", Run: nothing},
		Timer{Name: "a", Schedule: schedule.Every(time.Hour), Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	g := s.registry
	g.setPhase(PhaseRunning)
	a, b := g.get("a"), g.get("b")
	if why := g.enter(b, 1); why != "" {
		t.Fatal(why)
	}
	a.entry.ticks.set(1, time.Time{})
	why := g.enter(a, 1)
	g.leave(b)
	if why != ReasonMaxRuns || !s.waiting.refuse(tick{s: a, at: 1}, why, nil, false) {
		t.Fatalf("%q, and it does not wait", why)
	}
	list, _ := s.waiting.due(time.Now().UnixMicro()+1, 2)
	if len(list) != 1 || !list[0].turn || g.places != 1 {
		t.Errorf("%d ticks are due, %d places are taken or reserved", len(list), g.places)
	}
}

// A timer was registered again while a tick of the removed timer still waits for its turn. A tick
// of the new timer does not take that turn, because the place belongs to the removed timer, and
// Remove waits for it.
//
// Fails when waiting.overtake does not compare the registrations.
func TestNoTickTakesThePlaceOfARemovedTimer(t *testing.T) {
	s, err := New(Config{Store: memlock.New(), Logger: slog.New(slog.DiscardHandler)},
		Timer{Name: "a", MaxPerTick: 1, Schedule: schedule.Every(time.Hour), Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	g, w := s.registry, s.waiting
	g.setPhase(PhaseRunning)
	removed := g.get("a")
	removed.entry.ticks.set(1, time.Time{})
	w.inFlight = maxInFlight
	if why := g.enter(removed, 1); why != "" {
		t.Fatal(why)
	}
	if now, why := w.call(tick{s: removed, at: 1}); now || why != "" {
		t.Fatal(now, why)
	}
	g.remove("a")
	anew := newSettings(removed.timer, true)
	anew.entry = newEntry(removed.timer)
	if _, errs := g.add([]*settings{anew}, map[string]bool{"a": true}); len(errs) > 0 {
		t.Fatal(errs)
	}
	anew.entry.ticks.set(2, time.Time{})
	earlier, waits := w.overtake(tick{s: anew, at: 2})
	if earlier == nil || earlier.at != 1 || waits {
		t.Errorf("overtook %+v, waits %v", earlier, waits)
	}
	if removed.registration.places != 0 || anew.registration.places != 0 || g.places != 0 {
		t.Errorf("places of the removed timer: %d, of the new one: %d, of both: %d",
			removed.registration.places, anew.registration.places, g.places)
	}
}

// A tick that has waited until a given time is skipped if its catch-up window is over by then, or
// if its timer was removed while the scheduling goroutine had the tick.
//
// Fails when planner.recheck checks the window of only some ticks, or when the reason of the wait
// becomes the reason of the skip.
func TestTickThatHasWaitedIsCheckedAgain(t *testing.T) {
	s, err := New(Config{}, Timer{Name: "a", Schedule: schedule.Every(time.Hour), Run: nothing,
		CatchUp: CatchUp{Policy: CatchUpOnce, Window: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	s.registry.setPhase(PhaseRunning)
	set := s.registry.get("a")
	set.entry.ticks.set(1, time.Time{})
	waited := func(missed time.Duration) dueTick {
		a := dueTick{item: item{e: set.entry}, pending: pending{on: forTime, why: ReasonMissed,
			tick: tick{s: set, at: 1, missedAt: time.Now().Add(-missed).UnixMicro()}}}
		s.planner.recheck(&a)
		return a
	}
	if a := waited(30 * time.Second); a.over || a.skip != "" {
		t.Errorf("within the window: over %v, skip %q", a.over, a.skip)
	}
	if a := waited(2 * time.Minute); a.over || a.skip != ReasonMissed {
		t.Errorf("after the window: over %v, skip %q", a.over, a.skip)
	}
	s.registry.mu.Lock()
	s.registry.remove("a")
	s.registry.mu.Unlock()
	if a := waited(30 * time.Second); !a.over || a.why != ReasonDraining {
		t.Errorf("removed: over %v, why %q", a.over, a.why)
	}
}

// A tick that replaces an earlier one in line may itself wait for MaxWait.
//
// Fails when waiting.overtake does not restart the wait.
func TestTickInLineWaitsForAsLongAsOthers(t *testing.T) {
	s, err := New(Config{MaxRuns: 1, MaxWait: time.Hour}, Timer{Name: "b", Run: nothing},
		Timer{Name: "a", Schedule: schedule.Every(time.Hour), Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	g, w := s.registry, s.waiting
	g.setPhase(PhaseRunning)
	a := g.get("a")
	if why := g.enter(g.get("b"), 1); why != "" {
		t.Fatal(why)
	}
	a.entry.ticks.set(1, time.Time{})
	began := time.Now()
	if !w.refuse(tick{s: a, at: 1, waitsSince: began.Add(-59 * time.Minute)}, ReasonMaxRuns, nil, false) {
		t.Fatal("it does not wait")
	}
	a.entry.ticks.set(2, time.Time{})
	if _, waits := w.overtake(tick{s: a, at: 2}); !waits {
		t.Fatal("the later tick does not wait")
	}
	if p := a.entry.pending; p.at != 2 || p.until < began.Add(time.Hour).UnixMicro() || p.waitedTooLong(time.Hour/2) {
		t.Errorf("tick %d waits since %v, until %v", p.at, p.waitsSince, time.UnixMicro(p.until))
	}
	if list, _ := w.due(began.Add(30*time.Minute).UnixMicro(), 2); len(list) > 0 {
		t.Errorf("tick %d is tried when the wait of the earlier one is over", list[0].at)
	}
}

// A tick that was taken out to be tried, and was not tried because the host drains, is not put
// back, because nothing would take it out again.
//
// Fails when putBack does not check whether the tick may wait, or loses a tick that may not.
func TestNoTickIsPutBackAfterTheLastWaits(t *testing.T) {
	s, err := New(Config{}, Timer{Name: "a", Schedule: schedule.Every(time.Hour), Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	w, set := s.waiting, s.registry.get("a")
	s.registry.setPhase(PhaseRunning)
	set.entry.ticks.set(1, time.Time{})
	if !w.later(tick{s: set, at: 1}, 0) {
		t.Fatal("it does not wait")
	}
	list, _ := w.due(time.Now().UnixMicro()+1, 2)
	if len(list) != 1 {
		t.Fatal(len(list))
	}
	if !w.putBack(*list[0]) || set.entry.pending == nil {
		t.Error("it is not put back while the host runs")
	}
	list, _ = w.due(time.Now().UnixMicro()+1, 2)
	s.registry.setPhase(PhaseDraining)
	w.close()
	s.planner.putBack([]dueTick{{item: item{e: set.entry}, pending: *list[0]}})
	if skipped := s.Status().Timers[0].Skipped; set.entry.pending != nil || skipped[ReasonDraining] != 1 {
		t.Errorf("it waits: %v; skipped: %v", set.entry.pending != nil, skipped)
	}
}

// If a place is reserved for a tick in line, and the timer is removed or updated before the tick is
// tried, the place becomes free again.
//
// Fails when waiting.release does not give up the turn.
func TestTurnOfAWithdrawnTickIsGivenUp(t *testing.T) {
	for _, remove := range []bool{true, false} {
		s, err := New(Config{MaxRuns: 1}, Timer{Name: "b", Run: nothing},
			Timer{Name: "a", Schedule: schedule.Every(time.Hour), Run: nothing})
		if err != nil {
			t.Fatal(err)
		}
		g, w := s.registry, s.waiting
		g.setPhase(PhaseRunning)
		a, b := g.get("a"), g.get("b")
		if why := g.enter(b, 1); why != "" {
			t.Fatal(why)
		}
		a.entry.ticks.set(1, time.Time{})
		if !w.refuse(tick{s: a, at: 1}, ReasonMaxRuns, nil, false) {
			t.Fatal("it does not wait")
		}
		g.leave(b)
		if p := a.entry.pending; !p.turn || g.places != 1 {
			t.Fatalf("turn %v, places %d", p.turn, g.places)
		}
		if remove {
			g.remove("a")
		} else {
			updated := *a
			a.entry.settings.Store(&updated)
		}
		left := w.withdraw(a.entry)
		if (left != nil) != remove {
			t.Errorf("removed: %v: withdrawn: %+v", remove, left)
		}
		if left != nil {
			w.leave(left)
		}
		if g.places != 0 || len(g.reserved) > 0 || g.active.n != 0 {
			t.Errorf("removed: %v: places %d, reserved %d, active %d", remove, g.places, len(g.reserved), g.active.n)
		}
	}
}

// An earlier tick waits for a run to end. A later tick is due, and the scheduling goroutine is
// about to try it when Update changes a setting other than the schedule. The later tick is tried.
//
// Fails when the waiting tick prevents the later tick, whose settings are not current, from
// waiting.
func TestUpdateLosesNoTickThatOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := Timer{Name: "a", Schedule: schedule.Every(time.Hour), MaxConcurrency: 1, OnFull: FullWait, Run: nothing}
		s, err := New(Config{Logger: slog.New(slog.DiscardHandler)}, job)
		if err != nil {
			t.Fatal(err)
		}
		s.registry.begin(func() { s.runner.base = t.Context() })
		p, old := s.planner, s.registry.get("a")
		s.registry.mu.Lock()
		p.setStarted()
		s.registry.mu.Unlock()
		p.begin(s.registry.registered())
		next := func() int64 { at, _ := old.entry.ticks.read(); return at }
		s.registry.enter(old, 1) // a run is in progress
		time.Sleep(time.Until(time.UnixMicro(next())))
		p.runDue(nil)
		if w := old.entry.pending; w == nil || w.on != forRun {
			t.Fatalf("the first tick does not wait: %+v", w)
		}
		time.Sleep(time.Until(time.UnixMicro(next())))
		// The test does what dispatch does with the second tick, up to the gate.
		a := dueTick{item: item{e: old.entry, when: next()}, pending: pending{tick: tick{s: old, at: next()}}}
		p.ask(&a, p.now())
		p.registry.mu.Lock()
		due := p.planNext(&a)
		p.registry.mu.Unlock()
		job.AlarmAfter = 7
		if err := s.Update(job); err != nil || !due {
			t.Fatal(err, due)
		}
		s.registry.leave(old)
		p.gate.handle([]dueTick{a})
		for range 3 {
			p.runDue(nil)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if st := s.Status().Timers[0]; st.Ticks != 2 || st.Started != 1 {
			t.Errorf("%d ticks, %d started, skipped %v", st.Ticks, st.Started, st.Skipped)
		}
	})
}

// When the breaker has opened, the end of a call makes all ticks in the queue follow OnStoreDown,
// even if Triggers, which do call the store, also wait there.
//
// Fails when acquirer.next stops at the turn of a Trigger.
func TestTicksInQueueFollowOnStoreDownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers []Timer
		for i := range 20 {
			timers = append(timers, Timer{Name: fmt.Sprint("a", i), Schedule: schedule.Every(time.Hour), MaxPerTick: 1,
				MaxConcurrency: 2, MaxPerHost: 2, OnStoreDown: StoreDownSkip, Run: nothing})
		}
		s, err := New(Config{Store: memlock.New(), Logger: slog.New(slog.DiscardHandler)}, timers...)
		if err != nil {
			t.Fatal(err)
		}
		s.registry.begin(func() { s.runner.base = t.Context() })
		w := s.waiting
		w.inFlight = maxInFlight
		for i := range 20 {
			set := s.registry.get(fmt.Sprint("a", i))
			s.gate.try(due(set, 1))
		}
		go s.waiting.awaitCall(t.Context(), s.registry.get("a0"))
		synctest.Wait()
		for range 3 {
			s.store.saw(s.store.resultOf(s.registry.get("a0").entry.lockName, errors.New("down"), false))
		}
		s.acquirer.next()
		if w.callQueue.n > 0 {
			t.Errorf("%d ticks still wait for a call", w.callQueue.n)
		}
		synctest.Wait()
	})
}
