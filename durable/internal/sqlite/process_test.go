//go:build unix

package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// Three processes share one file, and are killed one after the other at every statement that a
// worker executes: before it, and in the middle of it. What was committed is not lost, nothing is
// done twice, and no limit is exceeded.
//
// Fails when Finish writes the attempt and the state of a run in two transactions.
func TestProcessesAreKilledAtEveryStatement(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "durable.db")
	s := migrated(t, on(t, open(t, dsn(path))))
	ctx := t.Context()
	first := planFirst(t, s)
	for i := range 30 {
		if _, _, err := s.Insert(ctx, nil, store.NewRun{Handler: "orders", Key: fmt.Sprint("first-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	f := &fates{t: t, path: path, queued: map[string]int64{}, counted: map[store.RunKey]int{}}
	statements := f.statementsOfACycle()
	// All of them, or a few, which are not always the same.
	all, n := int(2*statements), testkit.Rounds(t, 4, int(2*statements))
	offset := time.Now().Nanosecond()
	for i := range n {
		k := (offset + i*all/n) % all
		f.kills = append(f.kills, kill{[]string{"before", "during"}[k%2], int64(1 + k/2)})
	}
	t.Logf("%d statements, %d kills", statements, len(f.kills))

	done := make(chan struct{})
	go func() { f.all(3); close(done) }()
	for looking := true; looking; {
		select {
		case <-done:
			looking = false
		case <-time.After(5 * time.Millisecond):
			f.withinLimits(ctx, s)
		}
	}
	drain(t, s)
	f.check(s, first)
}

// planFirst returns the first tick of the schedule.
func planFirst(t *testing.T, s store.Store) time.Time {
	t.Helper()
	if err := s.Register(t.Context(), []store.Handler{orders, mails}, []store.Schedule{ticks}, true); err != nil {
		t.Fatal(err)
	}
	due, err := s.Due(t.Context())
	if err != nil || len(due.Schedules) != 1 {
		t.Fatal(due, err)
	}
	first := due.Now.Add(period)
	done, err := s.Materialize(t.Context(), []store.Plan{{Schedule: due.Schedules[0], Handler: "mails", Next: first}})
	if err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	return first
}

type kill struct {
	when string
	at   int64
}

// fates collects what became of processes, and what they have said.
type fates struct {
	t     *testing.T
	path  string
	kills []kill

	mu      sync.Mutex       // of the goroutines that read
	queued  map[string]int64 // IDs by key: Insert has returned
	counted map[store.RunKey]int
}

func (f *fates) statementsOfACycle() (n int64) {
	p := startChild(f.t, "count", 0, f.path)
	for p.lines.Scan() {
		if _, err := fmt.Sscanf(p.lines.Text(), "statements %d", &n); err != nil {
			f.note(p.lines.Text())
		}
	}
	if n < 30 {
		f.t.Fatalf("a cycle has %d statements", n)
	}
	return n
}

// all has so many processes at a time killed, until all kills were done.
func (f *fates) all(processes int) {
	next := make(chan kill)
	var running sync.WaitGroup
	for range processes {
		running.Go(func() {
			for k := range next {
				p := startChild(f.t, k.when, k.at, f.path)
				for p.lines.Scan() {
					f.note(p.lines.Text())
				}
				if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
					f.t.Errorf("a process that was to be killed %s statement %d: %v", k.when, k.at, err)
				}
			}
		})
	}
	for _, k := range f.kills {
		next <- k
	}
	close(next)
	running.Wait()
}

// note takes a line of a process. The last one may have been cut off.
func (f *fates) note(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var key string
	var run store.RunKey
	if n, _ := fmt.Sscanf(line, "queued %d %s", &run.ID, &key); n == 2 {
		f.queued[key] = run.ID
	} else if n, _ := fmt.Sscanf(line, "counted %d %d", &run.ID, &run.Attempt); n == 2 {
		f.counted[run]++
	} else {
		f.t.Errorf("a process says %q", line)
	}
}

func (f *fates) withinLimits(ctx context.Context, s store.Store) {
	stats, err := s.Stats(ctx, time.Hour)
	if err != nil {
		f.t.Error(err)
	}
	var all int64
	for _, h := range stats.ByHandler {
		all += h.Running
		if h.Handler == "orders" && h.Running > int64(orders.MaxConcurrency) {
			f.t.Errorf("%d orders are running", h.Running)
		}
	}
	if all > mostActive {
		f.t.Errorf("%d runs are running", all)
	}
}

// drain ends all runs that are left.
func drain(t *testing.T, s store.Store) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "all runs end", func(ctx context.Context) error {
		if _, err := s.Reclaim(ctx, 1000); err != nil {
			return err
		}
		claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: "last", Handlers: []store.Handler{orders, mails},
			Limit: 1000, Lease: time.Minute})
		if err != nil {
			return err
		}
		var results []store.Result
		for _, r := range claimed.Runs {
			results = append(results, store.Result{RunKey: r.RunKey, Outcome: store.OutcomeOK,
				State: store.StateSucceeded})
		}
		if _, err := s.Finish(ctx, "last", results); err != nil {
			return err
		}
		left, err := s.Runs(ctx, store.Filter{States: []store.State{store.StateQueued, store.StateRunning}}, 1)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%+v", left[0])
		}
		return err
	})
}

