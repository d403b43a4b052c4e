package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// dies returns a sink with which a host dies in each delivery of the killer message. None of the
// host's deliveries in progress ends.
func (f *fleet) dies(h *host, killer outbox.ID, others time.Duration) outbox.Sink {
	return outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
		if d.ID == killer {
			h.cut.Store(true)
		} else {
			time.Sleep(others)
		}
		if h.cut.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		return f.Deliver(ctx, d)
	})
}

// A message kills its relay as soon as its delivery begins, each time with 7 other deliveries in
// progress and more messages waiting. It is dead after it has killed MaxCrashes relays that had
// recorded its delivery. No other message is dead, none is lost, and the order of each key is kept,
// also with two shards.
//
// Fails when a relay does not count the death of the previous relay, or when other messages in
// progress are blamed.
func TestMessageThatKillsItsRelay(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		for _, most := range []int{0, 2, 3} { // 0 means the default
			t.Run(fmt.Sprint(shards, " shards, MaxCrashes ", most), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T, f *fleet) { kills(t, f, shards, most) })
			})
		}
	}
}

func kills(t *testing.T, f *fleet, shards, most int) {
	for i := range 3 {
		f.append(fmt.Sprint("before", i), 2)
	}
	killer := f.append("killer", 2)[0]
	for i := range 40 {
		f.append(fmt.Sprint("beside", i), 2)
	}
	deaths := 0
	for range 20 {
		h := f.host()
		config := outbox.RelayConfig{DefaultSink: f.dies(h, killer, 50*time.Millisecond), TTL: 5 * time.Second,
			CallTimeout: time.Second, RetryInterval: time.Second, Shards: shards, MaxCrashes: most}
		stop := h.relay(config)
		f.until("the relay dies, or nothing is pending", 20*time.Second, func() bool {
			b, err := f.box.Backlog(t.Context())
			return h.cut.Load() || err == nil && b.Pending == 0
		})
		if !h.cut.Load() {
			time.Sleep(time.Second)
			_ = stop()
			break
		}
		deaths++
		time.Sleep(10 * time.Second)
		_ = stop()
	}
	want := outbox.DefaultMaxCrashes + 1 // the first relay had no reason to record the delivery
	if most > 0 {
		want = most + 1
	}
	if deaths != want {
		t.Errorf("%d relays died, want %d", deaths, want)
	}
	f.inOrder(t)
	dead, err := f.box.Messages(t.Context(), outbox.Filter{State: outbox.StateDead}, 100)
	if err != nil || len(dead) != 1 || dead[0].ID != killer || !strings.Contains(dead[0].LastError, "relays") {
		t.Fatalf("dead: %+v, %v, want the one message and its reason", dead, err)
	}
	_, tried, err := f.box.Message(t.Context(), killer)
	if err != nil || len(tried) != 1 || tried[0].Outcome != outbox.OutcomeExhausted {
		t.Errorf("attempts %+v, %v", tried, err)
	}
	if n := f.had(); n != 87 {
		t.Errorf("%d messages were delivered, want all 87 others", n)
	}
}

// After a relay has died, the calls that record deliveries take effect, but their answers are lost.
// The messages wait and are delivered when answers arrive again.
//
// Fails when a relay treats its own records as deaths of other relays. Then the messages would be
// dead although no sink has received them.
func TestAnswersAboutWhatBeginsAreLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		config := outbox.RelayConfig{TTL: 5 * time.Second, CallTimeout: time.Second, RetryInterval: time.Second}
		var lost atomic.Bool
		f.store.After = func(op string) error {
			if op == "begin" && lost.Load() {
				return errReceiver
			}
			return nil
		}
		first := f.host()
		first.relay(config)
		time.Sleep(10 * time.Second)
		first.cut.Store(true)
		time.Sleep(time.Second)
		lost.Store(true)
		f.append("a", 3)
		f.append("", 3)
		f.host().relay(config)
		time.Sleep(time.Minute)
		if had := f.had(); had != 0 {
			t.Errorf("%d messages were delivered without a record that they had begun", had)
		}
		lost.Store(false)
		f.until("all are delivered", time.Minute, func() bool { return f.had() == 6 })
		time.Sleep(time.Second)
		f.inOrder(t)
		if b, err := f.box.Backlog(t.Context()); err != nil || b.Pending != 0 || b.Dead != 0 {
			t.Errorf("%+v, %v", b, err)
		}
	})
}

