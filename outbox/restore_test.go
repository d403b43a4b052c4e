package outbox_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// The database is restored from a copy, or a lagging standby is promoted, while the relay has
// results that it could not write yet. Messages that are committed afterwards get the row numbers
// of messages that the copy lacks. Every message that the database has is delivered.
//
// Fails when the result of a lost message is written to the message that now has its number. That
// message would be dispatched although no sink has received it.
func TestDatabaseIsPutBackToACopy(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var away atomic.Bool
		f.store.Fault = func(op string) error {
			if op == "mark" && away.Load() {
				return errReceiver
			}
			return nil
		}
		f.relay(outbox.RelayConfig{PollInterval: 100 * time.Millisecond, CallTimeout: time.Second})
		kept := f.append("kept", 3)
		restore := f.store.Copy()
		away.Store(true)
		f.append("", 10)
		f.append("lost", 10)
		f.box.Notify()
		f.until("the relay has results that it cannot write", time.Minute, func() bool { return f.had() == 23 })
		restore()
		committed := append(f.append("", 10), f.append("lost", 10)...)
		away.Store(false)
		f.box.Notify()
		time.Sleep(time.Minute)
		for _, id := range append(kept, committed...) {
			m, _, err := f.box.Message(t.Context(), id)
			if err != nil || m.State != outbox.StateDispatched {
				t.Fatalf("%+v, %v, want a dispatched message", m, err)
			}
			if f.effects[id] == 0 {
				t.Errorf("message %d of key %q is %s, but no sink has received it", m.Seq, m.Key, m.State)
			}
		}
	})
}
