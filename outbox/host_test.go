package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/memory"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// A host reaches the database of a fleet over its own link.
type host struct {
	*fleet
	cut   atomic.Bool // if true, no answer arrives, and calls hang until their contexts end
	lag   atomic.Int64
	calls atomic.Int64 // calls in progress
	// most is the maximum number of keys and messages that a relay had in memory when it called
	// Due.
	most atomic.Int64
}

func (f *fleet) host() *host {
	h := &host{fleet: &fleet{t: f.t, store: f.store, locks: f.locks, receiver: f.receiver}}
	h.box = outbox.OnMemory(linked{f.store, h}, linkedLocks{f.locks, h})
	return h
}

// ask returns when the request of a call has arrived. answer returns when its answer has arrived.
func (h *host) ask(ctx context.Context) error    { return h.pass(ctx) }
func (h *host) answer(ctx context.Context) error { return h.pass(ctx) }

func (h *host) pass(ctx context.Context) error {
	if most := h.lag.Load(); most > 0 {
		time.Sleep(rand.N(time.Duration(most)))
	}
	if h.cut.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return ctx.Err()
}

// linked is the store behind the link of a host.
type linked struct {
	*memory.Store
	host *host
}

func over[T any](ctx context.Context, h *host, f func() (T, error)) (none T, err error) {
	h.calls.Add(1)
	defer h.calls.Add(-1)
	if err := h.ask(ctx); err != nil {
		return none, err
	}
	v, err := f()
	if lost := h.answer(ctx); lost != nil {
		return none, lost
	}
	return v, err
}

func (l linked) Layout(ctx context.Context, want int) (store.Layout, error) {
	return over(ctx, l.host, func() (store.Layout, error) { return l.Store.Layout(ctx, want) })
}

func (l linked) Due(ctx context.Context, q store.DueRequest) (store.Due, error) {
	l.host.most.Store(max(l.host.most.Load(), int64(len(q.Keys)+len(q.IDs))))
	return over(ctx, l.host, func() (store.Due, error) { return l.Store.Due(ctx, q) })
}

func (l linked) Mark(ctx context.Context, relay string, results []store.Result) (store.Marked, error) {
	return over(ctx, l.host, func() (store.Marked, error) { return l.Store.Mark(ctx, relay, results) })
}

func (l linked) NoteBegun(ctx context.Context, list []store.Begun) error {
	_, err := over(ctx, l.host, func() (none struct{}, err error) { return none, l.Store.NoteBegun(ctx, list) })
	return err
}

func (l linked) Stats(ctx context.Context, topics []string, stopOnDead bool) (store.Stats, error) {
	return over(ctx, l.host, func() (store.Stats, error) { return l.Store.Stats(ctx, topics, stopOnDead) })
}

// linkedLocks are the locks behind the link of a host.
type linkedLocks struct {
	*memlock.Store
	host *host
}

func (l linkedLocks) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return over(ctx, l.host, func() (driver.Grant, error) { return l.Store.TryAcquire(ctx, req) })
}

func (l linkedLocks) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return over(ctx, l.host, func() ([]driver.Result, error) { return l.Store.Extend(ctx, ttl, grants...) })
}

func (l linkedLocks) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return over(ctx, l.host, func() ([]driver.Result, error) { return l.Store.Release(ctx, grants...) })
}

func (l linkedLocks) Enumerate(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
	return over(ctx, l.host, func() (driver.LeasePage, error) { return l.Store.Enumerate(ctx, after, limit) })
}

