package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/health"
)

var (
	_ health.Source  = (*durable.Worker)(nil)
	_ cluster.Runner = (*durable.Worker)(nil)
)

// Hooks, metrics and Status report the same events.
//
// Fails when one of them misses an event, or a time series is renamed.
func TestViews(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		registry := prometheus.NewPedanticRegistry()
		var told []string
		tell := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
		h := f.add(durable.Config{Name: "me", Registerer: registry, Hooks: durable.Hooks{
			RunStarted: func(i durable.RunInfo) { tell("started %d.%d %s", i.ID, i.Attempt, i.TriggeredBy.By) },
			AttemptFailed: func(i durable.AttemptInfo) {
				tell("failed %d.%d %s %v", i.ID, i.Attempt, i.Outcome, i.Err)
			},
			RunEnded: func(i durable.RunResult) {
				tell("ended %d.%d %s %s %v", i.ID, i.Attempt, i.State, i.Outcome,
					i.Err)
			},
			RunReclaimed: func(i durable.RunInfo) {
				tell("reclaimed %d.%d from %s", i.ID, i.Attempt, i.Worker)
			},
			TicksMaterialized: func(i durable.TicksInfo) { tell("ticks of %s: %d", i.Schedule, i.Queued) },
		}}).handle("report", func(ctx context.Context, run *durable.Run) error {
			if run.Attempt == 1 {
				return durable.RetryAfter(time.Minute, errors.New("oops"))
			}
			return sleeps(2*time.Minute)(ctx, run)
		}, durable.HandlerOptions{}).schedule("often", "other", everyMinute, durable.ScheduleOptions{}).
			handle("other", sleeps(time.Second), durable.HandlerOptions{}).start()
		other := f.add(durable.Config{Name: "other"}).handle("slow", sleeps(time.Hour),
			durable.HandlerOptions{}).start()
		f.trigger("report", durable.TriggerOptions{By: driver.Cause{By: "me"}})
		slow := f.trigger("slow", durable.TriggerOptions{})
		f.trigger("nobody", durable.TriggerOptions{})
		pass(5 * time.Second)
		other.kill()
		pass(110 * time.Second) // until after the second attempt and the sample that follows it
		s := h.Status()
		if len(s.Running) != 1 || s.Running[0].Attempt != 2 || !s.Running[0].Valid || s.Places != 1 ||
			s.Phase != "running" {
			t.Errorf("%+v", s)
		}
		if text, err := json.Marshal(s); err != nil || !strings.Contains(string(text),
			`"database":{"name":"memory","up":true`) {
			t.Errorf("%s, %v", text, err)
		}
		checkMetrics(t, registry, `
			tickslot_durable_attempts_total{handler="report",outcome="error"} 1
			tickslot_durable_runs_active{handler="report"} 1
			tickslot_durable_runs_active{handler="other"} 0
			tickslot_durable_runs_reclaimed_total 1
			tickslot_durable_runs{handler="nobody",state="queued"} 1
			tickslot_durable_runs{handler="slow",state="queued"} 1
			tickslot_durable_runs{handler="report",state="running"} 1
			tickslot_durable_database_up 1
			tickslot_durable_leases_lost_total{handler="report"} 0`)
		if n, err := testutil.GatherAndCount(registry, "tickslot_durable_oldest_due_age_seconds"); n != 4 ||
			err != nil {
			t.Errorf("%d ages, %v", n, err)
		}
		var runners []string
		h.Runners(func(kind, name, state string, _ time.Time, err error) {
			runners = append(runners, fmt.Sprint(kind, " ", name, " ", state, " ", err))
		})
		if !slices.Contains(runners, "worker me running <nil>") || !slices.Contains(runners,
			"renewer  working <nil>") {
			t.Errorf("%q", runners)
		}
		pass(2 * time.Minute)
		h.stop()
		f.end()
		for _, want := range []string{"started 1.1 me", "failed 1.1 error oops", "started 1.2 me",
			"ended 1.2 succeeded ok <nil>",
			fmt.Sprintf("reclaimed %d.1 from other", slow), "ticks of often: 1"} {
			if !slices.Contains(told, want) {
				t.Errorf("no hook was called with %q: %q", want, told)
			}
		}
		if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
			t.Errorf("%d series after the end, %v", n, err)
		}
	})
}

