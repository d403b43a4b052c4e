package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/memory"
	"github.com/tickslot/tickslot/outbox/internal/store"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// slowLink is a store whose answers take a second for each message.
type slowLink struct{ *memory.Store }

func (l slowLink) Due(ctx context.Context, r store.DueRequest) (store.Due, error) {
	due, err := l.Store.Due(ctx, r)
	select {
	case <-time.After(time.Duration(len(due.Messages)) * time.Second):
		return due, err
	case <-ctx.Done():
		return store.Due{}, errors.New("canceling statement due to statement timeout")
	}
}

// The link can carry 5 messages within the time-out of a call, and 100 messages are due.
//
// Fails when a relay requests as many messages again after a call that timed out. Then nothing
// would ever be delivered.
func TestABatchThatIsTooLargeForItsTime(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		f.box = outbox.OnMemory(slowLink{f.store}, f.locks)
		f.append("", 100)
		f.relay(outbox.RelayConfig{})
		took := f.until("all are delivered", 10*time.Minute, func() bool { return f.had() == 100 })
		if took > 3*time.Minute { // at least 100 s are needed
			t.Errorf("it took %v", took)
		}
	})
}

// The calls of a relay behind a link of 2 MB/s may take at most two seconds, and its messages have
// 12 MB in total.
//
// Fails when each call requests more messages than the link can carry in that time.
func TestLargeMessagesOnASlowLink(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	wire, err := servertest.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wire.Close)
	wire.Throttle(2_000_000)
	open := func(addr string) *pgxpool.Pool {
		pool, err := pgxpool.New(t.Context(), strings.Replace(server.DSN("", "", database), server.Addr(), addr, 1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	const messages = 24
	box := pgxoutbox.New(open(server.Addr()), outbox.Options{})
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := open(server.Addr()).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range messages {
		_, err := box.Append(t.Context(), pgxoutbox.Tx(tx), outbox.Message{ID: outbox.RandomID(), Topic: "t",
			Payload: make([]byte, 512<<10)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var had atomic.Int64
	far := pgxoutbox.New(open(wire.Addr()), outbox.Options{})
	relay, err := outbox.NewRelay(far, outbox.RelayConfig{CallTimeout: 2 * time.Second,
		PollInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
			had.Add(1)
			return nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		far.Close()
		box.Close()
	})
	testkit.Eventually(t, 2*testkit.Patience, "all are delivered", func() bool { return had.Load() >= messages })
}