// A leader is cut off from its database in the middle of its work and comes back. Fails when a
// message is lost or has two effects, when another relay takes over later than TTL + RetryInterval,
// or when the order of a key is broken.
func TestLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		config := outbox.RelayConfig{TTL: 5 * time.Second, CallTimeout: time.Second, RetryInterval: time.Second}
		f.hold = func(ctx context.Context, _ outbox.Delivery) {
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(100 * time.Millisecond)):
			}
		}
		first := f.host()
		first.relay(config)
		time.Sleep(10 * time.Second)
		f.host().relay(config)
		total := 0
		for range 20 {
			for k := range 10 {
				f.append(string(rune('a'+k)), 5)
			}
			total += 50
			f.box.Notify()
			time.Sleep(rand.N(300 * time.Millisecond))
			first.cut.Store(true)
			f.until("the other relay has delivered all messages", 5*time.Second+time.Second+2*time.Second,
				func() bool { return f.had() == total })
			first.cut.Store(false)
			time.Sleep(rand.N(20 * time.Second))
		}
		f.inOrder(t)
	})
}

// Fails when Run returns during a call to the database. The user might then close the database
// during the call.
func TestRunWaitsForItsCalls(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		for range 50 {
			h := f.host()
			h.lag.Store(int64(50 * time.Millisecond))
			stop := h.relay(outbox.RelayConfig{Shards: 4})
			for i := range 10 {
				f.append(string(rune('a'+i)), 5)
				h.box.Notify()
				time.Sleep(rand.N(50 * time.Millisecond))
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			if n := h.calls.Load(); n > 0 {
				t.Fatalf("%d calls are in progress after Run", n)
			}
		}
	})
}

// Fails when two relays deliver a key, or when its messages are reordered, while the number of
// shards changes and messages wait.
func TestShardsChangeWhileMessagesWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var busy [26]atomic.Int32
		f.hold = func(ctx context.Context, d outbox.Delivery) {
			k := d.Key[0] - 'a'
			if busy[k].Add(1) > 1 {
				t.Errorf("two messages of key %s are delivered at the same time", d.Key)
			}
			defer busy[k].Add(-1)
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(time.Second)):
			}
		}
		total := 0
		for range 26 {
			f.append(string(rune('a'+total/40)), 40)
			total += 40
		}
		for _, shards := range []int{1, 4, 3, 16, 2} {
			h := f.host()
			h.lag.Store(int64(5 * time.Millisecond))
			h.relay(outbox.RelayConfig{Shards: shards, TTL: 5 * time.Second, CallTimeout: time.Second})
			time.Sleep(3 * time.Second)
		}
		f.until("all are delivered", time.Hour, func() bool { return f.had() == total })
		f.inOrder(t)
		if f.deliveries != total {
			t.Errorf("%d deliveries of %d messages, although nothing failed", f.deliveries, total)
		}
	})
}

// Fails when messages are lost, duplicated or reordered while answers are lost and calls fail.
func TestDatabaseThatFails(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var failing atomic.Bool
		fail := func(op string) error {
			if failing.Load() && rand.IntN(3) == 0 {
				return errReceiver
			}
			return nil
		}
		f.store.Fault, f.store.After = fail, fail
		f.fail = func(outbox.Delivery) error {
			if failing.Load() && rand.IntN(5) == 0 {
				return errReceiver
			}
			return nil
		}
		f.relay(outbox.RelayConfig{Retry: outbox.Retry{MaxAttempts: 100, FirstWait: 10 * time.Millisecond,
			MaxWait: 100 * time.Millisecond}})
		time.Sleep(time.Second)
		failing.Store(true)
		for i := range 300 {
			f.append(string(rune('a'+i%26)), 3)
			time.Sleep(50 * time.Millisecond)
		}
		f.until("all are delivered", time.Hour, func() bool { return f.had() == 900 })
		f.inOrder(t)
		failing.Store(false)
		time.Sleep(time.Minute)
		if f.deliveries-900 > 900 {
			t.Errorf("%d deliveries of 900 messages", f.deliveries)
		}
	})
}

// A draining relay finishes its deliveries in progress, and another relay continues immediately.
// Fails when a message is delivered twice, or when the failover takes as long as after a crash.
func TestDrain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		f.hold = func(ctx context.Context, _ outbox.Delivery) {
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
		a, b := f.host(), f.host()
		stop := a.relay(outbox.RelayConfig{})
		time.Sleep(5 * time.Second)
		b.relay(outbox.RelayConfig{})
		for k := range 16 {
			f.append(string(rune('a'+k)), 1)
		}
		a.box.Notify()
		time.Sleep(1500 * time.Millisecond)
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) > 4*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		f.until("the other relay continues", 4*time.Second, func() bool { return f.had() == 16 })
		if f.deliveries != 16 {
			t.Errorf("%d deliveries of 16 messages", f.deliveries)
		}
	})
}