// While no relay dies, no delivery is recorded. After a relay has died, there is one call for each
// batch of deliveries that begins, until the messages due at that time have been read.
//
// Fails when a relay records deliveries without a reason, one by one, or forever.
func TestWhatBeginsIsWrittenOnlyAfterADeath(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var calls atomic.Int64
		f.store.Fault = func(op string) error {
			if op == "begin" {
				calls.Add(1)
			}
			return nil
		}
		config := outbox.RelayConfig{TTL: 5 * time.Second, CallTimeout: time.Second, RetryInterval: time.Second}
		fill := func() {
			t.Helper()
			had := f.had()
			for i := range 100 {
				f.append(fmt.Sprint(i), 1)
			}
			f.box.Notify()
			f.until("all are delivered", 20*time.Second, func() bool { return f.had() == had+100 })
		}
		stop := f.host().relay(config)
		fill()
		if err := stop(); err != nil {
			t.Error(err)
		}
		first := f.host()
		first.relay(config)
		fill()
		if n := calls.Load(); n != 0 {
			t.Errorf("%d calls record beginnings, although no relay has died", n)
		}
		first.cut.Store(true)
		time.Sleep(time.Second)
		second := f.host()
		second.lag.Store(int64(5 * time.Millisecond))
		second.relay(config)
		fill()
		if n := calls.Load(); n < 1 || n > 100/4 {
			t.Errorf("%d calls record the beginnings of 100 messages, want one call for several messages", n)
		}
		calls.Store(0)
		for range 3 {
			fill()
		}
		if n := calls.Load(); n != 0 {
			t.Errorf("%d calls record beginnings after the messages due at that time were delivered", n)
		}
	})
}

// A host that stops in the middle of a recorded delivery does not count as dead.
//
// Fails when restarts turn slow messages into dead ones.
func TestHostThatStopsHasNotDied(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		config := outbox.RelayConfig{TTL: 5 * time.Second, CallTimeout: time.Second, RetryInterval: time.Second,
			DrainTimeout: time.Second, DeliverTimeout: time.Hour, MaxCrashes: 2}
		slow := f.append("slow", 1)[0]
		restarts := true
		f.hold = func(ctx context.Context, _ outbox.Delivery) {
			if restarts {
				<-ctx.Done()
			}
		}
		for range 2 { // make the message suspect
			h := f.host()
			h.relay(config)
			time.Sleep(7 * time.Second)
			h.cut.Store(true)
			time.Sleep(10 * time.Second)
		}
		for range 5 {
			stop := f.host().relay(config)
			time.Sleep(10 * time.Second)
			_ = stop()
		}
		restarts = false
		f.host().relay(config)
		f.until("it is delivered", time.Minute, func() bool { return f.had() == 1 })
		time.Sleep(time.Second)
		if m, _, err := f.box.Message(t.Context(), slow); err != nil || m.State != outbox.StateDispatched {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// A suspect hangs. Messages with other keys are delivered in the meantime. The next suspect is
// delivered when the first has timed out.
//
// Fails when one suspect stops all others, or when its delivery ends only with the process.
func TestSuspectThatHangs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		config := outbox.RelayConfig{TTL: 5 * time.Second, CallTimeout: time.Second, RetryInterval: time.Second,
			DeliverTimeout: 10 * time.Second, DrainTimeout: time.Second}
		free := make(chan struct{})
		f.hold = func(ctx context.Context, d outbox.Delivery) {
			if d.Topic == "hangs" {
				<-free
			} else if d.Topic == "slow" {
				select {
				case <-ctx.Done():
				case <-time.After(3 * time.Second):
				}
			}
		}
		f.appendTo("hangs", "h", 1)
		f.appendTo("slow", "s", 1)
		for range 2 {
			h := f.host()
			h.relay(config)
			time.Sleep(7 * time.Second)
			h.cut.Store(true)
			if f.had() > 0 {
				break
			}
			time.Sleep(10 * time.Second)
		}
		had := f.had()
		f.append("free", 20)
		f.host().relay(config)
		f.until("other messages are delivered", 10*time.Second, func() bool { return f.had() >= had+20 })
		f.until("the other suspect is delivered", 40*time.Second, func() bool { return f.had() == 21 })
		close(free)
	})
}
