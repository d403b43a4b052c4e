package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
)

// ErrCommitted is matched by the error of InTx if the function has ended the transaction itself. If
// the function has committed, its changes remain committed.
var ErrCommitted = errors.New("the function has ended the transaction, which only InTx may do: just return from it")

// A Queue queues runs and messages in a transaction. Packages pgservice and sqliteservice make one
// for each transaction of InTx. Use it only on the goroutine of that transaction.
type Queue struct {
	service   *Service
	runs      durable.Tx
	messages  outbox.Tx
	triggered bool
	appended  bool
}

// NewQueue returns a Queue on a transaction, for the stores passed to New. Call Notify after the
// commit. In a test with outboxtest.InTx, pass nil for runs, because a store from durabletest has
// no transactions.
func (s *Service) NewQueue(runs durable.Tx, messages outbox.Tx) *Queue {
	return &Queue{service: s, runs: runs, messages: messages}
}

// Trigger queues a run of a handler. The run exists once the transaction commits: see
// durable.Store.Trigger.
func (q *Queue) Trigger(ctx context.Context, handler string, payload []byte, options durable.TriggerOptions) (id int64,
	err error) {
	if q.service.stores.Runs == nil {
		return 0, errNoRuns
	}
	q.triggered = true
	return q.service.stores.Runs.Trigger(ctx, q.runs, handler, payload, options)
}

// Append adds a message. The message exists once the transaction commits: see outbox.Outbox.Append.
func (q *Queue) Append(ctx context.Context, m outbox.Message) (fresh bool, err error) {
	if q.service.stores.Outbox == nil {
		return false, errNoOutbox
	}
	q.appended = true
	return q.service.stores.Outbox.Append(ctx, q.messages, m)
}

// Notify makes workers and relays look for queued work immediately. It does not wait. It is
// harmless if nothing was committed.
func (q *Queue) Notify() {
	if q.triggered {
		q.service.stores.Runs.Notify()
	}
	if q.appended {
		q.service.stores.Outbox.Notify()
	}
}

// A Job is a handler for durable runs whose payload is a T, encoded as JSON. Create one with
// Handle.
type Job[T any] struct{ name string }

// Handle registers the handler of a job with a worker, and returns the Job that triggers it:
//
//	invoice := service.Handle(svc.Worker(), "invoice", app.sendInvoice, durable.HandlerOptions{})
//	…
//	_, err := invoice.Trigger(ctx, tx, Invoice{Number: 7}, durable.TriggerOptions{})
//
// See durable.JSON for payloads that cannot be decoded. In a process that only triggers the job,
// use JobOf.
func Handle[T any](w *durable.Worker, name string, f func(ctx context.Context, payload T) error,
	options durable.HandlerOptions) Job[T] {
	w.Handle(name, durable.JSON(f), options)
	return Job[T]{name}
}

// JobOf returns the job for a handler that runs in other processes.
func JobOf[T any](name string) Job[T] { return Job[T]{name} }

// Trigger queues a run with this payload in the transaction of tx: see Queue.Trigger.
func (j Job[T]) Trigger(ctx context.Context, tx Triggerer, payload T, options durable.TriggerOptions) (id int64,
	err error) {
	text, err := json.Marshal(payload)
	if err != nil {
		return 0, fmt.Errorf("service: the payload of a run of %.60q, a %T: %w", j.name, payload, err)
	}
	return tx.Trigger(ctx, j.name, text, options)
}

// A Triggerer triggers runs: a Queue, the Tx of pgservice or sqliteservice, or a durable.Control,
// which uses its own transaction.
type Triggerer interface {
	Trigger(ctx context.Context, handler string, payload []byte, options durable.TriggerOptions) (id int64, err error)
}
