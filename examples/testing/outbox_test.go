package billing_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	billing "github.com/tickslot/tickslot/examples/testing"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/outboxtest"
)

var (
	errReceiver = errors.New("503")
	silent      = outbox.RelayConfig{Logger: slog.New(slog.DiscardHandler)}
)

// The test checks which message a function has appended to its transaction.
func TestOrderIsAnnounced(t *testing.T) {
	box := outboxtest.New(t)
	outboxtest.InTx(t, box, func(tx outbox.Tx) error {
		return billing.Announce(t.Context(), box, tx, billing.Order{Number: 7})
	})

	message := outboxtest.RequireAppended(t, box, nil, "order.placed")[0]
	if order := outboxtest.Payload[billing.Order](t, message); order.Number != 7 {
		t.Errorf("appended %+v", order)
	}
}

// The test makes one delivery to one sink.
func TestASinkThatRejects(t *testing.T) {
	relay, err := billing.Relay(outboxtest.New(t), silent, outbox.SinkFunc(
		func(context.Context, outbox.Delivery) error { return outbox.Permanent(errReceiver) }))
	if err != nil {
		t.Fatal(err)
	}

	d := outbox.Delivery{Message: outbox.Message{Topic: "order.placed", Payload: []byte(`{"Number": 7}`)}}
	if got := outboxtest.Deliver(t, relay, d); got.Outcome != outbox.OutcomePermanent {
		t.Errorf("%+v", got)
	}
}

// The test delivers everything in virtual time. The receiver is down for two hours.
func TestMessageWaitsForItsReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(2 * time.Hour)
		box := outboxtest.New(t)
		outboxtest.InTx(t, box, func(tx outbox.Tx) error {
			return billing.Announce(t.Context(), box, tx, billing.Order{Number: 7})
		})
		relay, err := billing.Relay(box, silent, outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
			if time.Now().Before(back) {
				return errReceiver
			}
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}

		ended := outboxtest.WorkOff(t, relay, 24*time.Hour)
		if len(ended) != 1 || ended[0].State != outbox.StateDispatched || ended[0].FinishedAt.Before(back) {
			t.Errorf("%+v", ended)
		}
	})
}
