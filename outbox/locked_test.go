package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// An operator locks the row of one message and leaves. All other messages are delivered and marked.
// The relay reports one unwritten result when it ends, and the next relay delivers one message
// again.
//
// Fails when the results of other messages wait for the row, or when a marked message is delivered
// again after a failover.
func TestOneRowIsLocked(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) place{"Postgres": onPostgres, "MariaDB": onMariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t)
			box := p.open()
			t.Cleanup(func() { box.Close() })
			if err := box.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			const others = 300
			appended := func(keys string, n int) { t.Helper(); p.appended(t, box, keys, n) }
			appended("locked", 1)
			tx, _, unlock := p.begin(t)
			defer unlock()
			seq := int64(0)
			for _, query := range []string{"SELECT seq FROM tickslot_outbox",
				"SELECT seq FROM tickslot_outbox WHERE seq = %d FOR UPDATE"} { // by Seq, which locks no other row
				if strings.Contains(query, "%d") {
					query = fmt.Sprintf(query, seq)
				}
				if err := tx.QueryRow(t.Context(), query).Scan(&seq); err != nil {
					t.Fatal(err)
				}
			}
			appended("other", others)

			var calls atomic.Int64
			relay := func() (stop func() error) {
				return running(t, box, outbox.RelayConfig{DrainTimeout: time.Millisecond,
					PollInterval: 50 * time.Millisecond,
					DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
						calls.Add(1)
						return nil
					})})
			}
			dispatched := func(want int) {
				t.Helper()
				testkit.Eventually(t, testkit.Patience, fmt.Sprint(want, " messages are dispatched"), func() bool {
					list, err := box.Messages(t.Context(), outbox.Filter{State: outbox.StateDispatched}, 1000)
					if err != nil {
						t.Fatal(err)
					}
					return len(list) == want
				})
			}
			stop := relay()
			dispatched(others)
			if err := stop(); err == nil || !strings.Contains(err.Error(), "the results of 1 deliveries") {
				t.Errorf("Run: %v, want an error about one result that was not written", err)
			}
			appended("later", 10)
			stop = relay()
			dispatched(others + 10)
			if err := unlock(); err != nil {
				t.Fatal(err)
			}
			dispatched(others + 11)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if n := calls.Load(); n > others+12 {
				t.Errorf("%d deliveries of %d messages, want one delivery more", n, others+11)
			}
		})
	}
}

// Fails when the check does not name a row that has been locked for long, or when it still fails
// after no row is locked any more.
func TestCheckOfLockedRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		ids := f.append("locked", 1)
		var free atomic.Bool
		f.store.Locked = func(id store.ID) bool { return !free.Load() && outbox.ID(id) == ids[0] }
		r, _ := f.relayOf(outbox.RelayConfig{})
		check := r.Checks()["rows-unlocked"]
		time.Sleep(10 * time.Second)
		for range 10 {
			f.append("other", 1)
		}
		f.box.Notify()
		f.until("all are delivered", time.Second, func() bool { return f.had() == 11 })
		if err := check(); err != nil {
			t.Errorf("after 10 s: %v", err)
		}
		time.Sleep(10 * time.Second)
		said := fmt.Sprint(check())
		if !strings.Contains(said, "rows of 1 ") || !strings.Contains(said, ids[0].String()) {
			t.Errorf("after 20 s: %v, want the number of locked rows, and a message", said)
		}
		free.Store(true)
		f.until("the check passes", 3*time.Second, func() bool { return check() == nil })
		if m, _, err := f.box.Message(t.Context(), ids[0]); err != nil || m.State != outbox.StateDispatched {
			t.Errorf("%+v, %v, want a marked message", m, err)
		}
		if f.deliveries != 11 {
			t.Errorf("%d deliveries of 11 messages", f.deliveries)
		}
	})
}

// Another session keeps hundreds of rows locked. The results of all other messages are written. The
// results of the locked rows are written once the rows are free, without another delivery. If
// thousands of rows are locked, the relay stops delivering before it has more results than it can
// keep.
//
// Fails when results that cannot be written keep other messages from being delivered, or when their
// number is not bounded.
func TestManyRowsAreLocked(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var free atomic.Bool
		locked := map[store.ID]bool{}
		f.store.Locked = func(id store.ID) bool { return !free.Load() && locked[id] }
		add := func(prefix string, n int, isLocked bool) {
			for i := range n {
				key := fmt.Sprint(prefix, i)
				if i%2 == 0 {
					key = ""
				}
				id := store.ID(f.append(key, 1)[0])
				if isLocked {
					locked[id] = true
				}
			}
		}
		add("locked", 600, true)
		f.relay(outbox.RelayConfig{})
		f.until("they are delivered", time.Minute, func() bool { return f.had() == 600 })
		for round := range 5 {
			add(fmt.Sprint("other", round), 200, false)
			f.box.Notify()
			f.until("other messages are delivered", 5*time.Second, func() bool { return f.had() == 600+200*(round+1) })
			time.Sleep(10 * time.Second)
		}
		dispatched, err := f.box.Messages(t.Context(), outbox.Filter{State: outbox.StateDispatched}, 1000)
		if err != nil || len(dispatched) != 1000 {
			t.Errorf("%d messages are dispatched, %v, want the 1000 whose rows are free", len(dispatched), err)
		}
		free.Store(true)
		f.until("all results are written", time.Minute, func() bool {
			b, err := f.box.Backlog(t.Context())
			return err == nil && b.Pending == 0
		})
		if f.deliveries != 1600 {
			t.Errorf("%d deliveries of 1600 messages", f.deliveries)
		}
		if testkit.Rounds(t, 1, 2) == 1 {
			return
		}
		free.Store(false)
		add("more", 6000, true)
		f.box.Notify()
		time.Sleep(time.Hour)
		if n := f.had() - 1600; n < 4000 || n > 5200 {
			t.Errorf("%d results are waiting, want about 5000", n)
		}
		free.Store(true)
		f.until("all are delivered", time.Hour, func() bool { return f.had() == 7600 })
	})
}
