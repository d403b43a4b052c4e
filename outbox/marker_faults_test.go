package outbox_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// weather makes a database misbehave: calls fail or their answers are lost, and for a while some
// results are refused and some rows are locked.
type weather struct {
	t *testing.T

	mu      sync.Mutex
	random  *rand.Rand
	fine    bool
	down    bool
	bad     map[outbox.ID]bool // messages with refused results, or with locked rows if they have no key
	keys    map[outbox.ID]string
	numbers map[outbox.ID]int
	count   map[string]int // number of messages of each key
	next    map[string]int // next expected result of each key
	written int
}

func (w *weather) before(op string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if op == "mark" && !w.fine && (w.down || w.random.IntN(8) == 0) {
		return errReceiver
	}
	return nil
}

func (w *weather) after(op string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if op == "mark" && !w.fine && w.random.IntN(20) == 0 {
		return errReceiver
	}
	return nil
}

func (w *weather) refuses(id store.ID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.fine && w.bad[outbox.ID(id)] && w.keys[outbox.ID(id)] != "" {
		return errReceiver
	}
	return nil
}

// locked reports whether a result cannot be written because its row is locked. It is called for
// every result to be written.
func (w *weather) locked(of store.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := outbox.ID(of)
	key := w.keys[id]
	if !w.fine && w.bad[id] && key == "" {
		return true
	}
	w.written++
	if key != "" && w.numbers[id] != w.next[key] {
		w.t.Errorf("key %s: result %d is written, want %d", key, w.numbers[id], w.next[key])
	}
	w.next[key] = max(w.next[key], w.numbers[id]+1)
	return false
}

// appends appends some messages and sometimes changes the weather.
func (w *weather) appends(f *fleet) (n int) {
	w.mu.Lock()
	if w.random.IntN(60) == 0 {
		w.down = !w.down
	}
	if w.random.IntN(50) == 0 {
		clear(w.bad)
	}
	key := []string{"", "a", "b", "c", "d", "e"}[w.random.IntN(6)]
	n = 1 + w.random.IntN(3)
	wait := time.Duration(w.random.IntN(100)) * time.Millisecond
	w.mu.Unlock()
	tx := f.store.Begin()
	for range n {
		id := outbox.RandomID()
		if _, err := f.box.Append(w.t.Context(), tx, outbox.Message{ID: id, Topic: "t", Key: key}); err != nil {
			w.t.Fatal(err)
		}
		w.mu.Lock()
		w.keys[id], w.numbers[id] = key, w.count[key]
		w.count[key]++
		w.bad[id] = w.random.IntN(30) == 0
		w.mu.Unlock()
	}
	tx.Commit()
	f.box.Notify()
	time.Sleep(wait)
	return n
}

// The database fails, loses answers, refuses results and has locked rows. Then it recovers.
//
// Fails when a result is not written within a minute after that, or is written after a later result
// of its key.
func TestResultsUnderFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				w := &weather{t: t, random: rand.New(rand.NewPCG(seed, 1)), bad: map[outbox.ID]bool{},
					keys: map[outbox.ID]string{}, numbers: map[outbox.ID]int{}, count: map[string]int{},
					next: map[string]int{}}
				f.store.Fault, f.store.After = w.before, w.after
				f.store.Refuses, f.store.Locked = w.refuses, w.locked
				relay, _ := f.relayOf(outbox.RelayConfig{})
				total := 0
				for range 500 {
					total += w.appends(f)
				}
				w.mu.Lock()
				w.fine = true
				w.mu.Unlock()
				f.until("all results are written", time.Minute, func() bool {
					time.Sleep(20 * time.Millisecond)
					w.mu.Lock()
					defer w.mu.Unlock()
					return w.written == total
				})
				time.Sleep(time.Minute)
				if err := relay.Checks()["rows-unlocked"](); err != nil {
					t.Error(err)
				}
				if w.written != total || f.delivered() != total {
					t.Errorf("%d results written, %d deliveries, want %d", w.written, f.delivered(), total)
				}
			})
		})
	}
}