// checkMetrics fails the test unless the registry has the samples in want, one per line.
func checkMetrics(t *testing.T, registry *prometheus.Registry, want string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			line := family.GetName()
			if labels != nil {
				line += "{" + strings.Join(labels, ",") + "}"
			}
			fmt.Fprintf(&got, "%s %v\n", line, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	for line := range strings.Lines(strings.TrimSpace(want)) {
		if line = strings.TrimSpace(line); !strings.Contains(got.String(), line+"\n") {
			t.Errorf("there is no %s in\n%s", line, got.String())
		}
	}
}

// A check fails while an operator has to look into a problem: runs that wait too long, dead
// letters, or a handler that no worker has. Checks read only memory.
//
// Fails when a check does not notice such a problem, or calls the database.
func TestChecks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{MaxRuns: 1, MaxDead: 1, MaxDueAge: time.Minute}).
			handle("report", sleeps(10*time.Minute), durable.HandlerOptions{}).
			handle("bad", func(context.Context, *durable.Run) error { return durable.Permanent(errors.New("no")) },
				durable.HandlerOptions{}).start()
		checks := h.Checks()
		check := func(when, name, want string) {
			t.Helper()
			before := h.link.count("stats")
			err := checks[name]()
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %s: %v, want %q", when, name, err, want)
			}
			if h.link.count("stats") != before {
				t.Error("a probe has called the database")
			}
		}
		for name := range checks {
			check("at first", name, "")
		}
		f.trigger("bad", durable.TriggerOptions{})
		pass(time.Minute)
		check("one dead letter", "few-dead-runs", "")
		f.trigger("bad", durable.TriggerOptions{})
		pass(time.Minute)
		check("two dead letters", "few-dead-runs", "2 dead letters, more than 1: [bad: 2]")
		f.trigger("report", durable.TriggerOptions{})
		f.trigger("report", durable.TriggerOptions{})
		f.trigger("typo", durable.TriggerOptions{})
		pass(3 * time.Minute)
		check("a run waits", "runs-on-time", `handler "report": a run has been due for`)
		check("a run waits, its worker lives", "runs-on-time", "the workers that have it are busy")
		check("a run waits, nobody has it", "runs-on-time", "no worker that has it is alive: start one")
		check("nobody has the handler", "handlers-have-workers", `no worker knows handler "typo": 1 run waits`)
		f.add(durable.Config{}).handle("typo", sleeps(0), durable.HandlerOptions{}).start()
		_, _, err := f.store.Requeue(t.Context(), store.Filter{IDs: []int64{1}}, store.Cause{By: "me"}, 10)
		if err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Minute)
		for _, name := range []string{"runs-on-time", "handlers-have-workers", "database-answers", "leases-renewed",
			"schedules-work"} {
			check("in the end", name, "")
		}
		if run, attempts := f.run(1); run.State != store.StateDead || len(attempts) != 2 {
			t.Errorf("requeued: %+v, %+v", run, attempts)
		}
		f.end()
	})
}

