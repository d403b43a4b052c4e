package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// A relay delivers, the database fails for longer than a TTL, and the same relay leads again before
// it could write its results. Then the same happens once more. So the relay delivers the unmarked
// messages again and has three results for each.
//
// Fails when the relay repeatedly writes two results of a message in one call, which databases
// refuse, or when nothing is delivered any more.
func TestRelayThatLeadsAgainHasTwoResults(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var failing atomic.Bool
		f.store.Fault = func(op string) error {
			if failing.Load() && op == "mark" {
				return errReceiver
			}
			return nil
		}
		h := f.host()
		h.box = outbox.OnMemory(f.store, linkedLocks{f.locks, h}) // only the locks use the host's link
		h.relay(outbox.RelayConfig{TTL: 5 * time.Second, CallTimeout: time.Second, RetryInterval: time.Second})
		time.Sleep(10 * time.Second)
		failing.Store(true)
		const messages = 30
		for range messages {
			f.append("", 1)
		}
		f.until("all were delivered once", time.Minute, func() bool { return f.had() == messages })
		for times := 2; times <= 3; times++ {
			h.cut.Store(true)
			time.Sleep(10 * time.Second)
			h.cut.Store(false)
			f.until("all were delivered again", time.Minute, func() bool { return f.delivered() == times*messages })
		}
		failing.Store(false)
		f.dispatches(messages, 5*time.Second)
		f.append("later", 1)
		h.box.Notify()
		f.dispatches(messages+1, 5*time.Second)
	})
}

// While the results of three messages wait, the database is restored from a copy that lacks these
// messages. It reuses the numbers of their rows for other messages, whose deliveries fail.
//
// Fails when one call has two results of the same row, so that the database confuses them.
func TestResultsOfRowsThatAreOtherMessagesNow(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var away, fails atomic.Bool
		f.store.Fault = func(op string) error {
			if away.Load() && op == "mark" {
				return errReceiver
			}
			return nil
		}
		f.fail = func(outbox.Delivery) error {
			if fails.Load() {
				return errReceiver
			}
			return nil
		}
		f.relay(outbox.RelayConfig{PollInterval: 100 * time.Millisecond, CallTimeout: time.Second})
		restore := f.store.Copy()
		away.Store(true)
		for _, key := range []string{"a", "b", "c"} {
			f.append(key, 1)
		}
		f.box.Notify()
		f.until("all are delivered", time.Minute, func() bool { return f.had() == 3 })
		time.Sleep(10 * time.Second)
		restore()
		fails.Store(true)
		for _, key := range []string{"x", "y", "z"} {
			f.append(key, 1)
		}
		f.box.Notify()
		time.Sleep(300 * time.Millisecond)
		away.Store(false)
		time.Sleep(5 * time.Second)
		fails.Store(false)
		f.dispatches(3, 30*time.Minute)
	})
}

// The database always refuses the result of one message, for example because a trigger fails.
//
// Fails when other results wait for more than a few calls, when the check rows-unlocked does not
// name the message, or when the relay does not write the result once the database accepts it.
func TestResultThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		bad := f.append("bad", 2)
		var free atomic.Bool
		f.store.Refuses = func(id store.ID) error {
			if !free.Load() && outbox.ID(id) == bad[0] {
				return errors.New("not this one")
			}
			return nil
		}
		const messages = 200
		for range messages {
			f.append("", 1)
		}
		relay, _ := f.relayOf(outbox.RelayConfig{})
		f.dispatches(messages, 5*time.Second)
		for n := range 100 {
			f.append("", 1)
			f.box.Notify()
			f.dispatches(messages+n+1, time.Second)
			time.Sleep(time.Duration(n) * 20 * time.Millisecond)
		}
		said := fmt.Sprint(relay.Checks()["rows-unlocked"]())
		if !strings.Contains(said, bad[0].String()) || !strings.Contains(said, "not this one") {
			t.Errorf("the check rows-unlocked says %q, want the message and the reason", said)
		}
		free.Store(true)
		f.dispatches(messages+102, 5*time.Second)
		f.until("the check passes", 5*time.Second, func() bool { return relay.Checks()["rows-unlocked"]() == nil })
	})
}

// The database refuses all results for five minutes, and then only three of them.
//
// Fails when the other results are not written within seconds, or when the check rows-unlocked
// passes while results are refused.
func TestResultsAfterAnOutage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const messages, refused = 100, 3
		ids := f.append("", messages)
		var down atomic.Bool
		down.Store(true)
		f.store.Refuses = func(id store.ID) error {
			if down.Load() || slices.Contains(ids[:refused], outbox.ID(id)) {
				return errors.New("not this one")
			}
			return nil
		}
		relay, _ := f.relayOf(outbox.RelayConfig{})
		f.until("all are delivered", time.Minute, func() bool { return f.had() == messages })
		time.Sleep(5 * time.Minute)
		if said := fmt.Sprint(relay.Checks()["rows-unlocked"]()); !strings.Contains(said,
			"none could be written for 5m0s") {
			t.Errorf("the check rows-unlocked says %q", said)
		}
		down.Store(false)
		f.dispatches(messages-refused, 20*time.Second)
	})
}

