package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/memory"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Hundreds of messages wait for an earlier message that is retried in an hour, or there are so many
// messages that each shard has few of the first ones. Messages with other keys and without a key
// are delivered in the meantime, each key in order, without a notification.
//
// Fails when Due has left out messages of a key that it has returned and the relay does not look
// for them again. TestSearchThatFindsNothingPauses shows that the relay continues a search.
func TestOthersGoOnBesideALongQueue(t *testing.T) {
	t.Parallel()
	// rounds returns the list of keys repeated n times.
	rounds := func(n int, keys ...string) (list []string) {
		for range n {
			list = append(list, keys...)
		}
		return list
	}
	numbered := func(n int) (keys []string) {
		for i := range n {
			keys = append(keys, fmt.Sprint("key", i))
		}
		return keys
	}
	long := rounds(300, "long")
	for name, c := range map[string]struct {
		config outbox.RelayConfig
		keys   []string
	}{
		"many keys": {outbox.RelayConfig{BatchSize: 8},
			slices.Concat(long, rounds(2, append(numbered(testkit.Rounds(t, 80, 300)), "")...))},
		"many messages of few keys": {outbox.RelayConfig{}, slices.Concat(long, rounds(40, "a", "b", ""))},
		"a key that came before it": {outbox.RelayConfig{}, slices.Concat([]string{"a"}, long, rounds(40, "a"))},
		"eight shards":              {outbox.RelayConfig{Shards: 8}, rounds(10, numbered(20)...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, p place) { othersGoOn(t, p, c.config, c.keys) })
		})
	}
}

// othersGoOn appends messages with the given keys. The messages of the key "long" fail. othersGoOn
// fails the test unless all others are delivered.
func othersGoOn(t *testing.T, p place, config outbox.RelayConfig, keys []string) {
	box := p.open()
	t.Cleanup(func() { box.Close() })
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, commit, rollback := p.begin(t)
	defer rollback()
	others := 0
	var list []outbox.Message
	for _, key := range keys {
		list = append(list, outbox.Message{ID: outbox.RandomID(), Topic: "t", Key: key})
		if key != "long" {
			others++
		}
	}
	if _, err := box.AppendMany(t.Context(), tx, list...); err != nil {
		t.Fatal(err)
	}
	if err := commit(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	had, last := 0, map[string]int64{}
	config.PollInterval, config.IdleDelay, config.Logger = time.Hour, time.Hour, slog.New(slog.DiscardHandler)
	config.DefaultSink = outbox.SinkFunc(func(_ context.Context, d outbox.Delivery) error {
		if d.Key == "long" {
			return outbox.RetryAfter(time.Hour, errReceiver)
		}
		mu.Lock()
		defer mu.Unlock()
		had++
		if d.Key != "" && d.Seq < last[d.Key] {
			t.Errorf("key %s: message %d came after %d", d.Key, d.Seq, last[d.Key])
		}
		last[d.Key] = d.Seq
		return nil
	})
	relay, err := outbox.NewRelay(box, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	testkit.EventuallyAll(t, testkit.Patience, "the others are delivered", others, func() int {
		mu.Lock()
		defer mu.Unlock()
		return had
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A dead message is requeued while a later message of its key waits for its next attempt. Both are
// delivered, the later one when it is due.
//
// Fails when the relay does not poll again after the first message, which has hidden the due time
// of the second.
func TestRequeuedBeforeOneThatIsTriedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		ids := f.append("a", 2)
		first := map[outbox.ID]error{ids[0]: outbox.Permanent(errReceiver),
			ids[1]: outbox.RetryAfter(time.Minute, errReceiver)}
		f.fail = func(d outbox.Delivery) error {
			if d.Attempt == 1 {
				return first[d.ID]
			}
			return nil
		}
		f.relay(outbox.RelayConfig{PollInterval: time.Hour, IdleDelay: time.Hour})
		f.until("the second message waits", time.Second, func() bool {
			m, _, err := f.box.Message(t.Context(), ids[1])
			return err == nil && m.Attempts == 1
		})
		n, err := f.box.Requeue(t.Context(), outbox.Filter{IDs: ids}, outbox.RequeueOptions{})
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if err := f.store.Notify(t.Context()); err != nil { // notify once, as another process would
			t.Fatal(err)
		}
		f.until("both are delivered", 2*time.Minute, func() bool { return f.had() == 2 })
	})
}

// A search goes through thousands of waiting keys. After each call, it pauses for as long as the
// call took. It continues to its end, and begins again only if the relay was notified in the
// meantime.
//
// Fails when there is no pause between calls that find nothing, or when the end of a pause begins a
// new search.
func TestSearchThatFindsNothingPauses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		s := &searched{Store: f.store}
		f.box = outbox.OnMemory(s, f.locks)
		f.relay(outbox.RelayConfig{PollInterval: time.Hour, IdleDelay: time.Hour})
		time.Sleep(time.Minute)
		s.calls.Store(0)
		f.box.Notify()
		took := f.until("the search has ended", time.Minute, func() bool { return s.calls.Load() >= searchCalls })
		if least := searchCalls * 19 / 10 * searchCallTook; took < least {
			t.Errorf("%d calls of %v took %v, want at least %v", searchCalls, searchCallTook, took, least)
		}
		time.Sleep(time.Minute)
		// Notify wakes the relay twice: directly, and through the database.
		if calls := s.calls.Load(); calls > 2*searchCalls || calls%searchCalls != 0 {
			t.Errorf("%d calls, want %d for each of at most two searches", calls, searchCalls)
		}
	})
}

// A search in searched takes searchCalls calls, each of which takes searchCallTook.
const (
	searchCalls    = 50
	searchCallTook = 10 * time.Millisecond
)

// searched is a store with many keys that wait.
type searched struct {
	*memory.Store
	calls atomic.Int64
}

// Due implements store.Relay.
func (s *searched) Due(ctx context.Context, q store.DueRequest) (store.Due, error) {
	time.Sleep(searchCallTook)
	due, err := s.Store.Due(ctx, q)
	if s.calls.Add(1)%searchCalls != 0 {
		due.After = "a key"
	}
	return due, err
}