// A sink that ignores its context blocks only its own place and key.
//
// Fails when the relay calls the sink again before it has returned, until no place is left for
// other messages, or when Run does not name the sink that does not return.
func TestSinkThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		free := make(chan struct{})
		stuck := f.append("stuck", 2)
		f.append("a", 10)
		f.hold = func(_ context.Context, d outbox.Delivery) {
			if d.ID == stuck[0] {
				<-free
			}
		}
		var log testkit.Log
		stop := f.relay(outbox.RelayConfig{DeliverTimeout: time.Second, MaxDeliveries: 2, DrainTimeout: time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		f.until("the other messages are delivered", time.Second, func() bool { return f.had() == 10 })
		time.Sleep(time.Hour)
		f.append("b", 10)
		f.box.Notify()
		f.until("later messages are delivered, too", time.Second, func() bool { return f.had() == 20 })
		m, tried, err := f.box.Message(t.Context(), stuck[0])
		if err != nil || len(tried) != 1 || m.State != outbox.StatePending {
			t.Errorf("%s, attempts %+v, %v, want one: the sink has not returned", m.State, tried, err)
		}
		if err, ok := errors.AsType[*outbox.StuckError](stop()); !ok || len(err.Topics) != 1 || err.Topics[0] != "t" {
			t.Errorf("%v, want a StuckError of the topic", err)
		}
		if text := log.String(); !strings.Contains(text, `level=INFO msg="outbox: relay stopped"`) ||
			!strings.Contains(text, "still_running=t") {
			t.Errorf("the log does not say what was still running:\n%s", text)
		}
		close(free)
	})
}

// Two hosts have relays with the same name, like two containers with the same configuration, and
// the delivering host is cut off again and again. Fails when a message is lost or arrives out of
// order, or when the history of a message has an attempt twice.
func TestTwoRelaysOfOneName(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		config := outbox.RelayConfig{Name: "relay", TTL: 5 * time.Second, CallTimeout: time.Second}
		f.hold = func(ctx context.Context, _ outbox.Delivery) {
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(50 * time.Millisecond)):
			}
		}
		f.fail = func(d outbox.Delivery) error {
			if d.Attempt == 1 && d.Seq%3 == 0 {
				return outbox.RetryAfter(100*time.Millisecond, errReceiver)
			}
			return nil
		}
		hosts := []*host{f.host(), f.host()}
		for _, h := range hosts {
			h.relay(config)
		}
		var ids []outbox.ID
		for round := range 10 {
			for k := range 10 {
				ids = append(ids, f.append(string(rune('a'+k)), 3)...)
			}
			time.Sleep(rand.N(200 * time.Millisecond))
			hosts[round%2].cut.Store(true)
			time.Sleep(10 * time.Second)
			hosts[round%2].cut.Store(false)
			time.Sleep(rand.N(5 * time.Second))
		}
		f.until("all are delivered", time.Minute, func() bool { return f.had() == len(ids) })
		f.inOrder(t)
		time.Sleep(time.Minute)
		for _, id := range ids {
			m, tried, err := f.box.Message(t.Context(), id)
			if err != nil || m.State != outbox.StateDispatched || m.Attempts != len(tried) {
				t.Errorf("%+v, attempts %+v, %v", m, tried, err)
			}
			for i, a := range tried {
				if a.Number != i+1 || (a.Outcome == outbox.OutcomeOK) != (i == len(tried)-1) {
					t.Errorf("attempts %+v", tried)
				}
			}
		}
	})
}

