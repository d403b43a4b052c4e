package manager_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/manager"
)

// The code that creates a timer from a row (its Schedule, Config.Middleware, Config.TimerLabel) may
// hang or exit its goroutine. Each round then returns an error that names the row, and no timer
// changes. Run continues, and returns when its context ends. When the calls return, the Manager
// follows the rows again.
//
// Fails when a round calls any of them in the goroutine of Run.
func TestRoundsOutliveWhatARowCalls(t *testing.T) {
	for name, bad := range map[string]struct {
		call func(release chan struct{})
		text string
	}{
		"hangs": {func(release chan struct{}) { <-release }, "no answer within 10s"},
		"exits": {func(release chan struct{}) {
			select {
			case <-release:
			default:
				runtime.Goexit()
			}
		}, "runtime.Goexit"},
	} {
		for _, who := range []string{"Name", "Timer", "Schedule", "Middleware", "TimerLabel"} {
			t.Run(who+" "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) { outlives(t, who, bad.text, bad.call) })
			})
		}
	}
}

func outlives(t *testing.T, who, text string, bad func(release chan struct{})) {
	f := newFleet(t)
	release := make(chan struct{})
	config := timer.Config{Registerer: prometheus.NewPedanticRegistry(), TimerLabel: func(name string) string {
		if who == "TimerLabel" && name == "bad" {
			bad(release)
		}
		return name
	}}
	config.Middleware = []timer.Middleware{func(next timer.Handler) timer.Handler {
		if who == "Middleware" {
			if isBad := next(nil); isBad != nil { // only the handler is known here, not its timer
				bad(release)
			}
		}
		return next
	}}
	h := f.start(config)
	rows := []string{"a"}
	m := newManager(t, manager.Config[string]{Scheduler: h.Scheduler, Logger: quiet,
		Rows: func(context.Context) ([]string, error) { return rows, nil },
		Name: func(row string) string {
			if who == "Name" && row == "bad" {
				bad(release)
			}
			return row
		},
		Timer: func(row string) (timer.Timer, error) {
			if who == "Timer" && row == "bad" {
				bad(release)
			}
			run := takes(0)
			tm := timer.Timer{Schedule: schedule.Every(time.Minute), Run: func(ctx context.Context) error {
				switch {
				case ctx != nil:
					return run(ctx)
				case row == "bad":
					return errors.New("bad")
				}
				return nil
			}}
			if who == "Schedule" && row == "bad" {
				tm.Schedule = scheduleFunc(func(after time.Time) time.Time {
					bad(release)
					return after.Truncate(time.Minute).Add(time.Minute)
				})
			}
			return tm, nil
		}})
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows = []string{"a", "bad", "c"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	for range 3 {
		time.Sleep(10 * time.Minute)
		err := m.Err()
		if err == nil || !strings.Contains(err.Error(), text) ||
			who != "Name" && !strings.Contains(err.Error(), `timer "bad"`) {
			t.Errorf("%v: does not contain %q, or does not name the row", err, text)
		}
	}
	if names := fmt.Sprint(timersOf(h)); names != "[a]" {
		t.Error(names)
	}
	cancel()
	began := time.Now()
	hangs := !strings.Contains(text, "Goexit")
	if err := <-ended; (err != nil) != hangs || time.Since(began) > timer.CancelGrace {
		t.Errorf("Run returned %v, %v after the end of its context", err, time.Since(began))
	}
	close(release)
	synctest.Wait()
	if err := m.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	if names := fmt.Sprint(timersOf(h)); names != "[a bad c]" {
		t.Error(names)
	}
	f.Stop()
	h.Accounted(t)
}

// Whatever Run is doing when its context ends, it reports a call that has not returned within
// CancelGrace. It reports no call that has returned.
//
// Fails when Run, between two rounds, forgets that a call of an earlier round hangs.
func TestRunTellsOfACallThatHangs(t *testing.T) {
	for during, at := range map[string]time.Duration{
		"the call":                     5 * time.Second,
		"its grace":                    12 * time.Second,
		"the pause after it":           17 * time.Second,
		"the wait of the next round":   25 * time.Second,
		"the pause after that":         33 * time.Second,
		"the pause, and it returns":    -17 * time.Second,
		"the wait, and it returns":     -25 * time.Second,
		"the next pause, it returns":   -33 * time.Second,
		"the call, and it returns now": -5 * time.Second,
	} {
		t.Run(during, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				returns := at < 0
				release := make(chan struct{})
				m := newManager(t, manager.Config[string]{Scheduler: newFleet(t).start(timer.Config{}).Scheduler,
					Rows:  func(context.Context) ([]string, error) { <-release; return nil, nil },
					Name:  func(row string) string { return row },
					Timer: func(string) (timer.Timer, error) { return timer.Timer{}, nil },
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- m.Run(ctx) }()
				time.Sleep(max(at, -at))
				cancel()
				if returns {
					close(release)
				}
				began := time.Now()
				if err := <-ended; (err == nil) != returns || time.Since(began) > timer.CancelGrace {
					t.Errorf("Run returned %v, %v after the end of its context", err, time.Since(began))
				}
				if !returns {
					close(release)
				}
			})
		})
	}
}

