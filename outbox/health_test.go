package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// A relay that is stuck, a receiver that fails and messages that are dead are each seen by every
// host, with a threshold for a host that is degraded, and another one for a host that is not ready.
//
// Fails when a check says nothing, blames a relay for its receiver, or cannot be turned off.
func TestHealth(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		config := outbox.RelayConfig{MaxDeliveries: 1, DeliverTimeout: 24 * time.Hour, DrainTimeout: time.Second,
			Retry:   outbox.Retry{MaxAttempts: 10, FirstWait: 10 * time.Minute, MaxWait: 10 * time.Minute},
			Health:  outbox.Thresholds{DueAge: time.Minute, PendingAge: 15 * time.Minute, Dead: 1},
			Unready: outbox.Thresholds{DueAge: 10 * time.Minute, PendingAge: 30 * time.Minute, Dead: 2}}
		free := make(chan struct{})
		f.hold = func(ctx context.Context, d outbox.Delivery) {
			if d.Key == "slow" {
				select {
				case <-free:
				case <-ctx.Done():
				}
			}
		}
		f.fail = func(d outbox.Delivery) error {
			switch d.Topic {
			case "bad":
				return errReceiver
			case "refused":
				return outbox.Permanent(errReceiver)
			}
			return nil
		}
		one, _ := f.host().relayOf(config)
		time.Sleep(time.Second)
		two, _ := f.host().relayOf(config) // which delivers nothing
		config.Health = outbox.Thresholds{DueAge: outbox.NoLimit, PendingAge: outbox.NoLimit, Dead: outbox.NoLimit}
		config.Unready = outbox.Thresholds{}
		off, _ := f.host().relayOf(config)
		want := func(when string, ready bool, failing ...string) {
			t.Helper()
			bad := map[string]bool{}
			for _, name := range failing {
				bad[name] = true
			}
			for host, r := range map[string]*outbox.Relay{"one": one, "two": two} {
				for name, check := range r.Checks() {
					if err := check(); (err != nil) != bad[name] {
						t.Errorf("%s, host %s: the check %s says %v", when, host, name, err)
					}
				}
				if err := r.Ready(); (err == nil) != ready {
					t.Errorf("%s, host %s: Ready says %v", when, host, err)
				}
			}
			for name, check := range off.Checks() {
				if err := check(); err != nil {
					t.Errorf("%s: the check %s, which is turned off, says %v", when, name, err)
				}
			}
			if err := off.Ready(); err != nil {
				t.Errorf("%s: Ready, which has no thresholds, says %v", when, err)
			}
		}
		time.Sleep(time.Minute)
		want("nothing to do", true)

		f.append("slow", 1) // takes the one place
		f.append("behind", 1)
		f.box.Notify()
		time.Sleep(2 * time.Minute)
		want("a place is taken for two minutes", true, "due")
		time.Sleep(10 * time.Minute)
		want("a place is taken for twelve minutes", false, "due")
		close(free)
		time.Sleep(time.Minute)
		want("it is free again", true)

		f.appendTo("bad", "a", 1)
		f.box.Notify()
		time.Sleep(20 * time.Minute)
		want("a receiver fails for twenty minutes", true, "pending")
		time.Sleep(20 * time.Minute)
		want("a receiver fails for forty minutes", false, "pending")
		time.Sleep(time.Hour)
		want("its message is dead", true)

		f.appendTo("refused", "b", 1)
		f.box.Notify()
		time.Sleep(time.Minute)
		want("two are dead", true, "dead")
		f.appendTo("refused", "b", 1)
		f.box.Notify()
		time.Sleep(time.Minute)
		want("three are dead", false, "dead")
	})
}
