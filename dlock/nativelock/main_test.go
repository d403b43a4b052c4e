package nativelock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/servertest"
)

func TestMain(m *testing.M) {
	servertest.Main(m, func() error { return goleak.Find() })
}

var prefixes atomic.Int64

// unique makes a prefix that no other test has, nor the same test in another round of -count.
func unique(prefix string) string { return fmt.Sprintf("%s%d:", prefix, prefixes.Add(1)) }

// long skips what waits for real, in the short tests.
func long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("waits for real")
	}
}

// suiteTTL is the length of the leases for which the conformance suite waits: long enough for a
// machine that has much else to do.
const suiteTTL = time.Second

// crowdOptions are those of the crowds here: of short leases.
var crowdOptions = dlock.SessionOptions{TTL: faultTTL, StoreTimeout: 400 * time.Millisecond}

const faultTTL = 1200 * time.Millisecond

// A counter is a pgx tracer that counts the statements that are sent.
type counter struct{ queries, prepares atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counter) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	c.prepares.Add(1)
	return ctx
}
func (c *counter) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}
