package timer_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// beforeColon is the TimerLabel of these tests. It returns "report" for "report:tenant-7".
func beforeColon(name string) string {
	label, _, _ := strings.Cut(name, ":")
	return label
}

// Timers with one label have one set of series. Its counters and gauges are sums, and its last
// success is the oldest of their last successes. While one of the timers is left, no counter
// decreases when another is added or removed. Prometheus would take a decrease for a reset and
// report the whole value as an increase.
//
// Fails when a tally is dropped with the first of its timers, or remains after the last, when a
// later success wins, or when look omits one of the sums.
func TestTimersThatShareALabel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := newRegistry()
		f := newFleet(t)
		tenant := func(i int) timer.Timer {
			return timer.Timer{Name: fmt.Sprintf("report:tenant-%d", i), Schedule: schedule.Every(time.Minute),
				MaxConcurrency: 2, MaxPerTick: 2, Run: f.handler(time.Second)}
		}
		h := f.start(timer.Config{Registerer: reg, TimerLabel: beforeColon}, tenant(0), tenant(1), tenant(2),
			timer.Timer{Name: "invoice", Schedule: schedule.Every(time.Minute), Run: f.handler(0)})
		time.Sleep(10*time.Minute + 30*time.Second)
		started := func() (n float64) {
			for _, st := range h.Status().Timers {
				if strings.HasPrefix(st.Name, "report:") {
					n += float64(st.Started)
				}
			}
			return n
		}
		got := values(t, reg)
		if n := got["tickslot_ticks_total started report"]; n != started() || n < 30 ||
			n != got["tickslot_tick_lag_seconds report"] || got["tickslot_slots_limit report"] != 6 {
			t.Errorf("%v ticks of which %v have a lag, %v in Status; %v slots", n,
				got["tickslot_tick_lag_seconds report"], started(), got["tickslot_slots_limit report"])
		}
		for key := range got {
			if strings.Contains(key, "tenant") {
				t.Errorf("%s has the name of a timer", key)
			}
		}
		trigger(t, h, "report:tenant-0", "report:tenant-1", "report:tenant-2")
		got = values(t, reg)
		if got["tickslot_runs_active report"] != 3 || got["tickslot_slots_held report"] != 3 {
			t.Errorf("%v runs, %v slots", got["tickslot_runs_active report"], got["tickslot_slots_held report"])
		}
		if err := h.Control().Pause(t.Context(), "report:tenant-1", time.Now().Add(time.Hour), ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		oldest, _ := h.Status().Timer("report:tenant-1")
		got = values(t, reg)
		if at := got["tickslot_last_success_timestamp_seconds report"]; got["tickslot_paused report"] != 1 ||
			at-float64(oldest.LastSuccessAt.Unix()) > 1 {
			t.Errorf("%v are paused; the oldest success was %v, want %v", got["tickslot_paused report"], at,
				oldest.LastSuccessAt.Unix())
		}
		before := got["tickslot_runs_total ok report"]
		if err := h.Remove(t.Context(), "report:tenant-0"); err != nil {
			t.Fatal(err)
		}
		if n := values(t, reg)["tickslot_runs_total ok report"]; n < before || before == 0 {
			t.Errorf("after Remove %v runs are left of %v", n, before)
		}
		if err := h.Register(tenant(7)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"report:tenant-1", "report:tenant-2", "report:tenant-7"} {
			if n := values(t, reg)["tickslot_runs_total ok report"]; n < before {
				t.Errorf("%v runs are left of %v", n, before)
			}
			if err := h.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		for key := range values(t, reg) {
			if strings.HasSuffix(key, " report") {
				t.Errorf("%s is left, although no timer is", key)
			}
		}
		if err := h.Register(tenant(0)); err != nil {
			t.Fatal(err)
		}
		if n, there := values(t, reg)["tickslot_runs_total ok report"]; !there || n != 0 {
			t.Errorf("the first timer of a label begins with %v runs", n)
		}
		f.Stop()
	})
}

