package timer_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// statusForJSON returns a Status in which one timer has every field set, and the other has as few
// fields set as possible.
func statusForJSON() timer.Status {
	berlin := time.FixedZone("CEST", 2*3600)
	at := func(hour int) time.Time { return time.Date(2026, 7, 1, hour, 30, 0, 500_000_000, berlin) }
	ann := driver.Cause{By: "ann", Note: "why"}
	return timer.Status{
		Phase: "running", Holder: dlock.Holder{Host: "web-1", PID: 17, ID: "k3x9"}, Hosts: 3,
		Limits:  []timer.LimitStatus{{Name: "smtp", Size: 3, SizeElsewhere: 4, Runs: 2, Rate: 100, Per: time.Minute}},
		Waiting: 6, DroppedEvents: 5,
		Store: timer.StoreStatus{Name: "redis", Up: true, NotSetUp: true, BreakerOpen: true, Err: "it fails",
			ChangedAt: at(1), ServersDown: []string{"10.0.0.1:6379"}},
		Timers: []timer.TimerStatus{{
			Name: "all", Schedule: "every 1h0m0s", Next: at(5), Ticks: 7, Started: 4,
			Skipped: map[timer.Reason]uint64{timer.ReasonFull: 2, timer.ReasonMissed: 1},
			Running: []timer.RunInfo{
				{ID: "2-17", Timer: "all", Tick: at(4), CaughtUp: true, OnStart: true, TriggeredBy: ann, PayloadLen: 6,
					Slot: 2, Fence: 17, Holder: dlock.Holder{Host: "web-1", PID: 17, ID: "k3x9"},
					StartedAt: at(4), Attempt: 2, Degraded: true, Valid: true, Overdue: true},
				{ID: "web-1/17/k3x9-1", Slot: -1, StartedAt: at(4), Attempt: 1},
			},
			Last: &timer.RunResult{
				RunInfo: timer.RunInfo{Timer: "all", Tick: at(3), OnStart: true, Slot: 1, StartedAt: at(3), Attempt: 3},
				Outcome: timer.OutcomeFailed, Took: 90*time.Second + 500*time.Millisecond, Err: errors.New("no luck")},
			Fallback: true, LastRunAt: at(4), LastSuccessAt: at(2), MaxConcurrency: 3, MaxPerTick: 2, MaxPerHost: 1,
			Limits:     []string{"smtp"},
			MaxRunTime: time.Minute, CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce, Window: time.Hour},
			RunOnStart: timer.RunOnStartOnce, OnFull: timer.FullWait, WaitingTick: at(4),
			OnStoreDown: timer.StoreDownSkip, LocalOnly: true, MaxAttempts: 4, AlarmAfter: 5, EffectiveLimit: 9,
			TicksSinceSuccess: 2, LimitElsewhere: 8, LimitOverride: 6,
			Triggers: []control.PendingTrigger{{By: ann, PayloadLen: 6, Age: time.Minute, ExpiresIn: 30 * time.Second,
				TakenBy: dlock.Holder{Host: "web-2", PID: 3, ID: "j1"}}}, ExpiredTriggers: 2,
			Paused: &timer.PauseStatus{Cause: ann, Until: at(6)}, StoreFault: "a fault", Removed: true,
			ScheduleError: "it panicked",
		}, {
			Name: "none", MaxConcurrency: timer.NoLimit, MaxPerTick: timer.NoLimit, MaxPerHost: timer.NoLimit,
			EffectiveLimit: timer.NoLimit, MaxRunTime: timer.NoLimit, AlarmAfter: timer.NoLimit, MaxAttempts: 1,
			CatchUp: timer.CatchUp{Policy: timer.CatchUpSkip, Window: timer.NoLimit},
		}},
	}
}

