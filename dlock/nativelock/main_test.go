package nativelock_test

import (
	"context"
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

// suiteTTL is the length of the leases for which the conformance suite waits: long enough for a
// busy machine.
const suiteTTL = time.Second

// crowdOptions have short leases, which still last long enough for a busy machine to renew them.
var crowdOptions = dlock.SessionOptions{TTL: faultTTL, StoreTimeout: faultTTL / 3}

const faultTTL = 2 * time.Second

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
