package billing

import (
	"context"
	"encoding/json"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
)

const (
	charge      = "charge"       // a durable run
	orderPlaced = "order.placed" // a message
)

// An Order is the payload of both.
type Order struct {
	Number int
	Cents  int64
}

// Charge queues a charge for an order. The run is not lost, whatever process dies meanwhile.
func Charge(ctx context.Context, store *durable.Store, tx durable.Tx, o Order, in durable.TriggerOptions) error {
	payload, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = store.Trigger(ctx, tx, charge, payload, in)
	return err
}

// Worker returns a worker that charges orders; the caller runs it. It passes a key to pay, which
// must not charge twice for the same key.
func Worker(store *durable.Store, config durable.Config, pay func(ctx context.Context, key string, cents int64) error) (
	*durable.Worker, error) {
	worker, err := durable.NewWorker(store, config)
	if err != nil {
		return nil, err
	}
	worker.Handle(charge, durable.JSON(func(ctx context.Context, o Order) error {
		run, _ := durable.RunFromContext(ctx)
		return pay(ctx, run.Key, o.Cents)
	}), durable.HandlerOptions{MaxConcurrency: 3})
	return worker, worker.Check()
}

// Announce appends the message about an order to the transaction that places it.
func Announce(ctx context.Context, box *outbox.Outbox, tx outbox.Tx, o Order) error {
	payload, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = box.Append(ctx, tx, outbox.Message{ID: outbox.RandomID(), Topic: orderPlaced, Payload: payload})
	return err
}

// Relay returns a relay that delivers these messages; the caller runs it.
func Relay(box *outbox.Outbox, config outbox.RelayConfig, sink outbox.Sink) (*outbox.Relay, error) {
	config.Sinks = map[string]outbox.Sink{orderPlaced: sink}
	return outbox.NewRelay(box, config)
}