// A row was locked and is free again, while another result is refused and the relay delivers so
// much that it is always writing. Fails when the result of the row waits until the load decreases.
func TestLockedRowIsFreeUnderLoad(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		locked := f.append("locked", 1)[0]
		var free atomic.Bool
		refused := f.append("", 3)
		f.store.Locked = func(id store.ID) bool { return !free.Load() && outbox.ID(id) == locked }
		f.store.Refuses = func(id store.ID) error {
			if slices.Contains(refused, outbox.ID(id)) {
				return errors.New("not this one")
			}
			return nil
		}
		f.store.Fault = func(op string) error {
			if op == "mark" {
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		}
		f.relay(outbox.RelayConfig{})
		f.until("it is delivered", time.Minute, func() bool { return f.had() == 4 })
		for i := range 1500 {
			f.append("", 1)
			f.box.Notify()
			time.Sleep(5 * time.Millisecond)
			free.Store(i > 500)
		}
		if m, _, err := f.box.Message(t.Context(), locked); err != nil || m.State != outbox.StateDispatched {
			t.Errorf("%s, %v, 5 s after its row was unlocked", m.State, err)
		}
	})
}

// delivered returns how often the receiver was called.
func (r *receiver) delivered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deliveries
}

// dispatches fails the test unless n messages are dispatched within the given time.
func (f *fleet) dispatches(n int, within time.Duration) {
	f.t.Helper()
	f.until("messages are dispatched", within, func() bool {
		time.Sleep(20 * time.Millisecond)
		list, err := f.box.Messages(f.t.Context(), outbox.Filter{State: outbox.StateDispatched}, 1000)
		if err != nil {
			f.t.Fatal(err)
		}
		return len(list) == n
	})
}

// Ten rows were locked and are free again, and then the result of one of them is refused. Fails
// when the other nine results wait for it while results of other messages are written.
func TestLockedRowsOfWhichOneIsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		ids := f.append("", 10)
		var free atomic.Bool
		f.store.Locked = func(id store.ID) bool { return !free.Load() && slices.Contains(ids, outbox.ID(id)) }
		f.store.Refuses = func(id store.ID) error {
			if free.Load() && outbox.ID(id) == ids[9] {
				return errors.New("not this one")
			}
			return nil
		}
		f.relay(outbox.RelayConfig{})
		f.until("all are delivered", time.Minute, func() bool { return f.had() == 10 })
		time.Sleep(5 * time.Second)
		free.Store(true)
		for range 20 {
			f.append("", 1)
			f.box.Notify()
			time.Sleep(500 * time.Millisecond)
		}
		f.dispatches(29, time.Second)
	})
}

// A thousand rows are locked, and then the database fails for a minute. Fails when the relay makes
// a call for each of these rows, or when a new result has to wait for them after the database is
// back.
func TestLockedRowsInAnOutage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const locked = 1000
		var free, down atomic.Bool
		var calls atomic.Int64
		f.store.Locked = func(store.ID) bool { return !free.Load() }
		f.store.Fault = func(op string) error {
			if op != "mark" {
				return nil
			}
			time.Sleep(3 * time.Millisecond)
			if calls.Add(1); down.Load() {
				return errReceiver
			}
			return nil
		}
		f.append("", locked)
		f.relay(outbox.RelayConfig{})
		f.until("all are delivered", time.Minute, func() bool { return f.had() == locked })
		time.Sleep(10 * time.Second)
		calls.Store(0)
		down.Store(true)
		time.Sleep(time.Minute)
		if n := calls.Load(); n > 200 {
			t.Errorf("%d calls in a minute", n)
		}
		free.Store(true)
		down.Store(false)
		id := f.append("", 1)[0]
		f.box.Notify()
		f.until("a new result is written", 3*time.Second, func() bool {
			m, _, err := f.box.Message(t.Context(), id)
			return err == nil && m.State == outbox.StateDispatched
		})
		f.dispatches(locked, 10*time.Second) // no more than one call lists
	})
}