// A timer that takes the name of a removed timer, whose run is in progress, shares its label. The
// label is dropped when both have ended.
//
// Fails when registry.add counts a timer with an entry twice, or when registry.leave does not
// subtract one.
func TestLabelOfATimerThatIsRegisteredAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := newRegistry()
		f := newFleet(t)
		a := timer.Timer{Name: "a", MaxConcurrency: 3, Run: f.handler(time.Minute)}
		h := f.start(timer.Config{Registerer: keeping{reg}, TimerLabel: beforeColon}, a)
		trigger(t, h, "a")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			_ = h.Remove(gone, "a") // gone has ended, so Remove does not wait for the run
			if err := h.Register(a); err != nil {
				t.Fatal(err)
			}
			trigger(t, h, "a")
		}
		_ = h.Remove(gone, "a")
		if got := values(t, reg); got["tickslot_runs_active a"] != 3 || got["tickslot_triggers_total started a"] != 3 {
			t.Errorf("%v runs are active, %v were triggered", got["tickslot_runs_active a"],
				got["tickslot_triggers_total started a"])
		}
		time.Sleep(2 * time.Minute)
		for key := range values(t, reg) {
			if strings.HasSuffix(key, " a") {
				t.Errorf("%s is left", key)
			}
		}
		if err := h.Register(a); err != nil {
			t.Fatal(err)
		}
		if n, there := values(t, reg)["tickslot_runs_total ok a"]; !there || n != 0 {
			t.Errorf("it begins with %v runs", n)
		}
		f.Stop()
	})
}

// If TimerLabel panics, exits its goroutine or returns an unusable text, the timer still runs. Its
// label is then "other", and the log says so. A TimerLabel that calls the Scheduler, or returns
// another label each time, does no harm either: a timer keeps the label of its registration.
//
// Fails when callLabel does not recover, when labeler.label accepts one of these texts, or when
// TimerLabel is called while holding a mutex or for each scrape.
func TestTimerLabelThatIsFaulty(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := newRegistry()
		var log testkit.Log
		f := newFleet(t)
		var h *host
		calls := 0
		label := func(name string) string {
			calls++
			switch name {
			case "panics":
				panic("no tenant")
			case "empty":
				return ""
			case "long":
				return strings.Repeat("a", timer.MaxNameLen+1)
			case "bytes":
				return "\xff\xfe"
			case "control":
				return "a\n\"b\\"
			case "calls":
				h.Status()
				scrape(t, reg)
				if err := h.Register(timer.Timer{Name: "inner", Run: f.handler(0)}); err != nil {
					t.Error(err)
				}
			case "exits":
				runtime.Goexit()
			}
			return fmt.Sprintf("label-%d", calls)
		}
		h = f.start(timer.Config{Registerer: reg, TimerLabel: label, Logger: textLogger(&log)},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), Run: f.handler(0)})
		for _, name := range []string{"panics", "empty", "long", "bytes", "control", "calls"} {
			if err := h.Register(timer.Timer{Name: name, Schedule: schedule.Every(time.Minute),
				Run: f.handler(0)}); err != nil {
				t.Error(err)
			}
		}
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = h.Register(timer.Timer{Name: "exits", Run: f.handler(0)})
			t.Error("Register has returned")
		}()
		<-exited
		time.Sleep(10 * time.Minute)
		for range 5 {
			scrape(t, reg)
		}
		if calls != 9 { // includes the call for "inner"
			t.Errorf("it was called %d times", calls)
		}
		got := values(t, reg)
		if n := got["tickslot_slots_limit other"]; n != 4 || got["tickslot_runs_total ok label-1"] < 10 ||
			got["tickslot_slots_limit a\n\"b\\"] != 1 {
			t.Errorf("%v timers are labeled other: %v", n, got)
		}
		for _, name := range []string{"panics", "empty", "long", "bytes", "control", "calls"} {
			if st, _ := h.Status().Timer(name); st.Started < 9 {
				t.Errorf("%s has started %d times", name, st.Started)
			}
		}
		f.Stop()
		for _, want := range []string{"the function panicked: no tenant", "it returned an empty text",
			"it returned 201 bytes: use at most 200", "is not valid UTF-8"} {
			if n := strings.Count(log.String(), want); n != 1 {
				t.Errorf("%q is in the log %d times:\n%s", want, n, log.String())
			}
		}
	})
}

