package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/memory"
)

// A fleet has relays in virtual time, and the receiver of their messages.
type fleet struct {
	t     testing.TB
	store *memory.Store
	box   *outbox.Outbox
	locks *memlock.Store
	*receiver
}

func newFleet(t testing.TB) *fleet {
	s, locks := memory.New(), memlock.New()
	t.Cleanup(func() {
		if err := s.Misused(); err != nil {
			t.Error(err)
		}
	})
	return &fleet{t: t, store: s, locks: locks, box: outbox.OnMemory(s, locks),
		receiver: &receiver{effects: map[outbox.ID]int{}, seqs: map[string][]int64{}}}
}

// A receiver applies each effect once, and records the order in which messages arrive.
type receiver struct {
	mu         sync.Mutex
	deliveries int
	effects    map[outbox.ID]int
	seqs       map[string][]int64 // of the first deliveries, by key
	fail       func(d outbox.Delivery) error
	hold       func(ctx context.Context, d outbox.Delivery)
}

// Deliver implements outbox.Sink.
func (r *receiver) Deliver(ctx context.Context, d outbox.Delivery) error {
	if r.hold != nil {
		r.hold(ctx, d)
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deliveries++
	if r.fail != nil {
		if err := r.fail(d); err != nil {
			return err
		}
	}
	if r.effects[d.ID]++; r.effects[d.ID] == 1 {
		r.seqs[d.Key] = append(r.seqs[d.Key], d.Seq)
	}
	return nil
}

// inOrder fails the test unless the messages of each key arrived in the order in which they were
// appended.
func (r *receiver) inOrder(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, seqs := range r.seqs {
		for i := 1; i < len(seqs); i++ {
			if key != "" && seqs[i] < seqs[i-1] {
				t.Fatalf("key %q: message %d came after %d", key, seqs[i], seqs[i-1])
			}
		}
	}
}

func (r *receiver) had() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.effects)
}

// append commits n messages with the key and the topic "t".
func (f *fleet) append(key string, n int) []outbox.ID {
	f.t.Helper()
	return f.appendTo("t", key, n)
}

func (f *fleet) appendTo(topic, key string, n int) (ids []outbox.ID) {
	f.t.Helper()
	tx := f.store.Begin()
	for i := range n {
		id := outbox.RandomID()
		fresh, err := f.box.Append(context.Background(), tx, outbox.Message{ID: id, Topic: topic, Key: key,
			Payload: fmt.Append(nil, i)})
		if err != nil || !fresh {
			f.t.Fatal(fresh, err)
		}
		ids = append(ids, id)
	}
	tx.Commit()
	return ids
}

// relay runs a relay until stop is called or the test ends. stop returns the error of Run.
func (f *fleet) relay(config outbox.RelayConfig) (stop func() error) {
	f.t.Helper()
	_, stop = f.relayOf(config)
	return stop
}

func (f *fleet) relayOf(config outbox.RelayConfig) (*outbox.Relay, func() error) {
	f.t.Helper()
	if config.Sinks == nil && config.DefaultSink == nil {
		config.DefaultSink = f.receiver
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := outbox.NewRelay(f.box, config)
	if err != nil {
		f.t.Fatal(err)
	}
	return r, f.run(r)
}

// run runs a relay until stop is called or the test ends.
func (f *fleet) run(r *outbox.Relay) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	f.t.Cleanup(func() { _ = stop() })
	return stop
}

// until waits in virtual time until done returns true, and returns how long that took. The test
// fails if it takes longer than within.
func (f *fleet) until(what string, within time.Duration, done func() bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for !done() {
		if time.Since(began) > within {
			f.t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

func inBubble(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFleet(t)) })
}

var errReceiver = errors.New("the receiver is away")
