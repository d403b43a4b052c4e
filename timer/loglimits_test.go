package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// An outage is logged as one warning, however many timers it affects, and at most once a minute if
// it recurs. Only a few lost leases of the runs that continue are logged.
//
// Fails when recordDown or runner.lost logs a warning for each timer.
func TestOutageOfAThousandTimersIsOneLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		timers := many(1000, schedule.Every(15*time.Second), func(context.Context) error { return nil })
		for i := range timers {
			if i%2 == 0 {
				timers[i].OnStoreDown = timer.StoreDownSkip
			}
		}
		h := f.start(timer.Config{Logger: textLogger(&log)}, timers...)
		time.Sleep(20 * time.Second)
		log.Reset() // drop the lines of the registration
		h.Link.Inject(dlocktest.Error(errors.New("refused")))
		time.Sleep(time.Minute)
		h.Link.Heal()
		time.Sleep(20 * time.Second)
		if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 2 ||
			!strings.Contains(lines[0], "timers_run_local=500 timers_skip=500") ||
			!strings.Contains(lines[1], "answers again") || !strings.Contains(lines[1], "runs_without_it=") {
			t.Errorf("%d lines of an outage, the first: %.1000s", len(lines), log.String())
		}
		time.Sleep(2 * time.Minute)
		log.Reset()
		outages := testkit.Rounds(t, 2, 10)
		for range outages {
			h.Link.Inject(dlocktest.Error(errors.New("refused")))
			time.Sleep(15 * time.Second)
			h.Link.Heal()
			time.Sleep(15 * time.Second)
		}
		if n := strings.Count(log.String(), "\n"); n < outages*3/4 || n > outages {
			t.Errorf("%d lines of %d outages, one every 30 s, the first: %.1000s", n, outages, log.String())
		}
		f.Stop()
	})
}

// One call that fails is not an outage, but a run that starts without the store is logged, at most
// once a minute.
//
// Fails when nothing is logged before the breaker opens.
func TestBriefRunsWithoutTheStoreAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		h := f.start(timer.Config{Logger: textLogger(&log)}, timer.Timer{Name: "a",
			Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		time.Sleep(20 * time.Second)
		log.Reset()
		for range 20 {
			h.Link.InjectN(2, dlocktest.Error(errors.New("a hiccup")), dlocktest.OpAcquire) // an acquire is sent twice
			time.Sleep(5 * time.Second)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || strings.Count(log.String(), "for a moment") != 2 {
			t.Errorf("%d lines of twenty hiccups in a hundred seconds:\n%s", n, log.String())
		}
		f.Stop()
	})
}

// Like TestBriefRunsWithoutTheStoreAreLogged, for one server of several.
//
// Fails when only changes of the whole store are logged.
func TestBriefRunsWithoutOneServerAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		store := newThreeServers(f.store)
		f.startOn(store, timer.Config{Logger: textLogger(&log)},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(0)},
			timer.Timer{Name: "c", Schedule: schedule.Every(time.Second), Run: f.handler(0)})
		time.Sleep(20 * time.Second)
		log.Reset()
		for range 20 {
			store.server["a"].InjectN(2, dlocktest.Error(errors.New("a hiccup")), dlocktest.OpAcquire)
			time.Sleep(5 * time.Second)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || strings.Count(log.String(), "for a moment") != 2 ||
			!strings.Contains(log.String(), "server=a") {
			t.Errorf("%d lines of twenty hiccups in a hundred seconds:\n%s", n, log.String())
		}
		f.Stop()
	})
}

// A thousand runs that lose their slots at the same moment, and get new ones, cause only a few
// lines in the log.
//
// Fails when runner.lost logs a warning for each run.
func TestThousandRunsInAnOutageAreAFewLines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		timers := many(1000, schedule.Every(time.Hour), f.handler(20*time.Minute))
		for i := range timers {
			if i%2 == 0 {
				timers[i].OnStoreDown = timer.StoreDownSkip
			}
		}
		h := f.start(timer.Config{Logger: textLogger(&log)}, timers...)
		for _, one := range timers {
			if err := h.Trigger(t.Context(), one.Name); err != nil {
				t.Fatal(err)
			}
		}
		log.Reset()
		h.Link.Inject(dlocktest.Error(errors.New("refused")))
		time.Sleep(time.Minute)
		h.Link.Heal()
		time.Sleep(time.Minute)
		if n := strings.Count(log.String(), "\n"); n > 40 {
			t.Errorf("%d lines, the first: %.1000s", n, log.String())
		}
		f.Stop()
	})
}

