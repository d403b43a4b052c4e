package outbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// A relay delivers, the database fails for longer than a TTL, and the same relay leads again before
// it could write its results: so it delivers again what was not marked, and has two results of each
// message.
//
// Fails when it writes the two in one call, which databases refuse, each time again; or when
// nothing is delivered any more.
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
		h.box = outbox.New(outbox.MemoryDatabase(f.store, linkedLocks{f.locks, h})) // only locks go over its link
		h.relay(outbox.RelayConfig{TTL: 5 * time.Second, CallTimeout: time.Second, RetryInterval: time.Second})
		time.Sleep(10 * time.Second)
		failing.Store(true)
		const messages = 30
		for range messages {
			f.append("", 1)
		}
		f.until("all were delivered once", time.Minute, func() bool { return f.had() == messages })
		h.cut.Store(true)
		time.Sleep(10 * time.Second)
		h.cut.Store(false)
		f.until("all were delivered twice", time.Minute, func() bool { return f.delivered() == 2*messages })
		failing.Store(false)
		f.dispatches(messages, 5*time.Second)
		f.append("later", 1)
		h.box.Notify()
		f.dispatches(messages+1, 5*time.Second)
	})
}

// The database refuses the result of one message, whatever the reason: a trigger of its owner
// fails. Fails when the results of others wait for it for longer than a few calls, or the relay
// does not write it once it can.
func TestResultThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		bad := f.append("bad", 1)[0]
		var free atomic.Bool
		f.store.Refuses = func(id store.ID) error {
			if !free.Load() && outbox.ID(id) == bad {
				return dlock.ErrFault
			}
			return nil
		}
		const messages = 200
		for range messages {
			f.append("", 1)
		}
		f.relay(outbox.RelayConfig{})
		f.dispatches(messages, 5*time.Second)
		for range 100 {
			f.append("", 1)
			f.box.Notify()
			time.Sleep(100 * time.Millisecond)
		}
		f.dispatches(messages+100, 5*time.Second)
		free.Store(true)
		f.dispatches(messages+101, 5*time.Second)
	})
}

// delivered is how often the receiver was called.
func (r *receiver) delivered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deliveries
}

// dispatches waits until so many messages are dispatched.
func (f *fleet) dispatches(n int, within time.Duration) {
	f.t.Helper()
	f.until("messages are dispatched", within, func() bool {
		list, err := f.box.Messages(f.t.Context(), outbox.Filter{State: outbox.StateDispatched}, 1000)
		if err != nil {
			f.t.Fatal(err)
		}
		return len(list) == n
	})
}

// As TestResultThatTheDatabaseRefuses, with a trigger on real databases.
//
// Fails when the error of a trigger is not known as a refusal.
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
			box := outbox.New(p.open())
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
				t.Errorf("Run: %v, want that it could not write one result", err)
			}
		})
	}
}
