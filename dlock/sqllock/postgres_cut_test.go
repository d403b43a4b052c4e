package sqllock_test

import (
	"context"
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

// Something between host and server (a proxy, a pooler) cuts off a host's connections in the middle
// of a call and keeps them open toward the server. The host's slots are free when its leases have
// ended.
//
// Fails when a call is sent in several messages: the server executes the first ones and keeps their
// rows locked while it waits for the last.
func TestCallsThatAreCutOffPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	proxy := servertest.NewProxyFor(t, server.Addr())
	dsn := server.DSN("", "", server.NewDatabase(t))
	direct := viaPgx(t, dsn)(t, sqllock.Options{})
	if err := direct.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	through := viaPgx(t, strings.Replace(dsn, server.Addr(), proxy.Addr(), 1))(t,
		sqllock.Options{})
	const names = 6 // each is cut off at a different point
	request := func(i int, who string) driver.Request {
		return driver.Request{Name: fmt.Sprint("n", i), Token: who, TTL: 2 * time.Second}
	}
	for i := range names {
		testkit.Eventually(t, testkit.Patience, "a grant", func() error {
			_, err := through.TryAcquire(t.Context(), request(i, "first"))
			return err
		})
		proxy.CutRequests(true)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if _, err := through.TryAcquire(ctx, request(i, "first")); err == nil {
			t.Error("a call that is cut off succeeded")
		}
		cancel()
		proxy.CutRequests(false)
	}
	for i := range names {
		testkit.Eventually(t, testkit.Patience, "another host has the slot", func() error {
			_, err := direct.TryAcquire(t.Context(), request(i, "second"))
			return err
		})
	}
}
