package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// The network of a relay fails in the middle of a request that writes results. The server has
// received the first part, keeps the locks, and waits. The next relay delivers the messages whose
// rows are not locked, and the rest when the server gives up the connection.
//
// Fails when a relay waits for a row that such a connection has locked.
//
// It runs before the parallel tests, because next to them calls would take longer than its short
// time-outs.
func TestMarkThatIsCutOff(t *testing.T) {
	for _, name := range []string{"Postgres", "MariaDB"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, proxy, through := cutPlace(t, name)
			box := p.open()
			t.Cleanup(func() { box.Close() })
			if err := box.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			const messages, ttl = 100, 6 * time.Second
			relay := func(b *outbox.Outbox, sink func()) (stop func() error) {
				return running(t, b, outbox.RelayConfig{TTL: ttl, CallTimeout: ttl / 3, RetryInterval: ttl / 6,
					DrainTimeout: time.Millisecond, PollInterval: 50 * time.Millisecond, IdleDelay: time.Second,
					BatchSize: 20, DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
						sink()
						return nil
					})})
			}
			dispatched := func(least int) {
				t.Helper()
				testkit.Eventually(t, 3*testkit.Patience, fmt.Sprint(least, " messages are dispatched"), func() error {
					list, err := box.Messages(t.Context(), outbox.Filter{State: outbox.StateDispatched}, 1000)
					if err == nil && len(list) < least {
						err = fmt.Errorf("%d are", len(list))
					}
					return err
				})
			}
			first := through
			t.Cleanup(func() { first.Close() })
			var calls atomic.Int64
			stop := relay(first, func() {
				if calls.Add(1) == messages/2 {
					proxy.CutRequests(true)
				}
			})
			p.appended(t, box, "early", messages)
			testkit.Eventually(t, testkit.Patience, "half is delivered",
				func() bool { return calls.Load() >= messages/2 })
			ended := make(chan error, 1)
			go func() { ended <- stop() }()
			p.appended(t, box, "late", messages)
			stopSecond := relay(box, func() {})
			// Two batches of the first relay may be locked: the interrupted batch and its
			// repetition.
			dispatched(2*messages - 2*20)
			proxy.CutRequests(false)
			proxy.Reset()
			dispatched(2 * messages)
			if err := <-ended; err != nil && !strings.Contains(err.Error(), "could not be written") {
				t.Error(err)
			}
			if err := stopSecond(); err != nil {
				t.Error(err)
			}
		})
	}
}

// cutPlace returns a database, and the same database through a proxy.
func cutPlace(t *testing.T, name string) (place, *servertest.Proxy, *outbox.Outbox) {
	t.Helper()
	server := sqltest.SharedPostgres(t)
	if name == "MariaDB" {
		server = sqltest.SharedMariaDB(t)
	}
	proxy, err := servertest.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	dsn := server.DSN("", "", server.NewDatabase(t))
	via := strings.Replace(dsn, server.Addr(), proxy.Addr(), 1)
	if name == "Postgres" {
		return postgresAt(t, dsn), proxy, postgresAt(t, via).open()
	}
	return mariaDBAt(t, dsn), proxy, mariaDBAt(t, via).open()
}
