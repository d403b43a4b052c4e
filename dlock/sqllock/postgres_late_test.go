package sqllock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// If a server answers too late for a call, the call needs no new connection. For the server,
// connecting is more expensive than answering. With a new connection after each late answer, all
// hosts together could keep the server too busy to ever answer in time.
//
// Fails when one late answer closes a connection or resets the pool.
func TestLateAnswersCostNoConnectionPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	direct := subject{open: viaPgx(t, server.DSN("", "", database)), exec: execOn(server, database)}.migrated(t)
	proxy := servertest.NewProxyFor(t, server.Addr())
	dsn := strings.Replace(server.DSN("", "", database), server.Addr(), proxy.Addr(), 1) + "&application_name=late"
	store := viaPgx(t, dsn)(t, sqllock.Options{})
	const timeout = 300 * time.Millisecond
	try := func(token string, timeout time.Duration) error {
		_, err := callWithTimeout(timeout, func(ctx context.Context) error {
			_, err := store.TryAcquire(ctx, driver.Request{Name: token, Token: token, TTL: time.Minute})
			return err
		})
		return err
	}
	if err := try("warm", testkit.Patience); err != nil {
		t.Fatal(err)
	}
	sessions := func() string {
		return direct.exec(t, "SELECT string_agg(pid::text, ' ' ORDER BY backend_start) FROM pg_stat_activity "+
			"WHERE application_name = 'late'")
	}
	first := sessions()
	proxy.DelayReplies(2 * timeout)
	for i := range 5 {
		if err := try("late"+strconv.Itoa(i), timeout); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: the answer comes too late", err)
		}
	}
	proxy.DelayReplies(0)
	testkit.Eventually(t, testkit.Patience, "a call is answered in time", func() error { return try("again", timeout) })
	if now := sessions(); !strings.HasPrefix(now, first) || strings.Count(now, " ") > 3 {
		t.Errorf("the store has the sessions %s: the first one was %s, and there are four at most", now, first)
	}
}