// A thousand rows change while their timers run, and in each version every tenth row is faulty. The
// other rows run with their current version, once a minute. A faulty row keeps its previous timer.
//
// Fails when one faulty row affects others, or prevents its timer from being due.
func TestAThousandRowsWithFaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const rows, versions, minutes = 1000, 5, 3 // minutes of each version
		f := newFleet(t)
		h := f.start(timer.Config{})
		version := 0
		var mu sync.Mutex
		ran := map[string]int{} // by row and version
		m := newManager(t, manager.Config[string]{Scheduler: h.Scheduler, Logger: quiet, SyncInterval: time.Minute,
			Rows: func(context.Context) (list []string, err error) {
				for i := range rows {
					list = append(list, fmt.Sprint(i, " ", version))
				}
				return list, nil
			},
			Name: func(row string) string { name, _, _ := strings.Cut(row, " "); return name },
			Timer: func(row string) (timer.Timer, error) {
				var i, v int
				fmt.Sscan(row, &i, &v)
				switch {
				case v > 0 && (i+v)%30 == 0:
					return timer.Timer{}, errors.New("a fault")
				case v > 0 && (i+v)%30 == 10:
					panic("a fault")
				case v > 0 && (i+v)%30 == 20:
					return timer.Timer{Schedule: schedule.Cron("61 * * * *", ""), Run: nop}, nil
				}
				return timer.Timer{Schedule: schedule.Every(time.Minute), LocalOnly: true,
					Run: func(context.Context) error { mu.Lock(); ran[row]++; mu.Unlock(); return nil }}, nil
			}})
		for version = range versions {
			if err := m.Sync(t.Context()); (err == nil) != (version == 0) {
				t.Errorf("version %d: %v", version, err)
			}
			time.Sleep(minutes * time.Minute)
		}
		f.Stop()
		for i := range rows {
			runs, has := 0, 0 // has is the version of the timer
			for v := range versions {
				if v == 0 || (i+v)%10 != 0 {
					has = v
				}
				n := ran[fmt.Sprint(i, " ", v)]
				if runs += n; has == v && n < minutes-1 || has != v && n > 0 {
					t.Fatalf("row %d: version %d ran %d times, and its fault: %t", i, v, n, has != v)
				}
			}
			if runs < versions*minutes-1 {
				t.Fatalf("row %d ran %d times in %d minutes", i, runs, versions*minutes)
			}
		}
		h.Accounted(t)
	})
}

// The functions of a Manager may call its Scheduler, even for the timer for which they are called.
//
// Fails when a round calls them while holding a mutex of the Scheduler.
func TestFunctionsMayCallTheScheduler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "other", Run: nop})
		calls := 0
		call := func() {
			calls++
			h.Status()
			added := fmt.Sprint("added ", calls)
			for what, err := range map[string]error{"Register": h.Register(timer.Timer{Name: added, Run: nop}),
				"Update":  h.Update(timer.Timer{Name: "other", Schedule: schedule.Every(time.Minute), Run: nop}),
				"Trigger": h.Trigger(t.Context(), "other"), "Remove": h.Remove(t.Context(), added)} {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			time.Sleep(time.Second) // until the triggered run has ended
		}
		version := "one"
		m := newManager(t, manager.Config[string]{Scheduler: h.Scheduler, Logger: quiet,
			Rows: func(context.Context) ([]string, error) { call(); return []string{"a " + version}, nil },
			Name: func(string) string { call(); return "a" },
			Timer: func(string) (timer.Timer, error) {
				call()
				_ = h.Remove(t.Context(), "a") // its own timer; the row creates it again
				return timer.Timer{Schedule: schedule.Every(time.Minute), Run: takes(0)}, nil
			}})
		for _, version = range []string{"one", "two"} {
			for range 2 { // the second round restores the timer that Timer removed in the first
				if err := m.Sync(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if names := fmt.Sprint(timersOf(h)); names != "[a other]" || calls == 0 {
				t.Errorf("%s after %d calls", names, calls)
			}
		}
		f.Stop()
		h.Accounted(t)
	})
}

// A looseRow has a field for which == may panic.
type looseRow struct {
	name string
	data any
}

