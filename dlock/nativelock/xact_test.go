package nativelock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
)

// A locker is a transaction that tries to take locks.
type locker struct {
	try func(name string) (bool, error)
	end func(commit bool) error
}

// lockers begin transactions, with database/sql and with pgx.
func lockers(t *testing.T, s subject) []func() locker {
	db := s.pool(t)
	return []func() locker{func() locker {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return locker{func(name string) (bool, error) {
			return nativelock.TryXactLock(t.Context(), tx, name)
		}, func(commit bool) error {
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		}}
	}, func() locker {
		conn, err := pgx.Connect(t.Context(), s.dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return locker{func(name string) (bool, error) {
			return pgxlock.TryXactLock(t.Context(), tx, name)
		}, func(commit bool) error {
			if commit {
				return tx.Commit(t.Context())
			}
			return tx.Rollback(t.Context())
		}}
	}}
}

// The lock of a transaction ends with it, excludes the same lock taken through the other package,
// and is independent of a lease of the same name. It works where connections are shared.
//
// Fails when it is a session-level lock (held after the end), when its key is hashed like that of a
// mutex, and when pgxlock prepares the statement (an error behind PgBouncer).
func TestTryXactLock(t *testing.T) {
	t.Parallel()
	s := postgres(t)
	mustGet(t, s.open(t, nativelock.Options{}), request("x", 0, time.Minute))
	pooled, _ := s.poolerOf(t, "transaction", "default_pool_size=2")
	prepared := pooled // pgx prepares statements by default
	pooled.dsn += "&default_query_exec_mode=exec"
	simple := pooled
	simple.dsn += "&default_query_exec_mode=simple_protocol"
	for name, begins := range map[string][]func() locker{
		"direct": lockers(t, s), "PgBouncer": lockers(t, pooled), "simple protocol": lockers(t, simple),
		"prepared": lockers(t, prepared)[1:],
	} {
		try := func(l locker, lock string, want bool) {
			t.Helper()
			if got, err := l.try(lock); err != nil || got != want {
				t.Errorf("%s, %q: %v, %v, want %v", name, lock, got, err, want)
			}
		}
		for range 3 {
			for i := range begins {
				a, b := begins[i](), begins[len(begins)-1-i]()
				try(a, "x", true)
				try(a, "x", true)
				try(b, "x", false)
				try(b, "X", true)
				if err := errors.Join(a.end(true), b.end(false)); err != nil {
					t.Fatal(err)
				}
				c := begins[i]()
				try(c, "x", true)
				try(c, "X", true)
				if _, err := c.try("a\nb"); err == nil {
					t.Error("a name with a newline: no error")
				}
				if err := c.end(false); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	query, args, err := nativelock.XactLockQuery("close-books")
	if got := fmt.Sprintf("%s %v %v", query, args,
		err); got != "SELECT pg_try_advisory_xact_lock($1::bigint) [5540249776783034685] <nil>" {
		t.Errorf("%s: hosts of two versions must agree on the key", got)
	}
}