// A sink is in the middle of a long delivery when its relay is cut off. Fails when another relay
// delivers the message before the context of the first delivery has ended.
func TestDeliveryEndsWithTheLease(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var busy atomic.Int32
		f.hold = func(ctx context.Context, _ outbox.Delivery) {
			if busy.Add(1) > 1 {
				t.Error("two relays deliver a message at the same time")
			}
			defer busy.Add(-1)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
		}
		config := outbox.RelayConfig{TTL: 5 * time.Second, CallTimeout: time.Second}
		first := f.host()
		first.relay(config)
		f.append("a", 1)
		time.Sleep(2 * time.Second)
		f.host().relay(config)
		first.cut.Store(true)
		f.until("the other relay has delivered it", time.Minute, func() bool { return f.had() == 1 })
		first.cut.Store(false)
		time.Sleep(time.Minute)
		if f.deliveries != 1 {
			t.Errorf("%d deliveries were completed, want 1", f.deliveries)
		}
	})
}

// halfStuck is a store whose calls for the first of two shards ignore their contexts.
type halfStuck struct {
	*memory.Store
	stuck atomic.Bool
	free  chan struct{}
	calls atomic.Int32 // number of calls that were stuck
}

func (s *halfStuck) Due(ctx context.Context, q store.DueRequest) (store.Due, error) {
	if s.stuck.Load() && q.Shard == 0 {
		s.calls.Add(1)
		<-s.free
	}
	return s.Store.Due(ctx, q)
}

// The relay abandons a call that ignores its context, and does not repeat it for its shard until it
// returns. Live then fails, because only a restart may help. The other shards continue, and the
// relay can stop.
//
// Fails when the call holds up another shard, when such calls pile up, when Live passes, when Run
// waits for the call, or when the shard does not deliver once the call has returned.
func TestCallThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		s := &halfStuck{Store: f.store, free: make(chan struct{})}
		f.box = outbox.OnMemory(s, f.locks)
		r, stop := f.relayOf(outbox.RelayConfig{Shards: 2, TTL: 5 * time.Second, CallTimeout: time.Second})
		time.Sleep(time.Minute)
		s.stuck.Store(true)
		time.Sleep(time.Minute)
		others := 0
		for k := range 10 {
			m := outbox.Message{Topic: "t", Key: string(rune('a' + k))}
			f.append(m.Key, 1)
			others += int(m.Hash() % 2)
		}
		time.Sleep(3 * time.Minute)
		if had := f.had(); had != others || others == 0 || others == 10 {
			t.Errorf("%d messages were delivered, but %d are in the other shard", had, others)
		}
		if err := r.Live(); err == nil || !strings.Contains(err.Error(), "the call due has not returned for") {
			t.Error(err)
		}
		if n := s.calls.Load(); n != 1 {
			t.Errorf("%d calls were executed", n)
		}
		s.stuck.Store(false)
		close(s.free)
		f.until("all are delivered", time.Minute, func() bool { return f.had() == 10 })
		if err := r.Live(); err != nil {
			t.Error(err)
		}
		s.free = make(chan struct{})
		s.stuck.Store(true)
		time.Sleep(time.Minute)
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) > 10*time.Second || s.calls.Load() != 2 {
			t.Errorf("%v after %v, %d calls", err, time.Since(began), s.calls.Load())
		}
		close(s.free)
	})
}

// If a driver ends its goroutine, the call fails, but all parts of the relay continue.
//
// Fails when the part that made the call ends.
func TestDriverThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var failing atomic.Bool
		f.store.Fault = func(string) error {
			if failing.Load() {
				runtime.Goexit()
			}
			return nil
		}
		r, _ := f.relayOf(outbox.RelayConfig{})
		time.Sleep(time.Minute)
		failing.Store(true)
		time.Sleep(time.Minute)
		if err := r.Checks()["database-answers"](); err == nil || !strings.Contains(err.Error(),
			"called runtime.Goexit") {
			t.Error(err)
		}
		failing.Store(false)
		f.append("a", 10)
		f.until("all are delivered", time.Minute, func() bool { return f.had() == 10 })
	})
}
