//go:build unix

package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/torture"
)

// If ten processes start at the same time on a machine without the file, all start without an
// error.
//
// Fails when Migrate does not wait for its turn to set journal_mode ("database is locked").
func TestProcessesMigrateAtOnceSQLite(t *testing.T) {
	t.Parallel()
	for range 3 {
		path := sqlitePath(t)
		var processes []*process
		for range 10 {
			processes = append(processes, startChild(t, "migrate", 0, path))
		}
		for _, p := range processes {
			p.says(t)
		}
		for _, p := range processes {
			p.tell(t)
		}
		slots := map[string]bool{}
		for _, p := range processes {
			slots[p.says(t)] = true
		}
		if len(slots) != 10 || !slots["slot 9"] {
			t.Errorf("ten processes: %v", slots)
		}
	}
}

// Four processes compete for the slots of one file. Meanwhile, one is killed and another is stopped
// for longer than its lease. No slot has two valid holders, fences grow, and no work done under the
// lock is lost.
//
// Fails when the transaction does not read the snapshot again.
func TestI1I4ProcessesSQLite(t *testing.T) {
	t.Parallel()
	brisk(t)
	testkit.Long(t)
	for _, slots := range []int{1, 5, 16} {
		t.Run(fmt.Sprint("N=", slots), func(t *testing.T) {
			t.Parallel()
			path := sqlitePath(t)
			sqliteOn(path).migrated(t)
			p := &parade{t: t}
			victim, sleeper := p.start(slots, path), p.start(slots, path)
			steady := []*process{p.start(slots, path), p.start(slots, path)}
			const runs = 25
			for range 3 {
				p.more(runs)
				victim.signal(t, syscall.SIGKILL)
				victim = p.start(slots, path)
				sleeper.signal(t, syscall.SIGSTOP)
				time.Sleep(3 * crowdTTL / 2)
				sleeper.signal(t, syscall.SIGCONT)
			}
			p.more(runs)
			for _, c := range append(steady, victim, sleeper) {
				c.in.Close()
			}
			p.readers.Wait()
			verdict := p.journal.Check(map[string]int{"crowd": slots})
			t.Logf("%d runs, %d added", verdict.Runs, p.added.Load())
			if verdict.OverLimit+verdict.SameSlot+verdict.FenceRegressions > 0 || verdict.Runs < int(2*runs) {
				t.Errorf("%+v", verdict)
			}
			if slots == 1 {
				text, err := os.ReadFile(path + "-counter")
				n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
				// Each process that was killed may have added one without reporting it.
				if added := p.added.Load(); err != nil || n < added || n > added+3 {
					t.Errorf("added %d times, the sum is %d, %v", added, n, err)
				}
			}
		})
	}
}

// A parade reads the output of a crowd's children.
type parade struct {
	t       *testing.T
	journal torture.Journal
	readers sync.WaitGroup
	runs    atomic.Int64
	added   atomic.Int64
	number  int
}

func (p *parade) start(slots int, path string) *process {
	p.number++
	host := strconv.Itoa(p.number)
	c := startChild(p.t, "crowd", slots, path)
	p.readers.Go(func() {
		type run struct {
			slot  int
			fence int64
		}
		open := map[run]*torture.Stretch{}
		for c.lines.Scan() {
			var r run
			var at int64
			switch _, err := fmt.Sscanf(c.lines.Text(), "valid %d %d %d", &r.slot, &r.fence, &at); {
			case err == nil:
				s := open[r]
				if s == nil {
					p.runs.Add(1)
				}
				now := time.Unix(0, at)
				if s == nil || now.Sub(s.Last) > 60*time.Millisecond { // validity in between is unknown
					if s != nil {
						p.journal.Add(*s)
					}
					s = &torture.Stretch{Timer: "crowd", Slot: r.slot, Fence: r.fence, Host: host, First: now}
					open[r] = s
				}
				s.Last = now
			case c.lines.Text() == "added":
				p.added.Add(1)
			default:
				p.t.Errorf("a child says %q", c.lines.Text())
			}
		}
		for _, s := range open {
			p.journal.Add(*s)
		}
	})
	return c
}

// more waits for n more runs.
func (p *parade) more(n int64) {
	p.t.Helper()
	from := p.runs.Load()
	testkit.Eventually(p.t, testkit.Patience, fmt.Sprint(n, " more runs"), func() error {
		if more := p.runs.Load() - from; more < n {
			return fmt.Errorf("%d runs", more)
		}
		return nil
	})
}