// If the keys of a thousand timers have faults, ten faults are logged.
//
// Fails when recordDown logs a warning for each timer.
func TestFaultsOfAThousandTimersAreAFewLines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		h := f.start(timer.Config{Logger: textLogger(&log)}, many(1000, schedule.Every(5*time.Second), f.handler(0))...)
		time.Sleep(20 * time.Second)
		log.Reset()
		h.Link.Inject(dlocktest.Error(errBadKey))
		time.Sleep(30 * time.Second)
		if n := strings.Count(log.String(), "\n"); n < 10 || n > 12 { // includes the lines of the host's own locks
			t.Errorf("%d lines, the first: %.1000s", n, log.String())
		}
		f.Stop()
	})
}

// A panickingHandler is a log handler that panics.
type panickingHandler struct{ n *atomic.Int64 }

func (h panickingHandler) Enabled(context.Context, slog.Level) bool {
	h.n.Add(1)
	panic("log: no space left")
}
func (h panickingHandler) Handle(context.Context, slog.Record) error { panic("log: no space left") }
func (h panickingHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h panickingHandler) WithGroup(string) slog.Handler             { return h }

// A logger that panics affects nothing: not a run that fails, an outage, a retry, or the shutdown.
//
// Fails when the scheduler logs directly to the user's handler.
func TestI10PanickingLoggerHarmsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var n, runs atomic.Int64
		h := f.start(timer.Config{Logger: slog.New(panickingHandler{&n})},
			timer.Timer{Name: "fails", Schedule: schedule.Every(time.Second),
				Retry: timer.Retry{MaxAttempts: 2, FirstWait: time.Millisecond},
				Run:   func(context.Context) error { runs.Add(1); return errors.New("failed") }},
			timer.Timer{Name: "panics", Schedule: schedule.Every(time.Second),
				Run: func(context.Context) error { panic("a handler") }},
			timer.Timer{Name: "long", Schedule: schedule.Every(time.Second), OnStoreDown: timer.StoreDownSkip,
				MaxRunTime: 5 * time.Second, Run: f.handler(time.Hour)})
		time.Sleep(10 * time.Second)
		h.Link.Inject(dlocktest.Error(errors.New("refused")))
		time.Sleep(time.Minute)
		h.Link.Heal()
		time.Sleep(time.Minute)
		if runs.Load() < 2*100 || n.Load() == 0 {
			t.Errorf("%d attempts, %d lines", runs.Load(), n.Load())
		}
		f.Stop()
	})
}

// hostile is a store's error whose methods panic.
type hostile struct{}

func (hostile) Error() string   { panic("Error") }
func (hostile) Is(error) bool   { panic("Is") }
func (hostile) Unwrap() []error { panic("Unwrap") }

// A store's error whose methods panic affects nothing.
//
// Fails when its methods are called without a recover.
func TestI10HostileErrorsHarmNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		h := f.start(timer.Config{Logger: textLogger(&log), Registerer: newRegistry()},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), Run: f.handler(0)},
			timer.Timer{Name: "long", Schedule: schedule.Every(time.Minute), Run: f.handler(50 * time.Second)})
		time.Sleep(time.Minute)
		h.Link.Inject(dlocktest.Error(hostile{}))
		time.Sleep(time.Minute)
		_, _ = h.Status(), h.StoreReachable()
		if err := h.Degraded(); err == nil || fmt.Sprint(err) == "" {
			t.Errorf("%v", err)
		}
		if x, err := h.Explain(t.Context(), "a", time.Time{}); err != nil || x.Text == "" {
			t.Errorf("%+v, %v", x, err)
		}
		_ = h.Trigger(t.Context(), "a")
		h.Link.Heal()
		time.Sleep(time.Minute)
		if err := h.Degraded(); err != nil {
			t.Error(err)
		}
		f.Stop()
	})
}

// panickingControl is a store whose control methods panic.
type panickingControl struct{ dlock.DistributedLock }

func (panickingControl) Update(context.Context, string, driver.Update) error { panic("a driver") }
func (panickingControl) Inspect(context.Context, ...string) ([]driver.ControlState, error) {
	panic("a driver")
}
func (panickingControl) Value(context.Context, string) (driver.ValueState, error) { panic("a driver") }

func (panickingControl) Revoke(context.Context, string, int, dlock.Fence, driver.Cause) error {
	panic("a driver")
}
func (s panickingControl) List(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
	return []driver.LeaseInfo{{Name: name, Slot: 0, Fence: 1}}, nil
}

type panickingList struct{ panickingControl }

func (panickingList) List(context.Context, string, int) ([]driver.LeaseInfo, error) {
	panic("a driver")
}

