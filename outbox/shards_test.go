package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
)

// A lineOfKeys is a receiver that checks that the messages of each key arrive one at a time, in
// order, and once.
type lineOfKeys struct {
	mu     sync.Mutex
	busy   map[string]int
	last   map[string]int64
	had    map[outbox.ID]bool
	faults []error
}

// Deliver implements outbox.Sink.
func (l *lineOfKeys) Deliver(ctx context.Context, d outbox.Delivery) error {
	l.mu.Lock()
	l.want(l.busy[d.Key] == 0, "key %s: two deliveries at once", d.Key)
	l.want(!l.had[d.ID], "key %s: message %d came twice, though nothing had failed", d.Key, d.Seq)
	l.want(d.Seq >= l.last[d.Key], "key %s: message %d came after %d", d.Key, d.Seq, l.last[d.Key])
	l.busy[d.Key]++
	l.last[d.Key] = max(d.Seq, l.last[d.Key])
	l.mu.Unlock()
	select { // takes some time
	case <-ctx.Done():
	case <-time.After(rand.N(100 * time.Millisecond)):
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy[d.Key]--
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.had[d.ID] = true
	return nil
}

func (l *lineOfKeys) want(ok bool, format string, args ...any) {
	if !ok && len(l.faults) < 5 {
		l.faults = append(l.faults, fmt.Errorf(format, args...))
	}
}

func (l *lineOfKeys) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.had)
}

// Relays with different numbers of shards begin and end while messages wait, some at the same time
// and some one after another. Each message arrives once, and the messages of a key arrive one at a
// time and in order.
//
// Fails when a relay does not wait until relays with the old number have stopped, or when a key
// belongs to no shard.
func TestShardsChangeOnRealDatabases(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	onEach(t, func(t *testing.T, p place) {
		box := p.open()
		t.Cleanup(func() { box.Close() })
		if err := box.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		const keys, each = 10, 18
		var list []outbox.Message
		for i := range each {
			for k := range keys {
				list = append(list, outbox.Message{ID: outbox.NewID("order", uint64(i), k), Topic: "t",
					Key: fmt.Sprint("key", k)})
			}
		}
		tx, commit, rollback := p.begin(t)
		if _, err := box.AppendMany(t.Context(), tx, list...); err != nil {
			t.Fatal(errors.Join(err, rollback()))
		}
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		l := &lineOfKeys{busy: map[string]int{}, last: map[string]int64{}, had: map[outbox.ID]bool{}}
		// relay runs a relay with its own connections until end is called.
		relay := func(shards int) (end func()) {
			own := p.open()
			r, err := outbox.NewRelay(own, outbox.RelayConfig{DefaultSink: l, Shards: shards, TTL: 10 * time.Second,
				RetryInterval: 100 * time.Millisecond, PollInterval: 50 * time.Millisecond,
				Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			end = sync.OnceFunc(func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				_ = own.Close()
			})
			t.Cleanup(end)
			return end
		}
		until := func(part int) {
			t.Helper()
			testkit.Eventually(t, testkit.Patience, fmt.Sprintf("%d of 6 parts are delivered", part), func() bool {
				return l.count() >= keys*each*part/6
			})
		}
		one := relay(1)
		until(1)
		one()
		four := relay(4) // after the first relay has ended
		until(2)
		three := relay(3) // while the relay with four still runs
		until(3)
		relay(2)
		until(4)
		four()
		three()
		until(6)
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.faults) > 0 || len(l.had) != keys*each {
			t.Errorf("%d messages were delivered, want %d: %v", len(l.had), keys*each, errors.Join(l.faults...))
		}
	})
}

// A relay with another number of shards begins while a relay delivers. Messages wait only until the
// old relay has stopped and the next attempt to lead comes.
//
// Fails when a relay leads once more under the old number, because all other relays would wait for
// it.
func TestShardsAreHandedOverSoon(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		total := 0
		deliver := func() {
			t.Helper()
			for k := range 10 {
				f.append(string(rune('a'+k)), 1)
				total++
			}
			f.box.Notify()
			f.until("they are delivered", 2500*time.Millisecond, func() bool { return f.had() == total })
		}
		for _, shards := range []int{1, 2, 5, 3, 1} {
			f.host().relay(outbox.RelayConfig{Shards: shards, RetryInterval: time.Second})
			for range 20 {
				deliver()
			}
		}
		f.inOrder(t)
	})
}
