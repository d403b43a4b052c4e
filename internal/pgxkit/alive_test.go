package pgxkit

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/internal/sqltest"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A connection that the server has closed is seen, also by a process that seldom gets the
// processor: else a call fails on a busy machine. One to which the server has sent something is
// not taken for closed.
//
// Fails when the check gives up after a time in which it did not look.
func TestIsAlive(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), server.DSN("", "", database))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		return conn
	}
	arrived := func(conn *pgx.Conn) {
		testkit.Eventually(t, testkit.Patience, "something has arrived", func() bool {
			yes, known := hasInput(conn.PgConn().Conn())
			return yes || !known
		})
	}
	stop := make(chan struct{})
	defer close(stop)
	for range 8 * runtime.GOMAXPROCS(0) { // a busy process
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	boss := connect()
	for range 5 {
		conn := connect()
		if _, err := conn.Exec(t.Context(), "LISTEN news"); err != nil {
			t.Fatal(err)
		}
		if !IsAlive(conn.PgConn()) {
			t.Error("a connection that nobody has closed is dead")
		}
		if _, err := boss.Exec(t.Context(), "NOTIFY news"); err != nil {
			t.Fatal(err)
		}
		arrived(conn)
		if !IsAlive(conn.PgConn()) {
			t.Error("a connection that got a notification is dead")
		}
		if _, err := conn.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Error("after the checks:", err)
		}
		pid := conn.PgConn().PID()
		if _, err := boss.Exec(t.Context(), fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid)); err != nil {
			t.Fatal(err)
		}
		arrived(conn)
		began := time.Now()
		if IsAlive(conn.PgConn()) {
			t.Error("a connection that the server has closed is alive", time.Since(began))
		}
	}
}
