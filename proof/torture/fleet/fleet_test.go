//go:build linux && amd64

package main

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// Fails when a plan depends on more than its seed, or a plan for half an hour omits a fault or
// contains an unknown one.
func TestPlan(t *testing.T) {
	all := map[string]bool{}
	for kind, faults := range storeFaults {
		timing, err := timingOf(kind)
		if err != nil {
			t.Fatal(err)
		}
		one := plan(kind, 1, 6, doors, 8*time.Minute, timing)
		if again := plan(kind, 1, 6, doors, 8*time.Minute, timing); !reflect.DeepEqual(one, again) {
			t.Errorf("%s: two plans from one seed", kind)
		}
		if other := plan(kind, 2, 6, doors, 8*time.Minute, timing); reflect.DeepEqual(one, other) {
			t.Errorf("%s: one plan from two seeds", kind)
		}
		got := map[string]bool{}
		for _, f := range one {
			got[f.Kind], all[f.Kind] = true, true
		}
		if got[clocksStep] != (kind == "redis") {
			t.Errorf("%s: %s: %v", kind, clocksStep, got[clocksStep])
		}
		for _, want := range slices.Concat(faults, hostFaults, registryFaults, []string{"limit_changed"}) {
			if machine := kind == "sqlite" && want == "wall_clock_jump"; got[want] == machine {
				t.Errorf("%s: %s: %v", kind, want, got[want])
			}
		}
		if len(one) < 130 {
			t.Errorf("%s: %d faults", kind, len(one))
		}
	}
	if len(all) < 12 {
		t.Errorf("%d kinds of faults", len(all))
	}
}

// Fails when a torture that did almost nothing passes, one that did enough does not, or a violation
// passes.
func TestTooWeak(t *testing.T) {
	weak := report{}
	weak.judge(nil, torture.Rules{TTL: time.Second})
	slices.Sort(weak.TooWeak)
	want := []string{"faults", "leader_terms", "lock_histories", "n_reached_share", "registry_warnings", "runs"}
	if !slices.Equal(weak.TooWeak, want) || weak.ok() {
		t.Errorf("nothing at all is too weak for %v, want %v", weak.TooWeak, want)
	}
	ms := int64(time.Millisecond)
	enough := func() []torture.Line {
		lines := []torture.Line{
			{Kind: torture.Born, Target: "h", Timers: []torture.TimerLine{{Name: "a", Limit: 1, PerTick: 1}},
				Roles: []torture.TimerLine{{Name: "r", Limit: 1}}},
			{Kind: torture.Status, Host: "h", At: 1}, {Kind: torture.Status, Host: "h", At: 6000 * ms},
			{Kind: torture.RegistryFails, Host: "h", At: 2},
			{Kind: torture.Locked, Op: &torture.Op{Op: "acquire", Name: "x", Slots: 1, Token: "t", Result: "ok",
				Call: 1, Return: 2}}}
		for i := range int64(600) {
			lines = append(lines, torture.Line{Kind: torture.Seen, Host: "h", Run: i, Timer: "a", Fence: i + 1,
				First: i * 10 * ms, Last: (i*10 + 9) * ms, At: i*10*ms + 9*ms})
		}
		for i := range int64(20) {
			lines = append(lines, torture.Line{Kind: torture.Seen, Host: "h", Run: 1000 + i, Timer: "r", Fence: i + 1,
				First: i * 10 * ms, Last: (i*10 + 9) * ms, At: i*10*ms + 9*ms})
		}
		return lines
	}
	strong := report{Faults: 10}
	strong.judge(enough(), torture.Rules{TTL: time.Second})
	if !strong.ok() {
		t.Errorf("%v, %v", strong.TooWeak, strong.Broken)
	}
	broken := report{Faults: 10}
	broken.judge(append(enough(), torture.Line{Kind: torture.Seen, Host: "i", Timer: "a", Slot: 1, Fence: 9000,
		First: 5 * ms, Last: 8 * ms}), torture.Rules{TTL: time.Second})
	if broken.ok() || broken.OverLimit != 1 {
		t.Errorf("two runs at once passed: %+v", broken)
	}
	second := torture.Op{ID: 1, Op: "acquire", Name: "x", Slots: 1, Token: "u", Result: "ok", Call: 3, Return: 4}
	broken = report{Faults: 10}
	broken.judge(append(enough(), torture.Line{Kind: torture.Locked, Op: &second}), torture.Rules{TTL: time.Second})
	if broken.ok() || broken.Linearizable {
		t.Errorf("a lock granted twice passed: %+v", broken)
	}
}

// Fails when an unknown call is given up before the end of a fault that may hold it, or because of
// faults of others.
func TestCarriedOut(t *testing.T) {
	s := int64(time.Second)
	fault := func(target string, from, to int64) torture.Line {
		return torture.Line{Kind: torture.Fault, Fault: "done:x", Target: target, First: from * s, Last: to * s}
	}
	ceased := carriedOut([]torture.Line{fault("clients-1", 30, 40), fault("store", 12, 15), fault("clients-0", 0, 11),
		fault("host-0", 0, 100), fault("clients-0", 50, 60)})
	if got := ceased(torture.Op{Call: 10 * s, Return: 10 * s}); got != 17*s {
		t.Errorf("until %v, want 17s", time.Duration(got))
	}
	if got := ceased(torture.Op{Call: 29 * s, Return: 30 * s, Client: clientsPerDoor}); got != 42*s {
		t.Errorf("until %v, want 42s", time.Duration(got))
	}
}

// Fails when the wall clock cannot be set, or another clock changes with it.
func TestWallClock(t *testing.T) {
	w, err := newWallClock()
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		before, at := time.Now(), nemesis.Mono()
		w.jump(by)
		now, passed := time.Now(), time.Duration(nemesis.Mono()-at)
		if shown := now.Round(0).Sub(before.Round(0)); shown < by || shown > by+time.Second {
			t.Errorf("set by %v, it shows %v", by, shown)
		}
		if d := now.Sub(before); d < 0 || d > time.Second || passed > time.Second {
			t.Errorf("set by %v, the monotonic clock shows %v, the kernel's %v", by, d, passed)
		}
	}
}
