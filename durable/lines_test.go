package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// At Debug, each cycle of a worker logs what it found, and each run logs lines with the name of its
// worker, as in the run's rows. At Info there are no such lines.
//
// Fails when a line that doc.go lists changes its text or loses a key.
func TestLinesInTheLog(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		t.Run(level.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				f.level = level
				for _, name := range []string{"ann", "ben"} {
					h := f.add(durable.Config{Name: name}).handle("report", func(_ context.Context,
						run *durable.Run) error {
						if run.Attempt == 1 {
							return durable.RetryAfter(time.Second, errors.New("no paper"))
						}
						return nil
					}, durable.HandlerOptions{}).schedule("often", "report", everyMinute, durable.ScheduleOptions{})
					h.link.on(func(op string) (fault, time.Duration) {
						// Both workers see the tick before one of them queues it.
						if op == "due" {
							return answer, 100 * time.Millisecond
						}
						return well, 0
					})
					h.start()
				}
				pass(10 * time.Minute)
				f.end()
				log := f.hosts[0].log.String() + f.hosts[1].log.String()
				for line, keys := range map[string]string{
					"materialize cycle starting":                 "",
					"materialize cycle completed":                "due queued",
					"ticks materialized":                         "schedule queued coalesced skipped paused",
					"ticks already materialized by another":      "schedule",
					"claim cycle starting":                       "room",
					"claim cycle completed":                      "claimed",
					"run started":                                "run handler schedule due_at attempt worker",
					"an attempt failed: the run will be retried": "run handler attempt worker outcome err retry_in",
					"run ended":                                  "run handler schedule attempt worker outcome took",
				} {
					found := ""
					for l := range strings.Lines(log) {
						if strings.Contains(l, "durable: "+line) {
							found = l
						}
					}
					always := strings.HasPrefix(line, "an attempt failed")
					if (found != "") != (always || level == slog.LevelDebug) {
						t.Errorf("%q: %q", line, found)
					}
					for _, key := range strings.Fields(keys) {
						if found != "" && !strings.Contains(found, " "+key+"=") {
							t.Errorf("no %s in %q", key, found)
						}
					}
				}
				run, attempts := f.run(f.runs(store.StateSucceeded)[0].ID)
				if run.Worker != "ann" && run.Worker != "ben" || attempts[1].Worker != run.Worker {
					t.Errorf("%+v, %+v", run, attempts)
				}
			})
		})
	}
}

// The default name of a worker consists of its host, its process, and a random part.
//
// Fails when two workers of one process, or of two containers, have the same name.
func TestDefaultNameOfAWorker(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	name := func() string {
		w, err := durable.NewWorker(durable.NewStore(f.store), durable.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return w.Status().Name
	}
	a, b := name(), name()
	host, _ := os.Hostname()
	if prefix := fmt.Sprintf("%s/%d/", host, os.Getpid()); a == b || !strings.HasPrefix(a, prefix) ||
		!strings.HasPrefix(b, prefix) {
		t.Errorf("%q and %q, want each to begin with %q", a, b, prefix)
	}
}

// The registry of a fleet shows a worker and its loops, as it shows leaders.
//
// Fails when a loop is missing, or when its state does not reflect its calls.
func TestRegistryShowsAWorker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{Name: "ann"}).handle("report", sleeps(0), durable.HandlerOptions{}).start()
		registry, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore(),
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer registry.Add(h.Worker)()
		pass(time.Minute)
		shown := func() map[string]cluster.RunnerDetail {
			all := map[string]cluster.RunnerDetail{}
			s, err := registry.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range s.Runners {
				all[r.Kind] = r
			}
			return all
		}
		runners := shown()
		if w := runners["worker"]; w.Name != "ann" || w.State != "running" {
			t.Errorf("%+v", runners)
		}
		for _, kind := range []string{"materializer", "claimer", "renewer", "finisher", "reclaimer", "sweeper"} {
			if runners[kind].State != "working" {
				t.Errorf("%s: %+v", kind, runners[kind])
			}
		}
		h.link.set(refused, "claim")
		pass(time.Minute)
		failing := shown()["claimer"]
		if since := time.Since(failing.ChangedAt); failing.State != "failing" || since < 50*time.Second ||
			since > time.Minute || failing.Err == "" {
			t.Errorf("after a minute of failures: %+v", failing)
		}
		if w := shown()["reclaimer"]; w.State != "working" {
			t.Errorf("%+v", w)
		}
		h.link.set(well)
		pass(time.Minute)
		if again := shown()["claimer"]; again.State != "working" || !again.ChangedAt.After(failing.ChangedAt) {
			t.Errorf("after the failures: %+v", again)
		}
		f.end()
	})
}
