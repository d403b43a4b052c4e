package timer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"

	"github.com/redis/go-redis/v9"
)

func nop(context.Context) error { return nil }

type scheduleFunc func(time.Time) time.Time

func (s scheduleFunc) Next(t time.Time) time.Time { return s(t) }

// All faults of a registration are returned together, and nothing is started. Each error names the
// timer, the field, the value and the fix.
//
// Fails when New returns at the first fault.
func TestI11AllFaultsComeBackAtOnce(t *testing.T) {
	every := schedule.Every(time.Minute)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // there is no server: New must not call it
	defer rdb.Close()
	store := redislock.New(rdb, redislock.Options{QuarantineTTL: time.Second, Prefix: "a\nb"})
	defer store.Close()
	_, err := timer.New(
		timer.Config{Store: store, TTL: 2 * time.Second, StoreTimeout: time.Second, DrainTimeout: -1, PreStopDelay: -2},
		timer.Timer{Name: "", Run: nop},
		timer.Timer{Name: "twice", Run: nop}, timer.Timer{Name: "twice", Run: nop},
		timer.Timer{Name: strings.Repeat("long", 60), Run: nop},
		timer.Timer{Name: "bad\xff", Run: nop},
		timer.Timer{Name: "new\nline", Run: nop},
		timer.Timer{Name: "a:slot:b", Run: nop},
		timer.Timer{Name: "no-run", Schedule: every},
		timer.Timer{Name: "negative", Run: nop, MaxConcurrency: -5, MaxPerTick: -2, MaxPerHost: -3, MaxRunTime: -4},
		timer.Timer{Name: "absurd", Run: nop, MaxConcurrency: 10_001, MaxPerTick: 1 << 40},
		timer.Timer{Name: "host", Run: nop, MaxConcurrency: 2, MaxPerHost: 3},
		timer.Timer{Name: "shares", Run: nop, Schedule: every, MaxConcurrency: 3},
		timer.Timer{Name: "policy", Run: nop, OnStoreDown: 7},
		timer.Timer{Name: "zero", Run: nop, Schedule: schedule.Every(0)},
		timer.Timer{Name: "minus", Run: nop, Schedule: schedule.Every(-time.Second)},
		timer.Timer{Name: "two", Run: nop, Schedule: schedule.Except(schedule.Daily("1", "x"))},
		timer.Timer{Name: "never", Run: nop, Schedule: scheduleFunc(func(time.Time) time.Time { return time.Time{} })},
		timer.Timer{Name: "stuck", Run: nop, Schedule: scheduleFunc(func(t time.Time) time.Time { return t })},
		timer.Timer{Name: "panics", Run: nop, Schedule: scheduleFunc(func(time.Time) time.Time { panic("no") })},
	)
	if err == nil {
		t.Fatal("no fault found")
	}
	for _, want := range []string{
		`DrainTimeout: -1ns is negative`, `PreStopDelay: -2ns is negative`,
		`TTL 2s: must be at least three times StoreTimeout (1s)`, `TTL 2s: this store takes at most 1s`,
		`Prefix "a\nb"`,
		`timer "": Name: it is empty`, `timer "twice": Name: two timers have it`,
		`it is 240 bytes long: use at most 200`,
		`"bad\xff" is not valid UTF-8`, `"new\nline" has a control character`, `has "slot:" in it`,
		`timer "no-run": Run: it is nil`,
		`timer "negative": MaxConcurrency: -5 is negative`, `timer "negative": MaxPerTick: -2 is negative`,
		`timer "negative": MaxPerHost: -3 is negative`, `timer "negative": MaxRunTime: -4ns is negative`,
		`timer "absurd": MaxConcurrency: 10001 is more than 10000`,
		`timer "absurd": MaxPerTick: 1099511627776 is more than 10000`,
		`timer "host": MaxPerHost: 3 is more than MaxConcurrency (2)`,
		`timer "shares": MaxPerTick: say how many hosts may run each tick`,
		`timer "policy": OnStoreDown: 7 is not a policy`,
		`timer "zero": Schedule: Every(0s)`, `timer "minus": Schedule: Every(-1s)`,
		`timer "two": Schedule: Daily "1"`, `timer "two": Schedule: zone "x"`,
		`timer "two": Schedule: Except: it has no blackout`,
		`timer "never": Schedule: timer_test.scheduleFunc never fires`, `timer "stuck": Schedule:`,
		`timer "panics": Schedule: timer_test.scheduleFunc: its Next panicked: no`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Logf("all of it:\n%v", err)
	}
}

