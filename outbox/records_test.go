package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/memory"
)

// Deleting or requeueing an empty search result changes nothing, no matter what else the filter
// contains.
//
// Fails when an empty list of IDs that is not nil selects all messages.
func TestAnEmptyListOfIDsIsNotAll(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		f.fail = func(outbox.Delivery) error { return outbox.Permanent(errReceiver) }
		ids := f.appendTo("orders", "a", 2)
		stop := f.relay(outbox.RelayConfig{})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for field, which := range map[string]outbox.Filter{"none": {}, "topic": {Topic: "orders"}, "key": {Key: "a"},
			"from": {CreatedFrom: time.Now().Add(-time.Hour)}, "until": {CreatedBefore: time.Now().Add(time.Hour)}} {
			which.IDs = []outbox.ID{}
			_, listed := f.box.Messages(t.Context(), which, 10)
			_, requeued := f.box.Requeue(t.Context(), which, outbox.RequeueOptions{})
			_, deleted := f.box.Delete(t.Context(), which)
			for call, err := range map[string]error{"Messages": listed, "Requeue": requeued, "Delete": deleted} {
				if err == nil || !strings.Contains(err.Error(), "IDs is empty: leave it nil") {
					t.Errorf("%s with empty IDs and another field (%s): %v", call, field, err)
				}
			}
		}
		dead, err := f.box.Messages(t.Context(), outbox.Filter{Topic: "orders", State: outbox.StateDead}, 10)
		if err != nil || len(dead) != len(ids) {
			t.Errorf("%d messages are dead, want %d: %v", len(dead), len(ids), err)
		}
	})
}

// A teller is a store with its own way to notify relays.
type teller struct {
	*memory.Store
	tell func(context.Context) error
}

func (t teller) Notify(ctx context.Context) error { return t.tell(ctx) }

// A requeued message is delivered immediately by the relay of another process, which would
// otherwise find it only after its IdleDelay. The process that requeues it may end as soon as
// Requeue returns.
//
// Fails when Requeue does not notify, notifies after it has returned, notifies although it has
// changed nothing, or fails because the notification failed.
func TestRequeuedMessagesAreDeliveredAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var rejects atomic.Bool
		f.fail = func(outbox.Delivery) error {
			if rejects.Load() {
				return outbox.Permanent(errReceiver)
			}
			return nil
		}
		f.host().relay(outbox.RelayConfig{})
		for i, test := range []struct {
			name string
			tell func(context.Context) error
			most time.Duration
		}{
			{"relays hear it", f.store.Notify, 20 * time.Millisecond},
			{"it fails", func(context.Context) error { return errReceiver }, 36 * time.Second},
			{"it hangs", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 36 * time.Second},
		} {
			told := 0
			box := outbox.OnMemory(teller{f.store, func(ctx context.Context) error {
				told++
				return test.tell(ctx)
			}}, f.locks)
			rejects.Store(true)
			which := outbox.Filter{IDs: f.append("a", 1)}
			f.box.Notify()
			time.Sleep(time.Minute)
			rejects.Store(false)
			began := time.Now()
			n, err := box.Requeue(t.Context(), which, outbox.RequeueOptions{})
			if took := time.Since(began); n != 1 || err != nil || told != 1 || took > 5*time.Second {
				t.Errorf("%s: %d requeued after %v, %v; reported %d times, want once", test.name, n, took, err, told)
			}
			took := f.until("it is delivered", time.Minute, func() bool { return f.had() == i+1 })
			if took > test.most+time.Millisecond {
				t.Errorf("%s: delivered after %v, want at most %v", test.name, took, test.most)
			}
			if n, err := box.Requeue(t.Context(), which, outbox.RequeueOptions{}); n != 0 || err != nil || told != 1 {
				t.Errorf("%s: %d messages requeued that are not dead, %v; reported %d times, want once",
					test.name, n, err, told)
			}
		}
	})
}

// Thousands of messages are requeued, 1,000 per transaction, and one transaction fails.
//
// Fails when Requeue uses a single transaction, never ends, or reports that nothing was requeued
// although messages were.
func TestRequeueOfThousands(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const many = 2500
		var broken atomic.Bool
		calls := 0
		f.store.Fault = func(op string) error {
			if op != "requeue" {
				return nil
			}
			if calls++; broken.Load() && calls == 2 {
				return errReceiver
			}
			return nil
		}
		var rejects atomic.Bool
		rejects.Store(true)
		f.fail = func(outbox.Delivery) error {
			if rejects.Load() {
				return outbox.Permanent(errReceiver)
			}
			return nil
		}
		for i := range many {
			f.append(fmt.Sprint(i), 1)
		}
		f.relay(outbox.RelayConfig{BatchSize: 1000, MaxDeliveries: 1000})
		dead := func() int {
			b, err := f.box.Backlog(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return int(b.Dead)
		}
		f.until("all are dead", time.Minute, func() bool { return dead() == many })
		rejects.Store(false)
		broken.Store(true)
		n, err := f.box.Requeue(t.Context(), outbox.Filter{Topic: "t"}, outbox.RequeueOptions{})
		if n != 1000 || err == nil {
			t.Errorf("%d, %v, want 1000 and an error", n, err)
		}
		broken.Store(false)
		calls = 0
		n, err = f.box.Requeue(t.Context(), outbox.Filter{Topic: "t"}, outbox.RequeueOptions{})
		if n != 1500 || err != nil || calls != 2 {
			t.Errorf("%d in %d calls, %v, want 1500 in 2", n, calls, err)
		}
		f.until("all are delivered", time.Minute, func() bool { return f.had() == many })
	})
}

// A message that was dead for two days is requeued, and its receiver works again.
//
// Fails when a check or Ready says that the message has been pending for two days.
func TestRequeuedMessageIsPendingSinceThen(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		free := make(chan struct{})
		rejects := true
		f.fail = func(outbox.Delivery) error {
			if rejects {
				return outbox.Permanent(errReceiver)
			}
			return nil
		}
		relay, _ := f.relayOf(outbox.RelayConfig{Unready: outbox.Thresholds{PendingAge: 2 * time.Hour}})
		f.append("a", 1)
		f.box.Notify()
		time.Sleep(4 * time.Hour)
		rejects = false
		f.hold = func(context.Context, outbox.Delivery) { <-free }
		if n, err := f.box.Requeue(t.Context(), outbox.Filter{Topic: "t"}, outbox.RequeueOptions{}); n != 1 {
			t.Fatal(n, err)
		}
		time.Sleep(20 * time.Second)
		if err := errors.Join(relay.Checks()["receivers-accept"](), relay.Ready()); err != nil {
			t.Errorf("it was requeued 20 s ago: %v", err)
		}
		time.Sleep(90 * time.Minute)
		if relay.Checks()["receivers-accept"]() == nil || relay.Ready() != nil {
			t.Errorf("it was requeued 90 minutes ago: the check says %v, Ready %v",
				relay.Checks()["receivers-accept"](),
				relay.Ready())
		}
		close(free)
	})
}