// A process that is stopped within a transaction keeps the lock. Every call still returns in time,
// and refusals are still refusals. When the process is killed, everything works immediately.
//
// Fails when SQLite's own busy_timeout waits, and when a locked file counts as a refusal.
func TestI7StoppedWriterSQLite(t *testing.T) {
	t.Parallel()
	path := sqlitePath(t)
	sqliteOn(path).migrated(t)
	// Many applications set busy_timeout.
	store := sqllock.SQLite(openSQLite(t, sqliteDSN(path)+"&_pragma=busy_timeout(60000)"), sqllock.Options{})
	g, err := store.TryAcquire(t.Context(), driver.Request{Name: "held", Slots: 1, Token: "t", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c := startChild(t, "lock", 0, path)
	c.says(t)
	c.signal(t, syscall.SIGSTOP)

	timeout, began := time.Second, time.Now()
	late := testkit.MeasureLateness(t, 20*time.Millisecond)
	said := 0
	for what, call := range map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error {
			_, err := store.TryAcquire(ctx, driver.Request{Name: "free", Slots: 1, Token: "u", TTL: time.Minute})
			return err
		},
		"extend":  func(ctx context.Context) error { _, err := store.Extend(ctx, time.Minute, g); return err },
		"release": func(ctx context.Context) error { _, err := store.Release(ctx, g); return err },
		"migrate": func(ctx context.Context) error {
			return sqllock.SQLite(openSQLite(t, sqliteDSN(path)), sqllock.Options{TableName: "other"}).Migrate(ctx)
		},
		"cleanup": store.Cleanup,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		began := time.Now()
		err := call(ctx)
		took := time.Since(began)
		cancel()
		if err == nil || errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%s: %v: must be an error of the store", what, err)
			continue
		}
		if strings.Contains(err.Error(), "had the database locked") {
			said++
		} else if !errors.Is(err, context.DeadlineExceeded) { // the most that a busy machine can report in time
			t.Errorf("%s: %v: must say what it was waiting for", what, err)
		}
		if took > timeout+10*time.Second { // a busy machine is late; busy_timeout would take a minute
			t.Errorf("%s took %v, with %v of time", what, took, timeout)
		}
	}
	// If the machine was late, only a call with more time can report the lock.
	busy := late.Since(began) > 100*time.Millisecond
	for timeout = 2 * time.Second; busy && said == 0 && timeout < time.Minute; timeout *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		_, err := store.TryAcquire(ctx, driver.Request{Name: "free", Slots: 1, Token: "u", TTL: time.Minute})
		cancel()
		if err != nil && strings.Contains(err.Error(), "had the database locked") {
			said++
		}
	}
	if said == 0 {
		t.Error("no error says that the file was locked")
	}
	if _, err := store.TryAcquire(t.Context(), driver.Request{Name: "held", Slots: 1, Token: "u",
		TTL: time.Minute}); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("a slot that is held: %v", err)
	}

	c.signal(t, syscall.SIGKILL)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if _, err := store.TryAcquire(ctx, driver.Request{Name: "free", Slots: 1, Token: "u",
		TTL: time.Minute}); err != nil {
		t.Errorf("after the process that held the lock was killed: %v", err)
	}
}

// BenchmarkProcessesSQLite runs four processes that take and release slots as fast as possible.
func BenchmarkProcessesSQLite(b *testing.B) {
	for _, slots := range []int{1, 5, 16} {
		b.Run(fmt.Sprint("N=", slots), func(b *testing.B) {
			for b.Loop() {
				path := sqlitePath(b)
				sqliteOn(path).migrated(b)
				var processes []*process
				for range 4 {
					processes = append(processes, startChild(b, "hammer", slots, path))
				}
				for _, p := range processes {
					p.says(b)
				}
				for _, p := range processes {
					p.tell(b)
				}
				var all, worst int64
				for _, p := range processes {
					var calls, ns int64
					if _, err := fmt.Sscanf(p.says(b), "calls %d %d", &calls, &ns); err != nil {
						b.Fatal(err)
					}
					all, worst = all+calls, max(worst, ns)
				}
				b.ReportMetric(float64(all)/hammerTime.Seconds(), "calls/s")
				b.ReportMetric(float64(worst)/1e6, "ms-worst")
			}
		})
	}
}
