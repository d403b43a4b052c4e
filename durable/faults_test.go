package durable_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// Every call to the database has every fault: on every second call, for a quarter of an hour. No
// tick or triggered run is lost, no tick has two runs, no run has two valid owners, and no limit is
// exceeded. When the database has recovered, all runs are completed.
//
// Fails when a part treats a call with a lost answer as not carried out, or does something twice.
func TestEveryCallWithEveryFault(t *testing.T) {
	ops := []string{"materialize", "claim", "renew", "finish", "reclaim", "due", "register", "sweep", "stats", "listen"}
	faults := []fault{lost, twice, zombie, stopped, refused, slow, answer, hang}
	for _, op := range ops[:testkit.Rounds(t, 5, len(ops))] {
		for _, what := range faults[:testkit.Rounds(t, 4, len(faults))] {
			t.Run(op+"/"+what.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					everySecondCall(t, op,
						what)
				})
			})
		}
	}
}

func everySecondCall(t *testing.T, op string, what fault) {
	f := newFleet(t)
	for i := range 2 {
		h := f.add(durable.Config{MaxRuns: 2, MaxActive: 3, PollInterval: 10 * time.Second,
			MaxCrashes: durable.NoLimit}).
			handle("report", sleeps(40*time.Second), durable.HandlerOptions{MaxConcurrency: 2}).
			handle("short", sleeps(time.Second), durable.HandlerOptions{Retry: durable.Retry{MaxAttempts: 100}}).
			schedule("often", "short", everyMinute, durable.ScheduleOptions{})
		n := i
		h.link.on(func(o string) (fault, time.Duration) {
			if n++; o == op && n%2 == 0 {
				return what, time.Duration(1+n%4) * 3 * time.Second
			}
			return well, 0
		})
		h.start()
	}
	pass(time.Second)
	for range 5 {
		f.trigger("report", durable.TriggerOptions{MaxAttempts: 100})
	}
	pass(15 * time.Minute)
	for _, h := range f.hosts {
		h.link.set(well)
	}
	pass(5*time.Minute + 30*time.Second)
	f.accounted("often", everyMinute, f.firstTick("often"))
	for _, r := range f.runs(store.StateQueued, store.StateRunning, store.StateDead) {
		t.Errorf("left: %+v", r)
	}
	f.end()
}

// firstTick returns the earliest tick of the schedule that has a run.
func (f *fleet) firstTick(name string) (first time.Time) {
	for _, r := range f.runs() {
		if r.Schedule == name && (first.IsZero() || r.DueAt.Before(first)) {
			first = r.DueAt
		}
	}
	return first
}

// An outage of ten minutes is reported once, and so is its end. A renewal that panics counts as
// failed.
//
// Fails when each failed call is reported.
func TestOutageIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var told []string
		h := f.add(durable.Config{Hooks: durable.Hooks{
			DatabaseDown: func(i durable.DatabaseInfo) { told = append(told, fmt.Sprint("down: ", i.Err)) },
			DatabaseUp: func(i durable.DatabaseInfo) {
				told = append(told, fmt.Sprint("up: ",
					i.DownFor > 9*time.Minute))
			},
		}}).handle("report", sleeps(time.Hour), durable.HandlerOptions{}).start()
		f.trigger("report", durable.TriggerOptions{})
		pass(time.Minute)
		h.link.set(refused)
		pass(10 * time.Minute)
		if s := h.Status(); s.Database.Up || s.Database.Err == "" {
			t.Errorf("%+v", s.Database)
		}
		renewals := 0 // every second one panics; three consecutive failures are an outage
		h.link.on(func(op string) (fault, time.Duration) {
			if op != "renew" {
				return well, 0
			}
			if renewals++; renewals%2 == 1 {
				panic("a driver")
			}
			return well, 0
		})
		pass(time.Minute)
		if s := h.Status(); !s.Database.Up || h.Live() != nil {
			t.Errorf("%+v, %v", s.Database, h.Live())
		}
		h.link.set(well)
		h.stop()
		f.end()
		if len(told) != 2 || told[0] != "down: the database is down" || told[1] != "up: true" {
			t.Errorf("%q", told)
		}
		if n := strings.Count(h.log.String(), "level=ERROR"); n > 2 {
			t.Errorf("%d errors were logged", n)
		}
	})
}

