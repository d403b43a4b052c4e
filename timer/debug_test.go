package timer_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// linesOf returns the attributes of all lines with that text.
func linesOf(t *testing.T, log *testkit.Log, text string) (found []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var attrs map[string]any
		if err := json.Unmarshal([]byte(line), &attrs); err != nil {
			t.Fatal(err)
		}
		if attrs["msg"] == text {
			found = append(found, attrs)
		}
	}
	return found
}

// At Debug, each run has a line when it starts and a line when it ends, and each skipped tick has a
// line, with the keys that doc.go documents. At Info only failures have lines, with the same keys.
// The level may change while the scheduler runs.
//
// Fails when askDebug asks only once, when a line loses a key, or when skips are logged at Info.
func TestDebugLinesHaveStableKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		var level slog.LevelVar
		f := newFleet(t)
		h := f.start(timer.Config{Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: &level}))},
			timer.Timer{Name: "long", Schedule: schedule.Every(time.Second), Run: f.handler(1500 * time.Millisecond)},
			timer.Timer{Name: "fails", Schedule: schedule.Every(10 * time.Second), MaxConcurrency: 2, MaxPerTick: 1,
				Run: func(context.Context) error { return errors.New("no") }},
			timer.Timer{Name: "full", Schedule: schedule.Every(10 * time.Second), Run: nop})
		lease, err := otherSession(t, f.store).Semaphore("timer:full", 1).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		log.Reset()
		time.Sleep(30 * time.Second)
		for _, text := range []string{"timer: run started", "timer: run ended", "timer: tick skipped"} {
			if n := len(linesOf(t, &log, text)); n != 0 {
				t.Errorf("%q has %d lines at Info", text, n)
			}
		}
		if n := len(linesOf(t, &log, "timer: run failed")); n != 3 {
			t.Errorf("%d lines of three runs that failed", n)
		}
		level.Set(slog.LevelDebug)
		time.Sleep(time.Second)
		log.Reset()
		before, _ := h.Status().Timer("long")
		trigger(t, h, "fails")
		time.Sleep(60 * time.Second)
		after, _ := h.Status().Timer("long")
		byTimer := func(text, name string) (found []map[string]any) {
			for _, l := range linesOf(t, &log, text) {
				if l["timer"] == name {
					found = append(found, l)
				}
			}
			return found
		}
		started, ended := byTimer("timer: run started", "long"), byTimer("timer: run ended", "long")
		skipped, full := byTimer("timer: tick skipped", "long"), byTimer("timer: tick skipped", "full")
		failed := linesOf(t, &log, "timer: run failed")
		if uint64(len(started)) != after.Started-before.Started ||
			uint64(len(skipped)) != after.Skipped[timer.ReasonHostFull]-before.Skipped[timer.ReasonHostFull] ||
			len(ended) < len(started)-1 || len(full) != 6 || len(failed) != 7 {
			t.Fatalf("%d lines of starts, %d of ends, %d and %d of skips, %d of failures", len(started), len(ended),
				len(skipped), len(full), len(failed))
		}
		for what, c := range map[string]struct {
			line        map[string]any
			level, keys string
		}{
			"started":               {started[0], "DEBUG", "timer tick slot fence holder attempt"},
			"ended":                 {ended[0], "DEBUG", "timer tick slot fence holder attempt outcome took"},
			"skipped":               {skipped[0], "DEBUG", "timer tick reason"},
			"full":                  {full[0], "DEBUG", "timer tick reason holder err"},
			"failed":                {failed[1], "ERROR", "timer tick slot fence holder attempt outcome took err"},
			"failed when triggered": {failed[0], "ERROR", "timer slot fence holder attempt outcome took err"},
		} {
			for _, key := range strings.Fields(c.keys) {
				if _, ok := c.line[key]; !ok {
					t.Errorf("%s: no %s in %v", what, key, c.line)
				}
			}
			if len(c.line) != 3+len(strings.Fields(c.keys)) || c.line["level"] != c.level {
				t.Errorf("%s: %v", what, c.line)
			}
		}
		if s := started[0]; s["holder"] != h.Status().Holder.String() || s["fence"] == 0. || s["attempt"] != 1. {
			t.Errorf("started: %v", s)
		}
		if s := full[0]; s["reason"] != "full" || !strings.HasPrefix(s["holder"].(string), "other/1/") {
			t.Errorf("full: %v", s)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		f.Stop()
	})
}

// The lines of a triggered run say who triggered it and the length of its payload. The lines of a
// repeated attempt and of a lost lease also have their keys.
//
// Fails when a line loses a key.
func TestDebugLinesOfWhatIsRare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		debug := &slog.HandlerOptions{Level: slog.LevelDebug}
		h := f.start(timer.Config{Logger: slog.New(slog.NewJSONHandler(&log, debug))},
			timer.Timer{Name: "a", OnStoreDown: timer.StoreDownSkip, Retry: timer.Retry{MaxAttempts: 2},
				Run: func(ctx context.Context) error {
					if r, _ := timer.RunFromContext(ctx); r.Attempt() == 1 {
						return errFlaky
					}
					<-ctx.Done()
					return nil
				}})
		options := timer.TriggerOptions{By: ann, Payload: []byte("four")}
		if _, err := h.Scheduler.Trigger(t.Context(), "a", options); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		h.Link.Inject(down)
		time.Sleep(time.Minute)
		f.Stop()
		const run = "timer by note payload_bytes slot fence holder attempt "
		for text, c := range map[string]struct{ level, keys string }{
			"timer: run started": {"DEBUG", run},
			"timer: an attempt failed: the run will be retried": {"INFO", run + "of retry_in err"},
			"timer: lease lost": {"WARN", run + "goes_on err"},
			"timer: run ended":  {"INFO", run + "outcome took"},
		} {
			found := linesOf(t, &log, text)
			if len(found) != 1 {
				t.Errorf("%q has %d lines", text, len(found))
				continue
			}
			for _, key := range strings.Fields(c.keys) {
				if _, ok := found[0][key]; !ok {
					t.Errorf("%s: no %s in %v", text, key, found[0])
				}
			}
			if len(found[0]) != 3+len(strings.Fields(c.keys)) || found[0]["level"] != c.level ||
				found[0]["by"] != ann.By || found[0]["payload_bytes"] != 4. {
				t.Errorf("%s: %v", text, found[0])
			}
		}
	})
}

// Missed ticks share one line with their number.
//
// Fails when ticksSkipped omits the number.
func TestDebugLineOfManyMissedTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		options := &slog.HandlerOptions{Level: slog.LevelDebug}
		h := f.start(timer.Config{Logger: slog.New(slog.NewJSONHandler(&log, options))},
			timer.Timer{Name: "a", Schedule: schedule.Every(time.Second), LocalOnly: true, Run: nop})
		time.Sleep(10 * time.Second)
		log.Reset()
		timer.SetSkew(h.Scheduler, time.Hour)
		time.Sleep(2 * time.Second)
		f.Stop()
		ticks := 0.
		for _, l := range linesOf(t, &log, "timer: tick skipped") {
			if l["reason"] != "missed" {
				t.Errorf("%v", l)
			}
			n, ok := l["ticks"].(float64)
			if !ok {
				n = 1
			}
			ticks += n
		}
		if st, _ := h.Status().Timer("a"); ticks < 3590 || uint64(ticks) != st.Skipped[timer.ReasonMissed] {
			t.Errorf("lines report %v ticks, want %d", ticks, st.Skipped[timer.ReasonMissed])
		}
	})
}
