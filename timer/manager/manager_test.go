package manager_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/manager"
)

// A tenantRow is a row of the table that the tests simulate.
type tenantRow struct {
	id, cron, url string
}

// A table is the set that a Manager reads.
type table struct {
	mu   sync.Mutex
	rows []tenantRow
	fail func(context.Context) error // called by Rows before it returns, unless nil
	made map[string]int              // calls of Timer, by name
	ran  ran
}

func (tb *table) set(rows ...tenantRow) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.rows = rows
}

func (tb *table) failing(fail func(context.Context) error) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.fail = fail
}

func (tb *table) manager(t *testing.T, h *host,
	change ...func(*manager.Config[tenantRow])) *manager.Manager[tenantRow] {
	t.Helper()
	tb.made = map[string]int{}
	config := manager.Config[tenantRow]{
		Scheduler: h.Scheduler, Logger: quiet,
		Rows: func(ctx context.Context) ([]tenantRow, error) {
			tb.mu.Lock()
			rows, fail := tb.rows, tb.fail
			tb.mu.Unlock()
			if fail != nil {
				if err := fail(ctx); err != nil {
					return nil, err
				}
			}
			return rows, nil
		},
		Name: func(r tenantRow) string {
			if r.id == "nameless" {
				panic("it has no name")
			}
			return "sync:" + r.id
		},
		Timer: func(r tenantRow) (timer.Timer, error) {
			tb.made["sync:"+r.id]++
			switch r.url {
			case "panics":
				panic("no such protocol")
			case "fails":
				return timer.Timer{}, errors.New("no such host")
			}
			return timer.Timer{Schedule: schedule.Cron(r.cron, ""),
				Run: tb.ran.handler(r.id+" "+r.url, 90*time.Second)}, nil
		},
	}
	for _, c := range change {
		c(&config)
	}
	return newManager(t, config)
}

func newManager[Row comparable](t testing.TB, config manager.Config[Row]) *manager.Manager[Row] {
	t.Helper()
	m, err := manager.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sync runs a round, and checks that its error contains the texts. No text means no error.
func (tb *table) sync(t *testing.T, m *manager.Manager[tenantRow], want ...string) {
	t.Helper()
	err := m.Sync(t.Context())
	if (err == nil) != (len(want) == 0) {
		t.Errorf("Sync returned %v, want %q", err, want)
	}
	for _, text := range want {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%v: does not contain %q", err, text)
		}
	}
	if told := m.Err(); fmt.Sprint(told) != fmt.Sprint(err) {
		t.Errorf("Err returns %v after %v", told, err)
	}
}

const everyMinute = "* * * * *"

// Rows are added, changed and removed while their runs are in progress. No round waits for a run,
// and a run finishes with the settings with which it began. Timers that other code has registered
// are not changed.
//
// Fails when a row's timer is removed and registered instead of updated, so that its counts are
// lost, or when a round removes a timer of other code.
func TestTimersFollowTheRows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "sync:code", Schedule: schedule.Every(time.Minute), Run: nop})
		tb := &table{}
		m := tb.manager(t, h)
		tb.set(tenantRow{"a", everyMinute, "one"}, tenantRow{"b", everyMinute, "one"})
		tb.sync(t, m)
		time.Sleep(100 * time.Second) // each has a run in progress
		before, _ := h.Status().Timer("sync:a")
		tb.set(tenantRow{"a", everyMinute, "two"}, tenantRow{"c", everyMinute, "one"},
			tenantRow{"code", everyMinute, "x"})
		began := time.Now()
		tb.sync(t, m, `timer "sync:code": Name: it is registered already`)
		if time.Since(began) != 0 {
			t.Errorf("the round took %v", time.Since(began))
		}
		if after, _ := h.Status().Timer("sync:a"); after.Ticks != before.Ticks || len(after.Running) != 1 {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if names := fmt.Sprint(timersOf(h)); names != "[sync:a sync:c sync:code]" {
			t.Error(names)
		}
		tb.set(tenantRow{"a", everyMinute, "two"}, tenantRow{"b", everyMinute, "three"}) // while runs are in progress
		tb.sync(t, m)
		time.Sleep(10 * time.Minute)
		for version, want := range map[string]int{"a one": 1, "a two": 5, "b one": 1, "b three": 5, "c one": 0} {
			if n := tb.ran.of(version); n < want-1 || n > want+1 {
				t.Errorf("%s ran %d times, want about %d", version, n, want)
			}
		}
		tb.set()
		tb.sync(t, m)
		if names := fmt.Sprint(timersOf(h)); names != "[sync:code]" {
			t.Error(names)
		}
		f.Stop()
		if err := m.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "shutting down") {
			t.Error(err)
		}
		h.Accounted(t)
	})
}

