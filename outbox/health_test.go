package outbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// Every host notices a stuck relay, a failing receiver, and dead messages, with one threshold for
// being degraded and another for being unready.
//
// Fails when a check passes, blames the relay for a receiver's failure, or cannot be turned off.
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
		two, _ := f.host().relayOf(config) // this relay delivers nothing
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
					t.Errorf("%s: the disabled check %s says %v", when, name, err)
				}
			}
			if err := off.Ready(); err != nil {
				t.Errorf("%s: Ready without thresholds says %v", when, err)
			}
		}
		time.Sleep(time.Minute)
		want("nothing to do", true)

		f.append("slow", 1) // this message takes the only place
		f.append("behind", 1)
		f.box.Notify()
		time.Sleep(2 * time.Minute)
		want("a place is taken for two minutes", true, "messages-on-time")
		time.Sleep(10 * time.Minute)
		want("a place is taken for twelve minutes", false, "messages-on-time")
		close(free)
		time.Sleep(time.Minute)
		want("it is free again", true)

		f.appendTo("bad", "a", 1)
		f.box.Notify()
		time.Sleep(20 * time.Minute)
		want("a receiver fails for twenty minutes", true, "receivers-accept")
		time.Sleep(20 * time.Minute)
		want("a receiver fails for forty minutes", false, "receivers-accept")
		time.Sleep(time.Hour)
		want("its message is dead", true)

		f.appendTo("refused", "b", 1)
		f.box.Notify()
		time.Sleep(time.Minute)
		want("two are dead", true, "few-dead-messages")
		f.appendTo("refused", "b", 1)
		f.box.Notify()
		time.Sleep(time.Minute)
		want("three are dead", false, "few-dead-messages")
	})
}

// Calls of one kind fail, and all others succeed. For example, messages cannot be read, but the
// health data about their age can. The check database-answers names the failing call soon after
// three such calls may have ended, and no check says that the relay is too slow.
//
// Fails when successful calls hide a kind of call that fails, or when the check does not recover.
func TestCallThatAlwaysFailsIsSeen(t *testing.T) {
	t.Parallel()
	for op, within := range map[string]time.Duration{"due": 0, "mark": 0, "layout": 10 * time.Second,
		"stats": 25 * time.Second} { // pause between two calls
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				var failing atomic.Bool
				f.store.Fault = func(of string) error {
					if failing.Load() && of == op {
						return errReceiver
					}
					return nil
				}
				relay, _ := f.relayOf(outbox.RelayConfig{PollInterval: time.Second})
				time.Sleep(time.Minute)
				check := relay.Checks()["database-answers"]
				if err := check(); err != nil {
					t.Errorf("nothing has failed, but the check says %v", err)
				}
				failing.Store(true)
				f.append("a", 1)
				f.box.Notify()
				most := 3*outbox.DefaultCallTimeout + 2*time.Second + within
				f.until("the check fails", most, func() bool { return check() != nil })
				time.Sleep(most) // before this, three failures in a row count as an outage, which another call may end
				named := 0       // not every error names the call: three failures in a row count as an outage
				for range 300 {
					err := check()
					if err == nil || !strings.Contains(err.Error(), errReceiver.Error()) {
						t.Fatalf("the check says %v, want the same failure and its reason", err)
					}
					if strings.Contains(err.Error(), "call "+op+" ") {
						named++
					}
					time.Sleep(time.Second)
				}
				if named == 0 {
					t.Errorf("the check never names the call %s", op)
				}
				if err := relay.Checks()["messages-on-time"](); err != nil && strings.Contains(err.Error(),
					"too slow") {
					t.Errorf("the check messages-on-time says %v", err)
				}
				failing.Store(false)
				f.until("the check passes", 25*time.Second, func() bool { return check() == nil })
			})
		})
	}
}