// If == panics for a row (for example with a []byte in a field of type any, as Scan creates it),
// only this row is faulty, and its timer remains unchanged.
//
// Fails when its timer is removed in one round, and registered again in the next.
func TestRowsThatCannotBeCompared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{})
		rows := []looseRow{{"a", []byte("x")}, {"b", 1}}
		m := newManager(t, manager.Config[looseRow]{Scheduler: h.Scheduler, Logger: quiet,
			Rows: func(context.Context) ([]looseRow, error) { return rows, nil },
			Name: func(row looseRow) string { return row.name },
			Timer: func(looseRow) (timer.Timer, error) {
				return timer.Timer{Schedule: schedule.Every(time.Minute), Run: takes(0)}, nil
			}})
		for i := range 5 {
			err := m.Sync(t.Context())
			if i > 0 && (err == nil || !strings.Contains(err.Error(), `timer "a": its row cannot be compared`)) {
				t.Errorf("round %d: %v", i, err)
			}
			time.Sleep(time.Minute)
		}
		if st, _ := h.Status().Timer("a"); st.Ticks < 4 || len(timersOf(h)) != 2 {
			t.Errorf("%v, %+v", timersOf(h), st)
		}
		rows[0].data = "x"
		if err := m.Sync(t.Context()); err != nil {
			t.Error(err)
		}
		f.Stop()
	})
}

// If Run's context ends while Run waits for a round that another caller has begun, Run returns an
// error only if that round hangs.
//
// Fails when Run does not wait for a round that is about to end.
func TestRunEndsBehindAnotherRound(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprintf("hangs %v", hangs), func(t *testing.T) {
			bubble(t, func(t *testing.T) { runBehind(t, hangs) })
		})
	}
}

func runBehind(t *testing.T, hangs bool) {
	f := newFleet(t)
	h := f.start(timer.Config{})
	tb := &table{}
	m := tb.manager(t, h)
	release := make(chan struct{})
	tb.failing(func(context.Context) error { <-release; return nil })
	synced, ended := make(chan error, 1), make(chan error, 1)
	go func() { synced <- m.Sync(t.Context()) }()
	synctest.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	go func() { ended <- m.Run(ctx) }()
	if !hangs {
		time.AfterFunc(2*time.Second, func() { close(release) })
	}
	began := time.Now()
	err := <-ended
	if took := time.Since(began); (err != nil) != hangs || took > time.Second+timer.CancelGrace {
		t.Errorf("a round that hangs: %v; Run returned %v after %v", hangs, err, took)
	}
	if hangs {
		close(release)
	}
	if err := <-synced; err != nil {
		t.Error(err)
	}
	f.Stop()
}

// If two rows have the same name, the row from which the timer was created counts, and the reported
// fault is the duplicate name. For rows without a name, a fault is logged again when it changes.
//
// Fails when the fault of a row that does not count is kept, or when only the number of rows
// without a name is compared.
func TestTellsTheFaultOfToday(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var log testkit.Log
		h := f.start(timer.Config{})
		tb := &table{}
		why := "no name today"
		m := tb.manager(t, h, func(c *manager.Config[tenantRow]) {
			keep := c.Name
			c.Logger, c.Name = logTo(&log), func(r tenantRow) string {
				if r.id == "nameless" {
					panic(why)
				}
				return keep(r)
			}
		})
		good, bad := tenantRow{"a", everyMinute, "one"}, tenantRow{"a", everyMinute, "fails"}
		tb.set(good)
		tb.sync(t, m)
		tb.set(bad)
		tb.sync(t, m, "no such host")
		for range 2 {
			tb.set(bad, good)
			tb.sync(t, m, "several rows have this name")
		}
		tb.set(good, tenantRow{"nameless", "", ""})
		tb.sync(t, m, "row 1: the function Name panicked: no name today")
		tb.set(tenantRow{"nameless", "", ""}, good)
		tb.sync(t, m, "row 0")
		why = "another reason"
		tb.sync(t, m, "row 0: the function Name panicked: another reason")
		if n := strings.Count(log.String(), "without a name"); n != 2 {
			t.Errorf("logged %d times, want 2:\n%s", n, log.String())
		}
		f.Stop()
	})
}