// Register adds all timers or none.
func TestRegisterAddsAllOrNone(t *testing.T) {
	s, err := timer.New(timer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Register(timer.Timer{Name: "good", Run: nop}, timer.Timer{Name: "bad"}); err == nil {
		t.Fatal("no fault found")
	}
	if st := s.Status(); len(st.Timers) != 0 {
		t.Errorf("registered %+v", st.Timers)
	}
}

// The zero value of every setting works, and every limit can be disabled.
func TestZeroValuesWork(t *testing.T) {
	for _, tm := range []timer.Timer{
		{Name: "a", Run: nop},
		{Name: "a", Run: nop, MaxConcurrency: timer.NoLimit, MaxPerTick: timer.NoLimit, MaxPerHost: timer.NoLimit},
		{Name: "a", Run: nop, MaxConcurrency: 10_000, MaxPerTick: 10_000, MaxPerHost: 10_000},
		{Name: "a", Run: nop, MaxConcurrency: 2, MaxPerHost: timer.NoLimit},
	} {
		if _, err := timer.New(timer.Config{Store: memlock.New()}, tm); err != nil {
			t.Error(err)
		}
	}
}

// A MaxConcurrency above 1 never implies how often each tick runs. Hosts that share ticks have to
// set MaxPerTick, and the error shows the lines to choose from.
//
// Fails when checkPerTick finds no fault, or finds one in a timer that does not share ticks.
func TestMaxPerTickIsSaid(t *testing.T) {
	every := schedule.Every(time.Minute)
	several := timer.Timer{Name: "a", Run: nop, Schedule: every, MaxConcurrency: 3}
	const lines = "MaxConcurrency: 3. Add one of these lines:\n\tMaxPerTick: 1, // each tick runs once in the fleet\n" +
		"\tMaxPerTick: 3, // up to 3 hosts run each tick"
	store := timer.Config{Store: memlock.New()}
	refuses := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", what, err, want)
		}
	}
	_, err := timer.New(store, several)
	refuses("New", err, lines)
	host, err := timer.New(store)
	if err != nil {
		t.Fatal(err)
	}
	refuses("Register", host.Register(several), lines)
	if err := host.Register(timer.Timer{Name: "a", Run: nop, MaxConcurrency: 3}); err != nil {
		t.Errorf("only triggered: %v", err)
	}
	refuses("Update", host.Update(several), lines)
	unlimited := several
	unlimited.MaxConcurrency = timer.NoLimit
	_, err = timer.New(store, unlimited)
	refuses("NoLimit", err, "\tMaxPerTick: timer.NoLimit, // every host runs each tick")
	for what, change := range map[string]func(*timer.Timer){
		"1":              func(tm *timer.Timer) { tm.MaxPerTick = 1 },
		"3":              func(tm *timer.Timer) { tm.MaxPerTick = 3 },
		"NoLimit":        func(tm *timer.Timer) { tm.MaxPerTick = timer.NoLimit },
		"only triggered": func(tm *timer.Timer) { tm.Schedule = nil },
		"one at a time":  func(tm *timer.Timer) { tm.MaxConcurrency = 1 },
		"a delay":        func(tm *timer.Timer) { tm.Schedule, tm.MaxConcurrency = schedule.After(time.Minute), 0 },
		"LocalOnly":      func(tm *timer.Timer) { tm.LocalOnly = true },
	} {
		tm := several
		change(&tm)
		if _, err := timer.New(store, tm); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := timer.New(timer.Config{}, several); err != nil {
		t.Errorf("without a store: %v", err)
	}
}

// Every limit has a safe default.
//
// Fails when a default differs from the comment of its field.
func TestDefaults(t *testing.T) {
	s, err := timer.New(timer.Config{}, timer.Timer{Name: "plain", Run: nop},
		timer.Timer{Name: "three", Run: nop, MaxConcurrency: 3})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"plain": 1, "three": 3} {
		if st, _ := s.Status().Timer(name); st.MaxConcurrency != want || st.MaxPerTick != want ||
			st.MaxPerHost != want {
			t.Errorf("%+v, want %d everywhere", st, want)
		}
	}
	if timer.DefaultMaxRunTime != time.Hour || timer.DefaultDrainTimeout != 30*time.Second ||
		timer.CancelGrace != 5*time.Second {
		t.Error("a constant differs from its comment")
	}
}

// Any name is either refused with a reason or works. Two different names are two timers.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"a", "{", "}", "{}", "a:b", "*", `"'`, "\n", "🕰🕰", "a:slot:0", ":slot", "%s%n",
		"'; DROP TABLE x;--", strings.Repeat("é", 101), "\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		store := memlock.New()
		other := timer.Timer{Name: "other", Run: nop}
		s, err := timer.New(timer.Config{Store: store}, timer.Timer{Name: name, Run: nop}, other)
		if err != nil {
			if !strings.Contains(err.Error(), "Name: ") {
				t.Errorf("%q: refused without naming the field: %v", name, err)
			}
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		<-s.Running()
		for _, n := range []string{name, "other"} {
			if _, err := s.Trigger(ctx, n, timer.TriggerOptions{}); err != nil { // neither takes the other's only slot
				t.Errorf("%q: %v", n, err)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%q: %v", name, err)
		}
	})
}