// A hook or logger that panics or hangs does no harm. Run names a hook that hangs at the end.
//
// Fails when a part calls a hook or logger on its own goroutine.
func TestHooksHarmNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		free := make(chan struct{})
		n := 0
		h := f.add(durable.Config{Hooks: durable.Hooks{
			RunStarted: func(durable.RunInfo) { panic("help") },
			RunEnded: func(durable.RunResult) {
				if n++; n == 3 {
					<-free
				}
			},
		}}).handle("report", func(context.Context, *durable.Run) error { return nil }, durable.HandlerOptions{}).start()
		for range 10 {
			f.trigger("report", durable.TriggerOptions{})
			pass(time.Minute)
		}
		if left := f.runs(store.StateQueued, store.StateRunning); len(left) > 0 {
			t.Errorf("%+v", left)
		}
		err := h.stop()
		if err == nil || err.Error() != "durable: shut down with the hook RunEnded, which does not return" {
			t.Error(err)
		}
		close(free)
		f.watch.killed(h)
		f.end()
	})
}

// The worker abandons a call that ignores its context, and does not repeat it until it returns.
// Live then fails, because only a restart may help. The other calls continue, and the worker can
// stop.
//
// Fails when Live passes although a call does not return, when Live fails during an outage, when
// such calls pile up, when results are not written in the meantime, or when Run waits for the call.
func TestCallThatDoesNotReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{}).handle("report", sleeps(30*time.Second), durable.HandlerOptions{}).start()
		pass(time.Minute)
		h.link.set(hang)
		pass(10 * time.Minute)
		if err := h.Live(); err != nil {
			t.Errorf("in an outage: %v", err)
		}
		h.link.set(well)
		pass(time.Minute)
		id := f.trigger("report", durable.TriggerOptions{})
		pass(10 * time.Second)
		claims := h.link.count("claim")
		h.link.on(func(op string) (fault, time.Duration) {
			if op == "claim" {
				return stopped, 10 * time.Minute
			}
			return well, 0
		})
		pass(2 * time.Minute)
		if err := h.Live(); err == nil || !strings.Contains(err.Error(), "the call claim has not returned for") {
			t.Errorf("a call that ignores its context: %v", err)
		}
		if err := h.Checks()["database-answers"](); err == nil || !strings.Contains(err.Error(),
			"the call claim has failed") {
			t.Error(err)
		}
		if n := h.link.count("claim") - claims; n != 1 {
			t.Errorf("%d claims were executed", n)
		}
		if run, _ := f.run(id); run.State != store.StateSucceeded {
			t.Errorf("%+v", run)
		}
		h.link.set(well)
		pass(10 * time.Minute)
		if err := h.Live(); err != nil {
			t.Error(err)
		}
		h.link.on(func(op string) (fault, time.Duration) {
			if op == "claim" {
				return stopped, 10 * time.Minute
			}
			return well, 0
		})
		pass(time.Minute)
		began := time.Now()
		if err := h.stop(); err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		pass(10 * time.Minute)
		f.end()
	})
}

// If a driver ends its goroutine, the call fails, but all parts of the worker continue.
//
// Fails when the loop that made the call ends.
func TestDriverThatEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{}).start()
		pass(time.Minute)
		h.link.on(func(string) (fault, time.Duration) { runtime.Goexit(); return well, 0 })
		pass(time.Minute)
		if err := h.Checks()["database-answers"](); err == nil || !strings.Contains(err.Error(),
			"called runtime.Goexit") {
			t.Error(err)
		}
		h.link.set(well)
		id := f.trigger("report", durable.TriggerOptions{})
		pass(2 * time.Minute) // a worker registers about once a minute
		if run, _ := f.run(id); run.State != store.StateSucceeded || h.Checks()["database-answers"]() != nil {
			t.Errorf("%+v, %v", run, h.Checks()["database-answers"]())
		}
		f.end()
	})
}

// If one kind of call always fails while all others succeed, the database check fails within three
// times CallTimeout and names the call.
//
// Fails when successful calls hide the failing one.
func TestCallThatAlwaysFailsIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{}).handle("report", sleeps(0), durable.HandlerOptions{})
		h.link.on(func(op string) (fault, time.Duration) {
			if op == "claim" {
				return refused, 0
			}
			return well, 0
		})
		h.start()
		pass(time.Minute)
		err := h.Checks()["database-answers"]()
		if err == nil || !strings.Contains(err.Error(), "the call claim has failed for") {
			t.Errorf("the check says %v", err)
		}
		h.link.set(well)
		pass(time.Minute)
		if err := h.Checks()["database-answers"](); err != nil {
			t.Error(err)
		}
		f.end()
	})
}