// If Timer panics, fails or returns an invalid timer for a row, or if a second row has the same
// name, no other row is affected. The row keeps its previous timer. Each fault is logged once, and
// returned by each round.
//
// Fails when one fault ends a round, or removes a timer.
func TestFaultsSpoilNoOtherRow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var log testkit.Log
		h := f.start(timer.Config{})
		tb := &table{}
		m := tb.manager(t, h, func(c *manager.Config[tenantRow]) { c.Logger = logTo(&log) })
		tb.set(tenantRow{"a", everyMinute, "one"}, tenantRow{"b", everyMinute, "one"},
			tenantRow{"c", everyMinute, "one"})
		tb.sync(t, m)
		tb.set(
			tenantRow{"a", everyMinute, "panics"}, tenantRow{"b", everyMinute, "fails"},
			tenantRow{"c", "61 * * * *", "two"},
			tenantRow{"new", "", "one"}, tenantRow{"nameless", "", ""}, tenantRow{"", everyMinute, "one"},
			tenantRow{"twice", everyMinute, "one"}, tenantRow{"good", everyMinute, "one"},
			tenantRow{"twice", everyMinute, "two"})
		for range 3 {
			tb.sync(t, m, `timer "sync:a": the function Timer panicked: no such protocol`, `timer "sync:b": no such host`,
				`timer "sync:c": Schedule`, `timer "sync:new": Schedule`, "row 4: the function Name panicked",
				`timer "sync:twice": several rows have this name`)
		}
		want := "[sync: sync:a sync:b sync:c sync:good sync:twice]"
		if names := fmt.Sprint(timersOf(h)); names != want {
			t.Errorf("%s, want %s", names, want)
		}
		if tb.made["sync:good"] != 1 || tb.made["sync:a"] != 4 || tb.made["sync:twice"] != 1 {
			t.Errorf("made %v", tb.made)
		}
		tb.set(tenantRow{"twice", everyMinute, "two"}, tenantRow{"twice", everyMinute, "one"}) // in another order
		tb.sync(t, m, "several rows")
		if tb.made["sync:twice"] != 1 {
			t.Error("the timer of two rows changes with their order")
		}
		time.Sleep(10 * time.Minute)
		if tb.ran.of("twice one") == 0 || tb.ran.of("twice two") != 0 {
			t.Errorf("ran %v", tb.ran.n)
		}
		tb.set(tenantRow{"twice", everyMinute, "two"})
		tb.sync(t, m)
		for text, n := range map[string]int{"has a fault; the timer stays": 5, "without a name": 1,
			"has no fault any more": 1} {
			if told := strings.Count(log.String(), text); told != n {
				t.Errorf("%q was logged %d times, want %d:\n%s", text, told, n, log.String())
			}
		}
		f.Stop()
	})
}

