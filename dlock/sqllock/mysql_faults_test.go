package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Fails when a call does not end with its context.
func TestI2I7FrozenMySQL(t *testing.T) {
	testkit.Long(t)
	server := sqltest.MariaDB(t)
	frozen(t, server, mysqlOn(t, server, oneTrip).migrated(t), 3)
}

// The test runs with and without a binary log, which is part of every commit.
//
// Fails when the server does not wait for its disk (innodb_flush_log_at_trx_commit=0). Audit warns
// of this setting.
func TestI1I4KilledMySQL(t *testing.T) {
	testkit.Long(t)
	for name, settings := range map[string][]string{
		"plain":      {"innodb-flush-log-at-trx-commit=1"},
		"binary log": {"innodb-flush-log-at-trx-commit=1", "log-bin", "sync-binlog=1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := sqltest.MariaDB(t, sqltest.Options{Settings: settings})
			killed(t, server, mysqlOn(t, server, oneTrip).migrated(t), 5)
		})
	}
}

// Fails when a failed call does not return its connection.
func TestI7CutOffMySQL(t *testing.T) {
	testkit.Long(t)
	for way, params := range map[string]string{"one round trip": oneTrip, "prepared": ""} {
		t.Run(way, func(t *testing.T) {
			const cuts = 10
			server := sqltest.MariaDB(t)
			s := mysqlOn(t, server, params).migrated(t)
			s.exec(t, `DELIMITER //
				CREATE PROCEDURE cut_off() BEGIN
					DECLARE it BIGINT;
					DECLARE done BOOLEAN DEFAULT FALSE;
					DECLARE connections CURSOR FOR SELECT id FROM information_schema.processlist
						WHERE db = DATABASE() AND id <> CONNECTION_ID();
					DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE;
					DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; -- it has just ended
					OPEN connections;
					killing: LOOP
						FETCH connections INTO it;
						IF done THEN LEAVE killing; END IF;
						KILL it;
					END LOOP;
				END//`)
			cutOff(t, s, "CALL cut_off()", cuts)
		})
	}
}

// The network loses the reply to every acquire. The token finds or releases the grant.
//
// Fails when the token is not searched: the second answer is another slot, or full.
func TestLostRepliesMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	database := server.NewDatabase(t)
	direct := viaMySQL(server.DSN("", "", database)+oneTrip)(t, sqllock.Options{})
	if err := direct.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy := servertest.NewProxyFor(t, server.Addr())
	lossy := viaMySQL(strings.Replace(server.DSN("", "", database), server.Addr(), proxy.Addr(), 1)+oneTrip)(t,
		sqllock.Options{})
	for i, req := range []driver.Request{request("a", 0), request("b", 3), request("c", 1)} {
		if _, err := lossy.List(t.Context(), "warm", 0); err != nil { // opens a connection
			t.Fatal(err)
		}
		proxy.DropReplies(1)
		if _, err := callWithTimeout(300*time.Millisecond, func(ctx context.Context) error {
			_, err := lossy.TryAcquire(ctx, req)
			return err
		}); err == nil {
			t.Error("the reply was to be lost")
		}
		proxy.DropReplies(0)
		if i == 2 {
			r, err := lossy.Release(t.Context(), driver.Grant{Name: req.Name, Slots: req.Slots, Slot: driver.AnySlot,
				Token: req.Token})
			if err != nil || r[0].Outcome != driver.GrantOK {
				t.Errorf("release by token: %v, %v", r, err)
			}
			continue
		}
		g, err := lossy.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		held, err := direct.List(t.Context(), req.Name, req.Slots)
		if err != nil || len(held) != 1 || held[0].Fence != g.Fence {
			t.Errorf("%v, %v: must be the one lease with fence %d", held, err, g.Fence)
		}
	}
}

