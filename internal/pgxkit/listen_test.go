package pgxkit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Listen receives the notifications of others. It ends when its context ends, and when its
// connection has died, even if no packet says so.
//
// Fails when it does not ping a silent server.
func TestListen(t *testing.T) {
	before := pingEvery
	pingEvery = 100 * time.Millisecond
	t.Cleanup(func() { pingEvery = before })
	server := sqltest.SharedPostgres(t)
	proxy, err := servertest.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	dsn := server.DSN("", "", server.NewDatabase(t))
	connect := func(dsn string) *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	other := connect(dsn)
	defer HangUp(other)
	notify := func(text string) {
		if _, err := other.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	for how, end := range map[string]func(stop func()){
		"dead": func(func()) { proxy.BlackHole(true) },
		"terminated": func(func()) {
			notify("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() " +
				"AND pid <> pg_backend_pid()")
		},
		"canceled": func(stop func()) { stop() },
	} {
		woken, ended := make(chan bool, 100), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		conn := connect(strings.Replace(dsn, server.Addr(), proxy.Addr(), 1))
		go func() { ended <- Listen(ctx, conn, `a "channel"`, func() { woken <- true }) }()
		<-woken // connected
		for range 3 {
			notify(`SELECT pg_notify('a "channel"', '')`)
			<-woken
		}
		end(cancel)
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, context.Canceled) != (how == "canceled") {
				t.Errorf("%s: %v", how, err)
			}
		case <-time.After(testkit.Patience):
			t.Errorf("%s: it still listens", how)
		}
		proxy.BlackHole(false)
	}
}
