package outbox_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox"
)

// The process of a relay was stopped for longer than its lease, so its term has ended, but the
// shard does not know yet. Fails when the shard begins a delivery, because another relay may lead.
func TestShardWhoseTermHasEndedBeginsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		session, err := dlock.NewSession(f.locks, dlock.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(t.Context())
		relay, err := outbox.NewRelay(f.box, outbox.RelayConfig{DefaultSink: f.receiver, DrainTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		lead := func(term *leader.Term) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			relay.Lead(ctx, term)
		}
		f.append("", 3)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var old *leader.Term
		err = leader.Run(ctx, session, leader.Role{Name: "a", Logger: slog.New(slog.DiscardHandler),
			Run: func(_ context.Context, term *leader.Term) error {
				lead(term)
				old = term
				stop()
				return nil
			}})
		if err != nil || f.delivered() != 3 {
			t.Fatalf("%v; %d of 3 were delivered in the term", err, f.delivered())
		}
		f.append("", 3)
		if lead(old); old.Valid() || f.delivered() != 3 {
			t.Errorf("%d deliveries after the term", f.delivered()-3)
		}
	})
}
