//go:build unix

package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/sqlite"
	"github.com/tickslot/tickslot/durable/internal/store"
)

// sqliteChild makes the test binary a child process. It has what to do, after how many statements
// to be killed, and the path of the file.
const sqliteChild = "TICKSLOT_TEST_DURABLE_CHILD"

func init() {
	var what, path string
	var killAt int64
	if n, _ := fmt.Sscanf(os.Getenv(sqliteChild), "%s %d %s", &what, &killAt, &path); n != 3 {
		return
	}
	if err := child(what, killAt, path); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(what string, killAt int64, path string) error {
	inner, err := sql.Open("sqlite", "")
	if err != nil {
		return err
	}
	k := &killer{Driver: inner.Driver(), at: killAt, during: what == "during"}
	sql.Register("killer", k)
	db, err := sql.Open("killer", dsn(path))
	if err != nil {
		return err
	}
	if what == "lock" {
		if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
			return err
		}
		fmt.Println("locked")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return nil
	}
	s, err := sqlite.New(db, table)
	if err != nil {
		return err
	}
	w := worker{Store: s, name: fmt.Sprint("worker-", os.Getpid())}
	if what == "count" {
		err := w.cycle(0)
		fmt.Println("statements", k.executed.Load())
		return err
	}
	stop := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(stop) }()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := w.cycle(i); err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond) // others have their turn
	}
}

const (
	period     = 20 * time.Millisecond // of the schedule
	childLease = 300 * time.Millisecond
	mostActive = 3
)

var (
	orders = store.Handler{Name: "orders", MaxAttempts: 1000, MaxConcurrency: 2}
	mails  = store.Handler{Name: "mails", MaxAttempts: 1000}
	ticks  = store.Schedule{Name: "ticks", Handler: "mails", Spec: "1"}
)

// A worker does all that a worker does, and prints what it knows to be committed.
type worker struct {
	store.Store
	name string
}

// cycle calls every method of a worker once or twice, whatever i is.
func (w worker) cycle(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := w.Register(ctx, []store.Handler{orders, mails}, []store.Schedule{ticks}, i == 0); err != nil {
		return err
	}
	key := fmt.Sprint(w.name, "-", i)
	id, _, err := w.Insert(ctx, nil, store.NewRun{Handler: "orders", Key: key})
	if err != nil {
		return err
	}
	fmt.Println("queued", id, key)
	due, err := w.Due(ctx)
	if err != nil {
		return err
	}
	var plans []store.Plan
	for _, d := range due.Schedules {
		n := due.Now.Sub(d.NextDueAt) / period // of ticks before the latest that is due
		last := d.NextDueAt.Add(n * period)
		plans = append(plans, store.Plan{Schedule: d, Handler: ticks.Handler, Last: last, Next: last.Add(period),
			Skipped: int64(n), Runs: []store.NewRun{{Handler: ticks.Handler, Schedule: d.Name, DueAt: last,
				RunAt: last}}})
	}
	if _, err := w.Materialize(ctx, plans); err != nil {
		return err
	}
	claimed, err := w.Claim(ctx, store.ClaimRequest{Worker: w.name, Handlers: []store.Handler{orders, mails}, Limit: 2,
		MaxActive: mostActive, Lease: childLease})
	if err != nil {
		return err
	}
	var keys []store.RunKey
	var results []store.Result
	for _, r := range claimed.Runs {
		keys = append(keys, r.RunKey)
		result := store.Result{RunKey: r.RunKey, Outcome: store.OutcomeOK, State: store.StateSucceeded}
		if r.Attempt == 1 && r.ID%3 == 0 {
			result.Outcome, result.State = store.OutcomeError, store.StateQueued
		}
		results = append(results, result)
	}
	if _, err := w.Renew(ctx, w.name, keys, childLease); err != nil {
		return err
	}
	counted, err := w.Finish(ctx, w.name, results)
	if err != nil {
		return err
	}
	for _, c := range counted {
		fmt.Println("counted", c.ID, c.Attempt)
	}
	if _, err := w.Reclaim(ctx, 10); err != nil {
		return err
	}
	_, err = w.Sweep(ctx, store.Retention{Succeeded: time.Hour, Unseen: time.Hour}, 10)
	return err
}

// A killer is a driver that kills this process when it executes a statement, so that no code of
// ours runs any more.
type killer struct {
	driver.Driver
	at       int64 // 0: never
	during   bool  // while the statement is being executed; otherwise before
	executed atomic.Int64
}

func (k *killer) statement() {
	if k.executed.Add(1) != k.at {
		return
	}
	if k.during {
		go func() {
			for end := time.Now().Add(rand.N(300 * time.Microsecond)); time.Now().Before(end); {
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}()
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// Open implements driver.Driver.
func (k *killer) Open(name string) (driver.Conn, error) {
	conn, err := k.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(fullConn)
	if !ok {
		return nil, errors.New("the driver has changed")
	}
	return killerConn{full, k}, nil
}

type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

type killerConn struct {
	fullConn
	k *killer
}

func (c killerConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.k.statement()
	return c.fullConn.ExecContext(ctx, query, args)
}

func (c killerConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.k.statement()
	return c.fullConn.QueryContext(ctx, query, args)
}

func (c killerConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.fullConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return killerStmt{s.(fullStmt), c.k}, nil
}

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type killerStmt struct {
	fullStmt
	k *killer
}

func (s killerStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.k.statement()
	return s.fullStmt.ExecContext(ctx, args)
}

func (s killerStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.k.statement()
	return s.fullStmt.QueryContext(ctx, args)
}

// A process is a child as its parent sees it.
type process struct {
	*exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// startChild starts a process that ends with the test.
func startChild(t testing.TB, what string, killAt int64, path string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe)}
	p.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", sqliteChild, what, killAt, path))
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if p.in, err = p.StdinPipe(); err != nil {
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