// If the set cannot be read (an error, a panic, runtime.Goexit, or a call that hangs), nothing
// changes, and rounds do not pile up behind a round that hangs. An empty set is valid.
//
// Fails when a result that came too late is applied, or when a round begins while another one
// hangs.
func TestRowsThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var log testkit.Log
		h := f.start(timer.Config{})
		tb := &table{}
		m := tb.manager(t, h, func(c *manager.Config[tenantRow]) {
			c.Logger, c.SyncTimeout = logTo(&log), time.Second
		})
		tb.set(tenantRow{"a", everyMinute, "one"})
		tb.sync(t, m)
		tb.set()
		for text, fail := range map[string]func(context.Context) error{
			"no connection": func(context.Context) error { return errors.New("no connection") },
			"the function Rows panicked: out of paper": func(context.Context) error { panic("out of paper") },
			"runtime.Goexit":      func(context.Context) error { runtime.Goexit(); return nil },
			"no answer within 1s": func(ctx context.Context) error { <-ctx.Done(); return nil },
			// The round would wait for itself.
			"row": func(ctx context.Context) error { return m.Sync(ctx) },
		} {
			tb.failing(fail)
			tb.sync(t, m, text, "do not follow the rows")
		}
		hangs := make(chan struct{})
		var calls atomic.Int64
		tb.failing(func(context.Context) error { calls.Add(1); <-hangs; return nil })
		began := time.Now()
		for range 3 {
			tb.sync(t, m, "no answer within 1s")
		}
		if calls.Load() != 1 || time.Since(began) > 10*time.Second {
			t.Errorf("%d calls, %v", calls.Load(), time.Since(began))
		}
		tb.failing(nil)
		close(hangs)
		synctest.Wait()
		if len(timersOf(h)) != 1 {
			t.Error("an answer that came too late was applied")
		}
		// A round that waits for itself returns an error with the same text, so only one line is
		// logged.
		if n := strings.Count(log.String(), `msg="manager: the timers do not follow the rows"`); n != 1 {
			t.Errorf("it was logged %d times that the rows were not read:\n%s", n, log.String())
		}
		tb.sync(t, m)
		if n := strings.Count(log.String(), "follow the rows again"); n != 1 || len(timersOf(h)) != 0 {
			t.Errorf("logged %d times; %v", n, timersOf(h))
		}
		f.Stop()
	})
}