// If the store panics, each call of a Control returns an error.
//
// Fails when Update, Revoke or List is called without a recover.
func TestControlOutlivesAStoreThatPanics(t *testing.T) {
	for _, store := range []dlock.DistributedLock{panickingControl{}, panickingList{}} {
		c, by := control.New(control.Config{Store: store}), driver.Cause{By: "me"}
		_, inspectErr := c.Inspect(t.Context(), "a")
		for what, err := range map[string]error{
			"Pause":               c.Pause(t.Context(), "a", time.Now().Add(time.Hour), by),
			"Resume":              c.Resume(t.Context(), "a", by),
			"SetMaxConcurrency":   c.SetMaxConcurrency(t.Context(), "a", 1, by),
			"ResetMaxConcurrency": c.ResetMaxConcurrency(t.Context(), "a", by),
			"Trigger":             c.Trigger(t.Context(), "a", control.TriggerOptions{By: by}),
			"CancelRun":           c.CancelRun(t.Context(), "a", "0-1", by),
			"CancelSlot":          c.CancelSlot(t.Context(), "a", 0, by),
			"Inspect":             inspectErr,
		} {
			if err == nil || !strings.Contains(err.Error(), "panicked") {
				t.Errorf("%T: %s: %v", store, what, err)
			}
		}
	}
}

// Limits are logged including defaults: once for each timer or, if there are many timers, once for
// all timers with the same limits.
//
// Fails when New logs nothing, or a line for each of a thousand timers.
func TestLimitsAreLoggedOnce(t *testing.T) {
	run := func(context.Context) error { return nil }
	var log testkit.Log
	s, err := timer.New(timer.Config{Store: memlock.New(), Logger: textLogger(&log)},
		timer.Timer{Name: "a", Schedule: schedule.Every(time.Minute), MaxConcurrency: 3, MaxPerTick: 3,
			OnStoreDown: timer.StoreDownSkip, Run: run},
		timer.Timer{Name: "b", Schedule: schedule.Daily("02:00", "Europe/Berlin"), MaxPerTick: timer.NoLimit,
			MaxRunTime: time.Minute, Run: run})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 ||
		!strings.Contains(lines[0], "level=INFO") || !strings.Contains(lines[0], "timer=a ") ||
		!strings.Contains(lines[0],
			"max_concurrency=3 max_per_tick=3 max_per_host=3 max_run_time=1h0m0s on_store_down=skip") ||
		!strings.Contains(lines[1], "timer=b ") || !strings.Contains(lines[1],
		"max_concurrency=1 max_per_tick=none max_per_host=1 max_run_time=1m0s") {
		t.Errorf("logged:\n%s", log.String())
	}
	log.Reset()
	if err := s.Register(timer.Timer{Name: "c", Run: run}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "timer=c ") {
		t.Errorf("logged of one more:\n%s", log.String())
	}
	log.Reset()
	if _, err := timer.New(timer.Config{Logger: textLogger(&log)}, timer.Timer{Name: "a", Run: run},
		timer.Timer{Name: "a", Run: run}); err == nil || log.String() != "" {
		t.Errorf("%v; logged of what was refused:\n%s", err, log.String())
	}
	timers := many(1000, schedule.Every(time.Minute), run)
	for i := range timers[:10] {
		timers[i].MaxConcurrency = 5
	}
	for level, want := range map[slog.Level]int{slog.LevelInfo: 2, slog.LevelDebug: 1002} {
		log.Reset()
		if _, err := timer.New(timer.Config{Logger: slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{Level: level}))}, timers...); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "\n"); n != want || !strings.Contains(log.String(), "timers=990") ||
			!strings.Contains(log.String(), "timers=10 ") {
			t.Errorf("%d lines of a thousand timers at %v: %.1000s", n, level, log.String())
		}
	}
}

// A caller that registers and updates timers one by one, such as a Manager of a thousand rows,
// causes ten lines a minute.
//
// Fails when Register or Update logs each call at Info.
func TestChangesOfManyTimersAreAFewLines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		h := f.start(timer.Config{Logger: textLogger(&log)})
		log.Reset()
		for minute := range 2 {
			for i := range 100 {
				work := timer.Timer{Name: fmt.Sprint("a", minute, "-", i), Run: nop}
				if err := errors.Join(h.Register(work), h.Update(work)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
		}
		registered := strings.Count(log.String(), "timer: registered")
		updated := strings.Count(log.String(), "timer: updated")
		if registered+updated != 2*10 || registered == 0 || updated == 0 {
			t.Errorf("%d lines of 200 registrations, %d of 200 updates", registered, updated)
		}
		f.Stop()
	})
}