// Grants and extensions survive a crash.
//
// Fails when the server does not wait for its disk.
func TestI1GrantsSurviveACrashMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.MariaDB(t)
	store := mysqlOn(t, server, oneTrip).migrated(t).open(t, sqllock.Options{})
	g, err := store.TryAcquire(t.Context(), request("a", 2))
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() error{
		"grant":  func() error { return nil },
		"extend": func() error { _, err := store.Extend(t.Context(), time.Hour, g); return err },
	} {
		if err := errors.Join(call(), server.Kill(), server.Restart()); err != nil {
			t.Fatal(err)
		}
		held, err := store.List(t.Context(), "a", 2) // uses a new connection
		if err != nil || len(held) != 1 || held[0].Fence != g.Fence || what == "extend" &&
			held[0].ExpiresIn < 30*time.Minute {
			t.Errorf("%s: %+v, %v", what, held, err)
		}
	}
}

// While a server is a replica, as after a failover, calls return an error. The next call does not
// use the same connection, so it can reach another server.
//
// Fails when the refusal counts as a fault of the name, or as "not acquired".
func TestReadOnlyMySQLRecovers(t *testing.T) {
	t.Parallel()
	// With this setting, only some users may create functions.
	server := sqltest.MariaDB(t, sqltest.Options{Settings: []string{"log-bin"}})
	database := server.NewDatabase(t)
	exec := execOn(server, database)
	exec(t, "GRANT ALL ON "+database+".* TO app") // root may always write
	store := viaMySQL(server.DSN("app", "", database)+oneTrip)(t, sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	g, err := store.TryAcquire(t.Context(), request("a", 0))
	if err != nil {
		t.Fatal(err)
	}
	exec(t, "SET GLOBAL read_only = 1")
	for what, call := range map[string]func() error{
		"acquire, held": func() error {
			req := request("a", 0)
			req.Token = "another"
			_, err := store.TryAcquire(t.Context(), req)
			return err
		},
		"acquire": func() error { _, err := store.TryAcquire(t.Context(), request("b", 0)); return err },
		"extend":  func() error { _, err := store.Extend(t.Context(), time.Minute, g); return err },
		"release": func() error { _, err := store.Release(t.Context(), g); return err },
		"cleanup": func() error { return store.Cleanup(t.Context()) },
	} {
		before := connections(t, exec)
		if err := call(); err == nil || !readsOnly(err) || errors.Is(err, driver.ErrNotAcquired) ||
			errors.Is(err, driver.ErrFault) {
			t.Errorf("%s: %v: must say that the server is read-only", what, err)
		}
		// The server takes a moment to notice that a connection was closed.
		testkit.Eventually(t, testkit.Patience, what+": its connection is not used again", func() error {
			if after := connections(t, exec); after > 0 && after >= before {
				return fmt.Errorf("%d connections before, %d after", before, after)
			}
			return nil
		})
	}
	exec(t, "SET GLOBAL read_only = 0")
	if r, err := store.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("after it is a primary again: %v, %v", r, err)
	}
}

// connections returns the number of connections of the user app.
func connections(t *testing.T, exec func(testing.TB, string) string) int {
	t.Helper()
	return len(strings.Fields(exec(t, "SELECT id FROM information_schema.processlist WHERE user = 'app'")))
}

// If all connections of the pool are in use, the error says so.
//
// Fails when the error is only the context's.
func TestDrainedPoolIsToldMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	db := openMySQL(t, server.DSN("", "", server.NewDatabase(t))+oneTrip)
	db.SetMaxOpenConns(2)
	store := sqllock.MySQL(db, sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	late, began := testkit.MeasureLateness(t, 10*time.Millisecond), time.Now()
	took, err := callWithTimeout(200*time.Millisecond, func(ctx context.Context) error {
		_, err := store.TryAcquire(ctx, request("a", 0))
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "*sql.DB of its own") ||
		took > time.Second+late.Since(began) {
		t.Errorf("%v after %v", err, took)
	}
}