// Rows are deleted after their retention and not earlier.
//
// Fails when a worker deletes nothing, or deletes young rows.
func TestRetention(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		f.add(durable.Config{PollInterval: time.Hour, Retention: durable.Retention{Succeeded: time.Hour,
			Dead: durable.NoLimit, Canceled: 3 * time.Hour}, SweepInterval: 10 * time.Minute}).
			handle("good", sleeps(0), durable.HandlerOptions{}).
			handle("bad", func(context.Context, *durable.Run) error { return durable.Permanent(errors.New("no")) },
				durable.HandlerOptions{})
		for _, handler := range []string{"good", "bad", "nobody"} {
			f.trigger(handler, durable.TriggerOptions{})
		}
		if _, err := f.store.Cancel(t.Context(), 3, store.Cause{By: "me"}); err != nil {
			t.Fatal(err)
		}
		f.hosts[0].start()
		for _, c := range []struct {
			after time.Duration
			left  int
		}{{55 * time.Minute, 3}, {90 * time.Minute, 2}, {170 * time.Minute, 2}, {210 * time.Minute, 1}, {20 * time.Hour,
			1}} {
			pass(c.after - time.Since(f.runs()[len(f.runs())-1].CreatedAt))
			if left := f.runs(); len(left) != c.left {
				t.Errorf("after %v: %+v", c.after, left)
			}
		}
		f.end()
	})
}

// An oldRows is a store in which many rows are too old.
type oldRows struct {
	store.Store
	left        int
	began, done time.Time
}

func (o *oldRows) Sweep(_ context.Context, _ store.Retention, limit int) (int, error) {
	if o.began.IsZero() {
		o.began = time.Now()
	}
	n := min(limit, o.left)
	if o.left -= n; o.left == 0 && o.done.IsZero() {
		o.done = time.Now()
	}
	return n, nil
}

// One worker deletes old runs faster than it can execute new ones, which is a few thousand per
// second.
//
// Fails when the pauses between full batches are so long that a busy table grows forever.
func TestSweepKeepsUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.add(durable.Config{}).handle("good", sleeps(0), durable.HandlerOptions{})
		old := &oldRows{Store: f.store, left: 100_000}
		h.link.Store = old
		h.start()
		pass(10 * time.Minute)
		f.end()
		if took := old.done.Sub(old.began); old.done.IsZero() || took > 25*time.Second {
			t.Errorf("deleting 100,000 rows took %v, and %d are left", took, old.left)
		}
	})
}

// A JSON handler gets the decoded payload, or the zero value if the payload is empty. If the
// payload does not match the type, the attempt fails.
//
// Fails when a payload that does not match counts as a success.
func TestJSON(t *testing.T) {
	var got []int
	handler := durable.JSON(func(_ context.Context, payload struct{ N int }) error {
		got = append(got, payload.N)
		return nil
	})
	for payload, fits := range map[string]bool{`{"N":7}`: true, ``: true, `{"N":"x"}`: false, `[]`: false, `{`: false} {
		if err := handler(t.Context(), &durable.Run{Payload: []byte(payload)}); (err == nil) != fits {
			t.Errorf("%q: %v", payload, err)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []int{0, 7}) {
		t.Errorf("%v", got)
	}
	if durable.JSON[int](nil) != nil {
		t.Error("JSON of a nil handler is not nil")
	}
}

// Code called by a handler finds the run in the context, also in a unit test.
//
// Fails when the context lacks the run.
func TestRunFromContext(t *testing.T) {
	if _, ok := durable.RunFromContext(t.Context()); ok {
		t.Error("a context without a run returned a run")
	}
	run := &durable.Run{ID: 7}
	if got, ok := durable.RunFromContext(durable.ContextWithRun(t.Context(), run)); !ok || got != run || !got.Valid() {
		t.Errorf("%+v, %v", got, ok)
	}
}

// Middleware wraps each handler once, the first outermost, and sees every attempt.
//
// Fails when the order is wrong.
func TestMiddleware(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var order []string
		around := func(name string) durable.Middleware {
			return func(next durable.Handler) durable.Handler {
				order = append(order, "wrap "+name)
				return func(ctx context.Context, run *durable.Run) error {
					order = append(order, name)
					return next(ctx, run)
				}
			}
		}
		f.add(durable.Config{Middleware: []durable.Middleware{around("a"), around("b")}}).
			handle("report", sleeps(0), durable.HandlerOptions{}).start()
		f.trigger("report", durable.TriggerOptions{})
		pass(time.Second)
		f.end()
		if got := strings.Join(order, ", "); got != "wrap b, wrap a, a, b" {
			t.Error(got)
		}
	})
}