// The first hundred results are refused, and then every second one. Fails when other results wait
// for each refused result, or when nothing is delivered any more.
func TestManyResultsAreRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const each = 300
		bad := map[outbox.ID]bool{}
		for _, id := range f.append("", 100) {
			bad[id] = true
		}
		for range each {
			bad[f.append("", 1)[0]] = true
			f.append("", 1)
		}
		f.store.Refuses = func(id store.ID) error {
			if bad[outbox.ID(id)] {
				return errors.New("not this one")
			}
			return nil
		}
		f.relay(outbox.RelayConfig{})
		f.dispatches(each, 2*time.Minute)
		for n := range 60 {
			f.append("", 1)
			f.box.Notify()
			f.dispatches(each+n+1, 5*time.Second)
		}
	})
}

// Fails when a later result of a key is written before an earlier one that the database refuses, or
// could not write for half a minute. The next relay would then deliver the earlier message after
// the later one.
func TestResultsOfAKeyAreWrittenInOrder(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]int{"one is refused": 1, "none can be written": 20} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				ids := f.append("k", 20)
				var free atomic.Bool
				f.store.Refuses = func(id store.ID) error {
					if !free.Load() && (refused == len(ids) || outbox.ID(id) == ids[0]) {
						return errors.New("not this one")
					}
					return nil
				}
				f.hold = func(context.Context, outbox.Delivery) { time.Sleep(3 * time.Second) }
				f.relay(outbox.RelayConfig{})
				for i := range 10_000 {
					if i%500 == 0 { // other results, which can be written
						f.append("", 1)
						f.box.Notify()
					}
					if i == 5_000 {
						free.Store(true)
					}
					time.Sleep(10 * time.Millisecond)
					ended := false
					for _, id := range slices.Backward(ids) {
						m, _, err := f.box.Message(t.Context(), id)
						if err != nil || ended && m.State != outbox.StateDispatched {
							t.Fatalf("%v is %s, but a later message of its key is dispatched (%v)", id, m.State, err)
						}
						ended = m.State == outbox.StateDispatched
					}
				}
				f.dispatches(40, time.Second)
			})
		})
	}
}

// The database does not answer for a minute and is back a second after the relay was stopped. Fails
// when the relay gives up results that it can still write.
func TestResultsAreWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		f.hold = func(context.Context, outbox.Delivery) { time.Sleep(time.Second) }
		h := f.host()
		stop := h.relay(outbox.RelayConfig{TTL: 5 * time.Second, CallTimeout: time.Second, RetryInterval: time.Second})
		time.Sleep(10 * time.Second)
		f.append("", 5)
		h.box.Notify()
		time.Sleep(500 * time.Millisecond)
		h.cut.Store(true)
		time.Sleep(time.Minute)
		time.AfterFunc(time.Second, func() { h.cut.Store(false) })
		if err := stop(); err != nil || f.had() != 5 {
			t.Errorf("%v, %d of 5 were delivered", err, f.had())
		}
		f.dispatches(5, time.Second)
	})
}

// This is TestResultThatTheDatabaseRefuses with a trigger on real databases.
//
// Fails when the error of a trigger stops the results of other messages.
func TestResultThatATriggerRefuses(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]struct {
		open    func(testing.TB) place
		trigger []string
	}{
		"Postgres": {onPostgres, []string{"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " +
			"IF NEW.message = 1 THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$",
			"CREATE TRIGGER refuse BEFORE INSERT ON tickslot_outbox_attempts FOR EACH ROW EXECUTE FUNCTION refuse()"}},
		"MariaDB": {onMariaDB, []string{"CREATE TRIGGER refuse BEFORE INSERT ON tickslot_outbox_attempts " +
			"FOR EACH ROW IF NEW.message = 1 THEN SIGNAL SQLSTATE '45000'; END IF"}},
		"SQLite": {onSQLite, []string{"CREATE TRIGGER refuse BEFORE INSERT ON tickslot_outbox_attempts " +
			"WHEN NEW.message = 1 BEGIN SELECT RAISE(ABORT, 'not this one'); END"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := on.open(t)
			box := p.open()
			t.Cleanup(func() { box.Close() })
			if err := box.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.appended(t, box, "bad", 1)
			tx, commit, rollback := p.begin(t)
			defer rollback()
			for _, statement := range on.trigger {
				if _, err := tx.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			if err := commit(); err != nil {
				t.Fatal(err)
			}
			const others = 100
			p.appended(t, box, "other", others)
			stop := running(t, box, outbox.RelayConfig{DrainTimeout: time.Millisecond,
				PollInterval: 50 * time.Millisecond,
				DefaultSink:  outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })})
			testkit.Eventually(t, testkit.Patience, "the others are dispatched", func() bool {
				list, err := box.Messages(t.Context(), outbox.Filter{State: outbox.StateDispatched}, 1000)
				if err != nil {
					t.Fatal(err)
				}
				return len(list) == others
			})
			if err := stop(); err == nil || !strings.Contains(err.Error(), "the results of 1 deliveries") {
				t.Errorf("Run: %v, want an error about one result that was not written", err)
			}
		})
	}
}
