//go:build unix

package storetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A Crash lets three processes share one database. It kills them one after the other at every
// statement that a worker executes: before the statement, and in the middle of it. It checks that
// nothing committed is lost, nothing is done twice, and no limit is exceeded.
//
// The processes run the test's own program, which calls Child when the variable Env is set.
type Crash struct {
	Store store.Store // must be unused
	Env   string
	Arg   string // location of the database

	t     testing.TB
	first time.Time // the schedule's first tick

	mu      sync.Mutex       // used by the goroutines that read the output of the processes
	queued  map[string]int64 // IDs, by key, of runs whose Insert has returned
	counted map[store.RunKey]int
	killed  map[string]int // number of processes, by "before" or "during" and the statement's name
}

// Statements returns the names of the statements that a worker executes in one cycle of calls.
func (c *Crash) Statements(t testing.TB) (names []string) {
	t.Helper()
	c.t, c.queued, c.counted, c.killed = t, map[string]int64{}, map[store.RunKey]int{}, map[string]int{}
	c.planFirst()
	for i := range 30 {
		if _, err := c.Store.Insert(t.Context(), nil, store.NewRun{Handler: crashing.Name,
			Key: fmt.Sprint("first-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	p := StartChild(t, c.Env, "count", "-", c.Arg)
	for p.Lines.Scan() {
		if name, ok := strings.CutPrefix(p.Lines.Text(), "statement "); ok {
			names = append(names, name)
		} else {
			c.note(p.Lines.Text())
		}
	}
	if len(names) < 30 {
		t.Fatalf("a cycle has the statements %q", names)
	}
	return names
}

// Kill kills the given number of processes: at all points (two for each statement), or at some of
// them, chosen at random.
func (c *Crash) Kill(statements []string, kills int) {
	points := Points(statements)
	all, offset := 2*len(statements), time.Now().Nanosecond()
	if kills >= all {
		kills, offset = all, 0
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		next := make(chan int)
		var running sync.WaitGroup
		for range 3 {
			running.Go(func() {
				for k := range next {
					c.kill([]string{"before", "during"}[k%2], points[k/2])
				}
			})
		}
		for i := range kills {
			next <- (offset + i*all/kills) % all
		}
		close(next)
		running.Wait()
	}()
	for looking := true; looking; {
		select {
		case <-done:
			looking = false
		case <-time.After(5 * time.Millisecond):
			c.withinLimits()
		}
	}
	c.covered(statements, kills)
	c.Check()
}

// Points returns a unique name for each statement, which consists of the statement's name, "#", and
// the number of its occurrence.
func Points(statements []string) []string {
	points, times := make([]string, len(statements)), map[string]int{}
	for i, name := range statements {
		times[name]++
		points[i] = fmt.Sprint(name, "#", times[name])
	}
	return points
}

// covered fails the test unless all processes were killed. If there were enough kills for all
// points, it also fails if no process was killed before or during some statement.
func (c *Crash) covered(statements []string, kills int) {
	c.t.Helper()
	n := 0
	for _, times := range c.killed {
		n += times
	}
	if n != kills {
		c.t.Errorf("%d processes were killed, want %d: %v", n, kills, c.killed)
	}
	if kills < 2*len(statements) {
		return
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(statements))) {
		for _, when := range []string{"before", "during"} {
			if c.killed[when+" "+name] == 0 {
				c.t.Errorf("no process was killed %s %s", when, name)
			}
		}
	}
	c.t.Logf("%d statements in a cycle, %d kills: %v", len(statements), n, c.killed)
}

func (c *Crash) kill(when, at string) {
	p := StartChild(c.t, c.Env, when, at, c.Arg)
	for p.Lines.Scan() {
		c.note(p.Lines.Text())
	}
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		c.t.Errorf("a process that was to be killed %s %s: %v", when, at, err)
	}
}

// planFirst plans the schedule's first tick.
func (c *Crash) planFirst() {
	ctx := c.t.Context()
	if err := c.Store.Register(ctx, worker, crashHandlers, []store.Schedule{crashTicks}, true); err != nil {
		c.t.Fatal(err)
	}
	due, err := c.Store.Due(ctx, store.DueSchedule{}, 1000)
	if err != nil || len(due.Schedules) != 1 {
		c.t.Fatal(due, err)
	}
	c.first = due.Now.Add(crashPeriod)
	done, err := c.Store.Materialize(ctx, []store.Plan{{Schedule: due.Schedules[0], Handler: crashTicks.Handler,
		Next: c.first}})
	if err != nil || len(done) != 1 {
		c.t.Fatal(done, err)
	}
}

// note records a line that a process has printed. The last line may be truncated.
func (c *Crash) note(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var key string
	var run store.RunKey
	if n, _ := fmt.Sscanf(line, "queued %d %s", &run.ID, &key); n == 2 {
		c.queued[key] = run.ID
	} else if n, _ := fmt.Sscanf(line, "counted %d %d", &run.ID, &run.Attempt); n == 2 {
		c.counted[run]++
	} else if at, ok := strings.CutPrefix(line, "killed "); ok {
		c.killed[at]++
	} else {
		c.t.Errorf("a process says %q", line)
	}
}

func (c *Crash) withinLimits() {
	stats, err := c.Store.Stats(c.t.Context(), time.Minute)
	if err != nil {
		c.t.Error(err)
	}
	var all int64
	for _, h := range stats.ByHandler {
		all += h.Running
		if h.Handler == crashing.Name && h.Running > int64(crashing.MaxConcurrency) {
			c.t.Errorf("%d orders are running", h.Running)
		}
	}
	if all > crashActive {
		c.t.Errorf("%d runs are running", all)
	}
}

// drain ends all remaining runs.
func (c *Crash) drain() {
	c.t.Helper()
	testkit.Eventually(c.t, testkit.Patience, "all runs end", func(ctx context.Context) error {
		if _, err := c.Store.Reclaim(ctx, 1000, 0); err != nil {
			return err
		}
		claimed, err := c.Store.Claim(ctx, store.ClaimRequest{Worker: "last", Handlers: crashHandlers, Limit: 1000,
			TTL: time.Minute})
		if err != nil {
			return err
		}
		var results []store.Result
		for _, r := range claimed.Runs {
			results = append(results, store.Result{RunKey: r.RunKey, Outcome: store.OutcomeOK,
				State: store.StateSucceeded})
		}
		if _, err := c.Store.Finish(ctx, "last", results); err != nil {
			return err
		}
		left, err := c.Store.Runs(ctx, store.Filter{States: []store.State{store.StateQueued, store.StateRunning}}, 1)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%+v", left[0])
		}
		return err
	})
}

// Check ends all remaining runs, and compares the database with the output of the processes.
func (c *Crash) Check() {
	t, s := c.t, c.Store
	t.Helper()
	c.drain()
	runs, err := s.Runs(t.Context(), store.Filter{}, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	byKey, byTick, attempts := map[string]int64{}, map[time.Time]int64{}, map[store.RunKey]bool{}
	outcomes := map[store.Outcome]int{}
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
			outcomes[a.Outcome]++
			if a.Outcome != store.OutcomeLeaseLost {
				attempts[store.RunKey{ID: r.ID, Attempt: a.Attempt}] = true
			}
		}
	}
	for i := range 30 {
		if byKey[fmt.Sprint("first-", i)] == 0 {
			t.Errorf("run %d is lost", i)
		}
	}
	for key, id := range c.queued {
		if byKey[key] != id {
			t.Errorf("the run %s was queued with the ID %d, but the database has the ID %d", key, id, byKey[key])
		}
	}
	for key, n := range c.counted {
		if n != 1 || !attempts[key] {
			t.Errorf("the result of %+v counted %d times; found in the database: %t", key, n, attempts[key])
		}
	}
	rows, err := s.Schedules(t.Context())
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	row := rows[0]
	due := int64(row.LastDueAt.Sub(c.first)/crashPeriod) + 1
	if row.Queued != int64(len(byTick)) || row.Queued+row.Coalesced+row.Skipped != due {
		t.Errorf("%d ticks were due, %d have runs, and the schedule says %+v", due, len(byTick), row)
	}
	t.Logf("%d runs, %d of ticks, attempts: %v", len(runs), len(byTick), slices.Sorted(maps.Keys(outcomes)))
}

// A Process is a child process.
type Process struct {
	*exec.Cmd
	In    io.WriteCloser
	Lines *bufio.Scanner
}

// StartChild starts a process that ends with the test.
func StartChild(t testing.TB, env, what, at, arg string) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{Cmd: exec.Command(exe)}
	p.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", env, what, at, arg))
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Lines = bufio.NewScanner(out)
	if p.In, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}
