package pgxkit

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"golang.org/x/sys/unix"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// tcpRepair is TCP_REPAIR of Linux: closing a socket in this mode sends nothing to the other side.
const tcpRepair = 19

// A client loses its network after it has sent some statements of a transaction, and before it has
// sent the end of the pipeline. Its locks are released within eleven seconds.
//
// Fails when only TCP's default of two hours bounds the time that the server waits for the
// remaining statements.
func TestClientThatIsCutOffInThePipeline(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		servertest.Require(t, fmt.Errorf("TCP_REPAIR is for root"), "run it as root")
	}
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	if _, err := server.Exec(database, "CREATE TABLE counters AS SELECT 1 AS id"); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(t.Context(), server.DSN("", "", database))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	locked := func() bool {
		var n int
		err := other.QueryRow(t.Context(),
			"SELECT count(*) FROM (SELECT FROM counters FOR UPDATE SKIP LOCKED) AS free").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n == 0
	}
	for range 10 {
		began := cutOff(t, server.DSN("", "", database), locked)
		testkit.Eventually(t, testkit.Patience, "the row is free", func() bool { return !locked() })
		if took := time.Since(began); took > time.Second {
			return
		}
		// The server learned early that the socket is closed: try again.
	}
	t.Error("the server has noticed at once, each time")
}

// cutOff sends half of a transaction and cuts the connection once its row is locked.
func cutOff(t *testing.T, dsn string, locked func() bool) time.Time {
	t.Helper()
	cut, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	hijacked, err := cut.PgConn().Hijack()
	if err != nil {
		t.Fatal(err)
	}
	text, args := sqlkit.PostgresPinned(t.Context())
	var values [][]byte
	for _, arg := range args {
		values = append(values, []byte(arg.(string)))
	}
	f := hijacked.Frontend
	for _, s := range []struct {
		text   string
		values [][]byte
	}{{text: sqlkit.PostgresBegin}, {text, values}, {text: "UPDATE public.counters SET id = id"}} {
		f.SendParse(&pgproto3.Parse{Query: s.text})
		f.SendBind(&pgproto3.Bind{Parameters: s.values})
		f.SendExecute(&pgproto3.Execute{})
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the row is locked", locked)
	// A later acknowledgment would reveal the closed socket to the server.
	testkit.Eventually(t, testkit.Patience, "the server has acknowledged all", func() bool {
		return unacknowledged(t, hijacked.Conn) == 0
	})
	vanish(t, hijacked.Conn)
	return time.Now()
}

// unacknowledged returns the number of sent bytes that the other side has not acknowledged.
func unacknowledged(t *testing.T, conn net.Conn) (n int) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }
	if e := raw.Control(ask); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return n
}

func vanish(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpRepair, 1)
	}); e != nil || err != nil {
		t.Fatal(e, err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}