// A round over a thousand unchanged rows calls only Rows and Name. It allocates memory for the
// round, but not for each row.
//
// Fails when a timer is created from an unchanged row.
func TestRoundAllocates(t *testing.T) {
	s, err := timer.New(timer.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	rows, names, made := make([]int, 1000), make([]string, 1000), 0
	for i := range rows {
		rows[i], names[i] = i, fmt.Sprint("tenant-", i)
	}
	m := newManager(t, manager.Config[int]{Scheduler: s, Logger: quiet,
		Rows: func(context.Context) ([]int, error) { return rows, nil },
		Name: func(row int) string { return names[row] },
		Timer: func(int) (timer.Timer, error) {
			made++
			return timer.Timer{Schedule: schedule.Every(time.Hour), Run: nop}, nil
		}})
	round := func() {
		if err := m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	round()
	if allocs := testing.AllocsPerRun(20, round); allocs > 20 && !testkit.RaceDetector || made != 1000 {
		t.Errorf("%v allocations in a round, and %d timers made of 1,000 rows", allocs, made)
	}
}

// Other code takes a timer's name. If it does so before the Manager, the row is faulty and remains
// so. If it does so later, the name belongs to the Manager, so the timer is changed and removed
// with its row.
//
// Fails when a round updates or removes a timer that other code registered first.
func TestNamesBelongToWhoCameFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		code := timer.Timer{Name: "sync:code", Schedule: schedule.Every(time.Hour), Run: nop}
		h := f.start(timer.Config{}, code)
		tb := &table{}
		m := tb.manager(t, h)
		for _, url := range []string{"one", "two"} {
			tb.set(tenantRow{"code", everyMinute, url}, tenantRow{"a", everyMinute, url})
			tb.sync(t, m, `timer "sync:code": Name: it is registered already`)
		}
		own := timer.Timer{Name: "sync:a", Run: nop}
		if err := errors.Join(h.Remove(t.Context(), own.Name), h.Register(own)); err != nil {
			t.Fatal(err)
		}
		scheduleOf := func(name string) string {
			st, _ := h.Status().Timer(name)
			return st.Schedule
		}
		tb.set(tenantRow{"a", everyMinute, "two"})
		tb.sync(t, m)
		if got := scheduleOf("sync:a"); got != "" {
			t.Errorf("a row that has not changed made the code's timer %q", got)
		}
		tb.set(tenantRow{"a", everyMinute, "three"})
		tb.sync(t, m)
		if got := scheduleOf("sync:a"); !strings.Contains(got, everyMinute) {
			t.Errorf("a row that has changed left the timer as it was: %q", got)
		}
		tb.set()
		tb.sync(t, m)
		names, got := fmt.Sprint(timersOf(h)), scheduleOf("sync:code")
		if names != "[sync:code]" || got != "every 1h0m0s" {
			t.Errorf("%s are left, that of the code is %q", names, got)
		}
		f.Stop()
	})
}

// A rudeSchedule has a fault whose methods panic or match everything.
type rudeSchedule struct{ matches bool }

func (rudeSchedule) Next(after time.Time) time.Time { return after.Add(time.Minute) }
func (s rudeSchedule) Check() error                 { return rudeError(s) }

type rudeError struct{ matches bool }

func (rudeError) Error() string { return "no such calendar" }

func (e rudeError) Is(error) bool {
	if !e.matches {
		panic("no comparison")
	}
	return true
}

// If the schedule of a row has a fault that cannot be compared, or that equals everything, every
// round reports a fault for this row only.
//
// Fails when Register or a round calls methods of the error without a guard.
func TestFaultsThatCannotBeAsked(t *testing.T) {
	for _, matches := range []bool{false, true} {
		t.Run(fmt.Sprintf("matches %t", matches), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				h := f.start(timer.Config{})
				bad := []string{"a", "bad", "c"}
				m := newManager(t, manager.Config[string]{Scheduler: h.Scheduler, Logger: quiet,
					Rows: func(context.Context) ([]string, error) { return bad, nil },
					Name: func(row string) string { return row },
					Timer: func(row string) (timer.Timer, error) {
						if row == "bad" {
							return timer.Timer{Schedule: rudeSchedule{matches}, Run: nop}, nil
						}
						return timer.Timer{Run: nop}, nil
					}})
				for range 2 {
					if err := m.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), `timer "bad": Schedule`) {
						t.Errorf("%v: does not name the row", err)
					}
				}
				if names := fmt.Sprint(timersOf(h)); names != "[a c]" {
					t.Error(names)
				}
				f.Stop()
			})
		})
	}
}

// A hook may call Sync.
//
// Fails when a round waits for a hook.
func TestHooksMayCallSync(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		rows := []string{"a"}
		var m *manager.Manager[string]
		h := f.start(timer.Config{Hooks: timer.Hooks{RunStarted: func(timer.RunInfo) {
			rows = []string{"a", "b"}
			if err := m.Sync(t.Context()); err != nil {
				t.Error(err)
			}
		}}})
		m = newManager(t, manager.Config[string]{Scheduler: h.Scheduler, Logger: quiet,
			Rows: func(context.Context) ([]string, error) { return rows, nil },
			Name: func(row string) string { return row },
			Timer: func(row string) (timer.Timer, error) {
				return timer.Timer{Run: nop}, nil
			}})
		if err := errors.Join(m.Sync(t.Context()), h.Trigger(t.Context(), "a")); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if names := fmt.Sprint(timersOf(h)); names != "[a b]" {
			t.Error(names)
		}
		f.Stop()
	})
}
