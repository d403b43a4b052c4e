package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// A receiver that hangs delays only its own topic, no matter how many of its messages wait, whether
// it ignores its context, and whether it has its own sink or shares one with all topics.
//
// Fails when topics share places, when messages of the hanging topic keep messages of other topics
// from being read, or when all messages of the hanging topic are read into memory.
func TestHangingTopicCostsOnlyItself(t *testing.T) {
	t.Parallel()
	for _, waiting := range []int{8, 64, 1000} {
		for _, ignores := range []bool{false, true} {
			for _, fallback := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d wait, ignores its context %t, sink of all topics %t", waiting, ignores, fallback),
					func(t *testing.T) { hangs(t, waiting, ignores, fallback) })
			}
		}
	}
}

func hangs(t *testing.T, waiting int, ignores, fallback bool) {
	inBubble(t, func(t *testing.T, f *fleet) {
		free := make(chan struct{})
		freeAll := sync.OnceFunc(func() { close(free) })
		defer freeAll()
		f.hold = func(ctx context.Context, d outbox.Delivery) {
			switch {
			case d.Topic != "bad":
			case ignores:
				<-free
			default:
				<-ctx.Done()
			}
		}
		config := outbox.RelayConfig{DeliverTimeout: time.Second, DrainTimeout: time.Second}
		if fallback {
			config.DefaultSink = f.receiver
		} else {
			config.Sinks = map[string]outbox.Sink{"bad": f.receiver, "good": f.receiver}
		}
		h := f.host()
		relay, stop := h.relayOf(config)
		for i := range waiting {
			f.appendTo("bad", fmt.Sprint("bad", i), 1)
		}
		for round := range 5 {
			for i := range 50 {
				f.appendTo("good", fmt.Sprint("good", round, "-", i), 1)
			}
			f.box.Notify()
			f.until("the messages of the other topic are delivered", 5*time.Second,
				func() bool { return f.had() == 50*(round+1) })
			time.Sleep(time.Minute)
		}
		err := relay.Checks()["sinks-return"]()
		if ignores != (err != nil) || ignores && (!strings.Contains(err.Error(), `"bad": 8`)) {
			t.Errorf("the check sinks-return says %v", err)
		}
		// For the hanging topic: the messages being delivered, as many that are ready, and one
		// answer. For the other topic: all its messages.
		if most := h.most.Load(); most > 8+8+32+50 {
			t.Errorf("%d messages in memory", most)
		}
		freeAll()
		if ignores {
			synctest.Wait()
			if err := relay.Checks()["sinks-return"](); err != nil {
				t.Errorf("the sink has returned, but the check says %v", err)
			}
		}
		stop()
	})
}

// When a message is dead, the later messages of its key wait until its result is written. If the
// relay dies before that, the next relay delivers the dead message again, and the receiver may then
// accept it.
//
// Fails when a lost verdict breaks the order of a key.
func TestVerdictIsWrittenBeforeTheNextOfItsKey(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		config := outbox.RelayConfig{TTL: 5 * time.Second, CallTimeout: time.Second, RetryInterval: time.Second}
		list := f.append("a", 5)
		one := f.host()
		rejects := true
		f.fail = func(d outbox.Delivery) error {
			if rejects && d.ID == list[0] {
				one.cut.Store(true) // the verdict is not written
				return outbox.Permanent(errReceiver)
			}
			return nil
		}
		one.relay(config)
		time.Sleep(10 * time.Second)
		f.mu.Lock()
		rejects = false // the receiver is repaired
		f.mu.Unlock()
		f.host().relay(config)
		f.until("all are delivered", 10*time.Second, func() bool { return f.had() == 5 })
		f.inOrder(t)
		one.cut.Store(false)
		time.Sleep(10 * time.Second)
	})
}

// A dead message holds back the later messages of its key only until its result is written.
func TestVerdictThatIsWrittenLetsTheNextGo(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		list := f.append("a", 5)
		f.fail = func(d outbox.Delivery) error {
			if d.ID == list[0] || d.ID == list[2] {
				return outbox.Permanent(errReceiver)
			}
			return nil
		}
		f.relay(outbox.RelayConfig{})
		f.until("the other messages are delivered", time.Second, func() bool { return f.had() == 3 })
		f.inOrder(t)
	})
}