// The JSON of a Status equals testdata/status.json. Programs in other languages read it, so any
// change is an API change. To accept a change, run the test with UPDATE_GOLDEN=1.
//
// Fails when a name or a unit changes.
func TestStatusJSON(t *testing.T) {
	got, err := json.MarshalIndent(statusForJSON(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	const golden = "testdata/status.json"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// The JSON of a Status has every field that is set.
//
// Fails when a field is added to a type but not to its MarshalJSON.
func TestStatusJSONHasEveryField(t *testing.T) {
	st := statusForJSON()
	all := st.Timers[0]
	marshal := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	check := func(v any, text []byte, leftOut ...string) {
		typ, exported := reflect.TypeOf(v), 0
		for f := range typ.Fields() {
			switch {
			case slices.Contains(leftOut, f.Name):
			case f.Anonymous:
				exported += f.Type.NumField()
			case f.IsExported():
				exported++
				if reflect.ValueOf(v).FieldByIndex(f.Index).IsZero() {
					t.Errorf("%s.%s is not set: set it in statusForJSON", typ, f.Name)
				}
			}
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if len(fields) != exported {
			t.Errorf("%s has %d fields, and %d in JSON: %s", typ, exported, len(fields), text)
		}
	}
	for _, v := range []any{st, st.Store, st.Limits[0], all, *all.Paused, all.Triggers[0]} {
		check(v, marshal(v))
	}
	var runs struct {
		Running []json.RawMessage
		Last    map[string]any
	}
	if err := json.Unmarshal(marshal(all), &runs); err != nil {
		t.Fatal(err)
	}
	check(all.Running[0], runs.Running[0], "Timer", "Holder") // they are in the enclosing Status
	last := runs.Last
	for _, name := range []string{"tick", "on_start", "started_at", "attempts"} { // the known fields of its RunInfo
		if last[name] == nil {
			t.Errorf("the last run has no %s in JSON: %v", name, last)
		}
		delete(last, name)
	}
	check(*all.Last, marshal(last), "RunInfo")
}

// The JSON of a running host has no sentinel values: no largest number for "no limit", no year 1
// for "never", and no empty object for an error, even if the error panics.
//
// Fails when a type without MarshalJSON is added, or when a limit is not converted back to NoLimit.
func TestStatusJSONIsClean(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{},
			timer.Timer{Name: "free", Schedule: schedule.Every(time.Second), MaxConcurrency: timer.NoLimit,
				MaxPerTick: timer.NoLimit, MaxPerHost: timer.NoLimit, MaxRunTime: timer.NoLimit,
				AlarmAfter: timer.NoLimit, CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce, Window: timer.NoLimit},
				Run: func(ctx context.Context) error { return hostile{} }},
			timer.Timer{Name: "fails", Schedule: schedule.Every(time.Second),
				Run: func(ctx context.Context) error { return errors.New("no luck") }},
			timer.Timer{Name: "panics", Schedule: schedule.Every(time.Second),
				Run: func(ctx context.Context) error { panic("no luck") }},
			timer.Timer{Name: "idle", Run: f.handler(0)},
			timer.Timer{Name: "goes on", Schedule: schedule.Every(time.Second), Run: f.handler(10 * time.Minute)},
		)
		clean := func(when string) {
			t.Helper()
			text, err := json.Marshal(h.Status())
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range []string{"922337203685477", "9223372036", "0001-01-01", ":-1", `:{}`, `"Err"`, "null,null"} {
				if strings.Contains(strings.ReplaceAll(string(text), `"skipped":{}`, ""), bad) {
					t.Errorf("%s: %s in %s", when, bad, text)
				}
			}
			if when == "after a while" && (strings.Count(string(text), `"err":"no luck"`) != 1 ||
				!strings.Contains(string(text), `"err":"the handler panicked: no luck"`)) {
				t.Errorf("errors: %s", text)
			}
		}
		clean("at the start")
		time.Sleep(time.Minute)
		clean("after a while")
		h.Link.Inject(dlocktest.Hang)
		time.Sleep(time.Minute)
		clean("in an outage")
		h.Link.Heal()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		f.Stop()
		clean("after the end")
	})
}