// check compares what the database has with what processes have said.
func (f *fates) check(s store.Store, first time.Time) {
	t := f.t
	runs, err := s.Runs(t.Context(), store.Filter{}, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	byKey, byTick, attempts, reclaimed := map[string]int64{}, map[time.Time]int64{}, map[store.RunKey]bool{}, 0
	for _, r := range runs {
		if r.State != store.StateSucceeded {
			t.Errorf("run %d is %s", r.ID, r.State)
		}
		if r.Schedule == "" {
			byKey[r.Key] = r.ID
		} else {
			byTick[r.DueAt] = r.ID
		}
		_, list, _, err := s.Run(t.Context(), r.ID)
		if err != nil || len(list) != r.Attempt {
			t.Fatalf("run %d has the attempts %+v, %v", r.ID, list, err)
		}
		for i, a := range list {
			if a.Attempt != i+1 || (a.Outcome == store.OutcomeOK) != (i+1 == len(list)) {
				t.Errorf("run %d: attempt %d is %+v", r.ID, i+1, a)
			}
			if a.Outcome == store.OutcomeLost {
				reclaimed++
			} else {
				attempts[store.RunKey{ID: r.ID, Attempt: a.Attempt}] = true
			}
		}
	}
	for i := range 30 {
		if byKey[fmt.Sprint("first-", i)] == 0 {
			t.Errorf("run %d is lost", i)
		}
	}
	for key, id := range f.queued {
		if byKey[key] != id {
			t.Errorf("the run %s, of which a process has heard that it was queued as %d, is %d", key, id, byKey[key])
		}
	}
	for key, n := range f.counted {
		if n != 1 || !attempts[key] {
			t.Errorf("the result of %+v counted %d times, and the database has it: %t", key, n, attempts[key])
		}
	}
	rows, err := s.Schedules(t.Context())
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	row := rows[0]
	due := int64(row.LastDueAt.Sub(first)/period) + 1
	if row.Queued != int64(len(byTick)) || row.Queued+row.Coalesced+row.Skipped != due {
		t.Errorf("%d ticks were due, %d have runs, and the schedule says %+v", due, len(byTick), row)
	}
	t.Logf("%d runs, %d of ticks, %d attempts were reclaimed", len(runs), len(byTick), reclaimed)
}

// A process that is stopped within a transaction keeps the lock. Every call that writes returns in
// time, those that read go on, and when the process is killed, everything works at once.
func TestStoppedWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "durable.db")
	s := migrated(t, on(t, open(t, dsn(path))))
	p := startChild(t, "lock", 0, path)
	if !p.lines.Scan() || p.lines.Text() != "locked" {
		t.Fatalf("%q, %v", p.lines.Text(), p.lines.Err())
	}
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	call := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, _, err := s.Insert(ctx, nil, store.NewRun{Handler: "orders"})
		return err
	}
	if err := call(300 * time.Millisecond); err == nil {
		t.Error("a run was queued in spite of the lock")
	}
	if runs, err := s.Runs(t.Context(), store.Filter{}, 1); len(runs) != 0 || err != nil {
		t.Errorf("%+v, %v", runs, err)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := call(testkit.Patience); err != nil {
		t.Errorf("after the process was killed: %v", err)
	}
	if runs, err := s.Runs(t.Context(), store.Filter{}, 2); len(runs) != 1 || err != nil {
		t.Errorf("%+v, %v", runs, err)
	}
}