// A TimerLabel that hangs delays only the Register that called it.
//
// Fails when Scheduler.register calls it while holding registry.mu.
func TestTimerLabelThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := newRegistry()
		f := newFleet(t)
		answer := make(chan struct{})
		h := f.start(timer.Config{Registerer: reg, TimerLabel: func(name string) string {
			if name == "hangs" {
				<-answer
			}
			return name
		}}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), Run: f.handler(0)})
		done := make(chan error, 1)
		go func() { done <- h.Register(timer.Timer{Name: "hangs", Run: f.handler(0)}) }()
		time.Sleep(10 * time.Minute)
		if err := h.Register(timer.Timer{Name: "b", Run: f.handler(0)}); err != nil {
			t.Error(err)
		}
		got := values(t, reg)
		if _, there := got["tickslot_runs_active b"]; !there || got["tickslot_runs_total ok a"] < 9 {
			t.Errorf("%v", got)
		}
		close(answer)
		if err := <-done; err != nil {
			t.Error(err)
		}
		f.Stop()
	})
}

// A third-party store may have a name that is not text, and any number of reasons to refuse.
// Unknown reasons share one result.
//
// Fails when resultOf passes on every reason, or when storeLabel passes on every text.
func TestLabelsFromAStoreAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := newRegistry()
		f := newFleet(t)
		h := f.startOn(&talkative{DistributedLock: memlock.New()}, timer.Config{Registerer: reg},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), Run: f.handler(0)})
		time.Sleep(10*time.Minute + time.Second)
		if err := h.Trigger(t.Context(), "a"); err == nil {
			t.Error("it was triggered")
		}
		got := values(t, reg)
		if got["tickslot_ticks_total skipped_other a"] < 10 || got["tickslot_triggers_total refused_other a"] != 1 {
			t.Errorf("%v", got)
		}
		if n := len(got); n > 60 {
			t.Errorf("%d series", n)
		}
		f.Stop()
	})
}

// talkative refuses every tick with a new reason.
type talkative struct {
	dlock.DistributedLock
	n int
}

func (s *talkative) String() string { return "sto\xffre" }

func (s *talkative) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Name != "timer:a" {
		return s.DistributedLock.TryAcquire(ctx, req)
	}
	s.n++
	return driver.Grant{}, &dlock.NotAcquiredError{Reason: dlock.Reason(fmt.Sprintf("reason-%d-\xff", s.n))}
}

// Runs in progress are counted with and without a store, and triggers are counted by their result.
//
// Fails when runs_active counts slots, or when triggered is called only for triggers that start a
// run.
func TestRunsActiveAndTriggers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, fleet := range []bool{false, true} {
			reg := newRegistry()
			f := newFleet(t)
			config := timer.Config{Registerer: reg, MaxRuns: 3}
			var lock *dlocktest.Faulty
			if fleet {
				lock = dlocktest.NewFaulty(f.store)
				config.Store = lock
			}
			s, err := timer.New(config, timer.Timer{Name: "a", MaxConcurrency: 2, Run: f.handler(time.Minute)},
				timer.Timer{Name: "b", Run: f.handler(2 * time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			_, refused := s.Trigger(t.Context(), "a", timer.TriggerOptions{}) // before Run
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			<-s.Running()
			for range 3 {
				_, refused = s.Trigger(t.Context(), "a", timer.TriggerOptions{})
			}
			if refused == nil {
				t.Error("the third was not refused")
			}
			if _, err := s.Trigger(t.Context(), "b", timer.TriggerOptions{}); err != nil {
				t.Error(err)
			}
			if _, err := s.Trigger(t.Context(), "nobody", timer.TriggerOptions{}); err == nil {
				t.Error("an unknown timer was triggered")
			}
			got := values(t, reg)
			for key, want := range map[string]float64{"tickslot_runs_active a": 2,
				"tickslot_triggers_total started a": 2, "tickslot_triggers_total refused_host_full a": 1,
				"tickslot_triggers_total refused_not_running a": 1, "tickslot_runs_active b": 1} {
				if got[key] != want {
					t.Errorf("store %t: %s is %v, want %v", fleet, key, got[key], want)
				}
			}
			held, there := got["tickslot_slots_held a"]
			if there != fleet || fleet && held != 2 {
				t.Errorf("store %t: slots held %v, there: %t", fleet, held, there)
			}
			waits, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := s.Trigger(waits, "b", timer.TriggerOptions{}); err == nil { // refused because of MaxPerHost
				t.Error("b was triggered")
			}
			cancel()
			stop()
			time.Sleep(3 * time.Minute)
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
