//go:build unix

package sqlite_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/durable/internal/storetest"
	"github.com/tickslot/tickslot/internal/testkit"
)

// Fails when Finish writes the attempt and the state of a run in two transactions.
func TestProcessesAreKilledAtEveryStatement(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "durable.db")
	c := storetest.Crash{Store: migrated(t, on(t, open(t, dsn(path)))), Env: sqliteChild, Arg: path}
	statements := c.Statements(t)
	c.Kill(statements, testkit.Rounds(t, 4, 2*len(statements)))
}

// A process that is stopped within a transaction keeps the lock. Calls that write return in time,
// and calls that read still work. When the process is killed, everything works immediately.
func TestStoppedWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "durable.db")
	s := migrated(t, on(t, open(t, dsn(path))))
	p := storetest.StartChild(t, sqliteChild, "lock", "-", path)
	if !p.Lines.Scan() || p.Lines.Text() != "locked" {
		t.Fatalf("%q, %v", p.Lines.Text(), p.Lines.Err())
	}
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	call := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := s.Insert(ctx, nil, store.NewRun{Handler: "orders"})
		return err
	}
	if err := call(300 * time.Millisecond); err == nil {
		t.Error("a run was queued despite the lock")
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