// Run reads the set immediately and then every interval, and sooner after a failure. It ends with
// its context or with the Scheduler. It names a call that does not return.
//
// Fails when Run outlives the Scheduler, or when a round is late.
func TestRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.NewHost(memlock.New(), timer.Config{})
		tb := &table{}
		var at atomic.Int64
		m := tb.manager(t, h, func(c *manager.Config[tenantRow]) {
			minutely := c.Timer
			c.Timer = func(r tenantRow) (timer.Timer, error) {
				if r.id == "once" {
					once := schedule.At(time.UnixMicro(at.Load()))
					return timer.Timer{Schedule: once, Run: tb.ran.handler("once", 0)}, nil
				}
				return minutely(r)
			}
		})
		ended := make(chan error, 1)
		go func() { ended <- m.Run(t.Context()) }()
		tb.set(tenantRow{"a", everyMinute, "one"})
		synctest.Wait()
		f.Run(t.Context(), h)
		tb.set(tenantRow{"b", everyMinute, "one"})
		time.Sleep(time.Minute)
		if names := fmt.Sprint(timersOf(h)); names != "[sync:b]" {
			t.Error(names)
		}
		tb.failing(func(context.Context) error { return errors.New("no connection") })
		tb.set()
		time.Sleep(time.Minute)
		tb.failing(nil)
		time.Sleep(6 * time.Second)
		if names := timersOf(h); len(names) != 0 {
			t.Error(names)
		}
		// If other code removes the timer, the Manager registers it again, unless its ticks have
		// passed.
		at.Store(time.Now().Add(2 * time.Minute).UnixMicro())
		tb.set(tenantRow{"once", "", ""})
		time.Sleep(time.Minute)
		if err := h.Remove(t.Context(), "sync:once"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if names := fmt.Sprint(timersOf(h)); names != "[sync:once]" {
			t.Error(names)
		}
		time.Sleep(time.Hour)
		if n := tb.ran.of("once"); n != 1 || len(timersOf(h)) != 0 {
			t.Errorf("it ran %d times; there are %v", n, timersOf(h))
		}
		f.Stop()
		time.Sleep(time.Minute)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A hundred rows change in concurrent rounds, while timers run and other code calls the Scheduler
// for the same names.
//
// Fails when a round and another call leave a timer half replaced, so that two of its runs are in
// progress.
func TestChangesInAHurry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{MaxRuns: 50})
		var version atomic.Int64
		one := oneAtOnce{t: t}
		m := newManager(t, manager.Config[string]{Scheduler: h.Scheduler, Logger: quiet,
			Rows: func(context.Context) (rows []string, err error) {
				v := version.Add(1)
				for i := range int64(100) {
					if (i+v)%7 != 0 {
						rows = append(rows, fmt.Sprintf("%d %d", i, (i+v)/5))
					}
				}
				return rows, nil
			},
			Name: func(row string) string { name, _, _ := strings.Cut(row, " "); return name },
			Timer: func(row string) (timer.Timer, error) {
				return timer.Timer{Schedule: schedule.Every(time.Second), Run: one.handler(row)}, nil
			}})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for range testkit.Rounds(t, 50, 500) {
					if err := m.Sync(t.Context()); err != nil {
						t.Error(err)
					}
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		for i := range 100 {
			all.Go(func() {
				for n := range 20 {
					time.Sleep(777 * time.Millisecond)
					name := fmt.Sprint(i)
					switch n % 3 {
					case 0:
						_ = h.Trigger(t.Context(), name)
					case 1:
						_ = h.Update(timer.Timer{Name: name, Schedule: schedule.Every(time.Minute), Run: nop})
					default:
						ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
						_ = h.Remove(ctx, name)
						cancel()
					}
				}
			})
		}
		all.Wait()
		if err := m.Sync(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(timersOf(h)); n < 80 || n > 90 {
			t.Errorf("%d timers", n)
		}
		f.Stop()
		if len(h.Status().Timers) > 90 {
			t.Errorf("%d timers are left", len(h.Status().Timers))
		}
		h.Accounted(t)
	})
}

// oneAtOnce creates handlers that take two seconds. The test fails if two runs of one timer
// overlap.
type oneAtOnce struct {
	t  *testing.T
	by sync.Map // *atomic.Int64 by name
}

func (o *oneAtOnce) handler(row string) timer.Handler {
	name, _, _ := strings.Cut(row, " ")
	of, _ := o.by.LoadOrStore(name, new(atomic.Int64))
	n := of.(*atomic.Int64)
	return func(ctx context.Context) error {
		if n.Add(1) > 1 {
			o.t.Errorf("two runs of timer %s", name)
		}
		defer n.Add(-1)
		return takes(2 * time.Second)(ctx)
	}
}

// If a call has not returned when Run's context has ended, Run returns an error and does not wait
// for the call.
//
// Fails when Run waits for the call, or does not report it.
func TestRunDoesNotWaitForACallThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{})
		tb := &table{}
		m := tb.manager(t, h)
		release := make(chan struct{})
		tb.failing(func(context.Context) error { <-release; return nil })
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		if err := m.Run(ctx); err == nil || time.Since(began) != time.Second+timer.CancelGrace {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(release)
		f.Stop()
	})
}

// All faults of a Manager's settings are returned together.
//
// Fails when a field is not checked.
func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := manager.New(manager.Config[int]{SyncInterval: -1, SyncTimeout: -1})
	for _, field := range []string{"Scheduler", "Rows", "Name", "Timer", "SyncInterval", "SyncTimeout"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+field+": ") {
			t.Errorf("%v: does not name %s", err, field)
		}
	}
	for _, empty := range []*manager.Manager[int]{nil, {}} {
		for _, err := range []error{empty.Run(t.Context()), empty.Sync(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), "make one with New") {
				t.Errorf("an empty Manager: %v", err)
			}
		}
	}
}
