package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// Fails when a message is delivered although its transaction was not committed, or is not delivered
// although its transaction was committed.
func TestMessagesOfCommittedTransactionsAreDelivered(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		f.append("a", 100)
		stop := f.relay(outbox.RelayConfig{})
		f.until("all are delivered", time.Second, func() bool { return f.had() == 100 })
		open := f.store.Begin()
		if _, err := f.box.Append(t.Context(), open, outbox.Message{ID: outbox.RandomID(), Topic: "t"}); err != nil {
			t.Fatal(err)
		}
		f.append("b", 1)
		f.box.Notify()
		f.until("the next message is delivered", time.Second, func() bool { return f.had() == 101 })
		time.Sleep(time.Minute)
		if err := stop(); err != nil || f.had() != 101 || f.deliveries != 101 {
			t.Errorf("%v; %d effects, %d deliveries, want 101", err, f.had(), f.deliveries)
		}
		f.inOrder(t)
	})
}

// Fails when a message waits for IdleDelay although the database does not support notifications,
// when a relay that is notified waits at all, or when a relay without a notification waits for
// longer than IdleDelay.
func TestHowSoonMessagesAreDelivered(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		tells  bool
		notify bool
		most   time.Duration
	}{{"the database tells", true, true, 20 * time.Millisecond}, {"nobody tells", false, false, time.Second},
		{"this process tells", false, true, 5 * time.Millisecond},
		{"the database would tell", true, false, 36 * time.Second}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				if !test.tells {
					f.store.Fault = func(op string) error {
						if op == "listen" {
							return errors.New("it cannot")
						}
						return nil
					}
				}
				f.relay(outbox.RelayConfig{})
				time.Sleep(time.Minute)
				for n := range 20 {
					f.append("a", 1)
					if test.notify {
						f.box.Notify()
					}
					took := f.until("it is delivered", time.Minute, func() bool { return f.had() == n+1 })
					if took > test.most+time.Millisecond {
						t.Errorf("%v, want at most %v", took, test.most)
					}
					time.Sleep(17 * time.Second)
				}
			})
		})
	}
}

// Fails when a later message overtakes one that is retried, or when keys wait for each other.
func TestOrderIsKeptThroughRetries(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		bad := f.append("bad", 20)
		for i := range 50 {
			f.append(fmt.Sprint("good", i), 3)
		}
		f.fail = func(d outbox.Delivery) error {
			if slices.Index(bad, d.ID)%3 == 0 && d.Attempt < 4 { // other messages in between could overtake them
				return errReceiver
			}
			return nil
		}
		f.relay(outbox.RelayConfig{})
		f.until("the good messages are delivered", time.Second, func() bool { return f.had() >= 150 })
		f.until("the other messages are delivered, too", time.Hour, func() bool { return f.had() == 170 })
		f.inOrder(t)
	})
}

// Fails when an outcome differs from the one that the sink has requested.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		sinks := map[string]outbox.Sink{}
		sink := func(topic string, f outbox.SinkFunc) { sinks[topic] = f }
		fails := func(context.Context, outbox.Delivery) error { return errReceiver }
		sink("ok", func(context.Context, outbox.Delivery) error { return nil })
		sink("exhausted", fails)
		sink("permanent", func(context.Context, outbox.Delivery) error {
			return fmt.Errorf("x: %w", outbox.Permanent(errReceiver))
		})
		sink("panics", func(context.Context, outbox.Delivery) error { panic("no") })
		sink("hangs", func(ctx context.Context, _ outbox.Delivery) error { <-ctx.Done(); return ctx.Err() })
		sink("later", func(_ context.Context, d outbox.Delivery) error {
			if d.Attempt == 1 {
				return outbox.RetryAfter(time.Hour, errReceiver)
			}
			return nil
		})
		want := map[string][]outbox.Outcome{
			"ok": {outbox.OutcomeOK}, "permanent": {outbox.OutcomePermanent},
			"exhausted": {outbox.OutcomeTransient, outbox.OutcomeTransient, outbox.OutcomeExhausted},
			"panics":    {outbox.OutcomeTransient, outbox.OutcomeTransient, outbox.OutcomeExhausted},
			"hangs":     {outbox.OutcomeTransient, outbox.OutcomeTransient, outbox.OutcomeExhausted},
			"later":     {outbox.OutcomeTransient, outbox.OutcomeOK},
		}
		ids := map[string]outbox.ID{}
		for topic := range want {
			ids[topic] = f.appendTo(topic, topic, 1)[0]
		}
		f.relay(outbox.RelayConfig{Sinks: sinks, Retry: outbox.Retry{MaxAttempts: 3}})
		time.Sleep(2 * time.Hour)
		for topic, outcomes := range want {
			m, tried, err := f.box.Message(t.Context(), ids[topic])
			var got []outbox.Outcome
			for _, a := range tried {
				got = append(got, a.Outcome)
			}
			if err != nil || !slices.Equal(got, outcomes) {
				t.Errorf("%s: %v, want %v (%v, %s)", topic, got, outcomes, err, m.LastError)
			}
		}
		if m, tried, _ := f.box.Message(t.Context(), ids["later"]); m.FinishedAt.Sub(tried[0].FinishedAt) < time.Hour {
			t.Errorf("after %v, want an hour", m.FinishedAt.Sub(tried[0].FinishedAt))
		}
	})
}

// Fails when OnDead does not decide whether a dead message stops its key, or when the key stays
// stopped after the message was requeued.
func TestWhatDeadMessagesHoldBack(t *testing.T) {
	t.Parallel()
	for _, on := range []outbox.DeadPolicy{outbox.DeadContinue, outbox.DeadStop} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				ids := f.append("a", 3)
				mended := false
				f.fail = func(d outbox.Delivery) error {
					if d.ID == ids[0] && !mended {
						return outbox.Permanent(errReceiver)
					}
					return nil
				}
				f.relay(outbox.RelayConfig{OnDead: on})
				time.Sleep(time.Hour)
				if want := map[outbox.DeadPolicy]int{outbox.DeadContinue: 2, outbox.DeadStop: 0}[on]; f.had() != want {
					t.Errorf("%d were delivered, want %d", f.had(), want)
				}
				f.mu.Lock()
				mended = true
				f.mu.Unlock()
				n, err := f.box.Requeue(t.Context(), outbox.Filter{Topic: "t"}, outbox.RequeueOptions{})
				if n != 1 || err != nil {
					t.Fatal(n, err)
				}
				f.until("all are delivered", time.Minute, func() bool { return f.had() == 3 })
				if on == outbox.DeadStop {
					f.inOrder(t)
				}
			})
		})
	}
}

// Fails when a message whose topic has no sink uses attempts or does not hold back its key, or when
// the health check does not name the topic.
func TestTopicsWithoutASink(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		strange := f.appendTo("strange", "a", 1)[0]
		f.append("a", 1)
		f.append("b", 1)
		r, stop := f.relayOf(outbox.RelayConfig{Sinks: map[string]outbox.Sink{"t": f.receiver}})
		time.Sleep(time.Hour)
		if m, tried, err := f.box.Message(t.Context(), strange); err != nil || m.Attempts != 0 || len(tried) != 0 ||
			f.had() != 1 {
			t.Errorf("%+v, %v, %v; %d delivered, want 1", m, tried, err, f.had())
		}
		if err := r.Checks()["topics-have-sinks"](); err == nil {
			t.Error("health does not name the topic")
		}
		if err := r.Checks()["messages-on-time"](); err != nil {
			t.Errorf("a message that waits for a sink is not due: %v", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		f.relay(outbox.RelayConfig{Sinks: map[string]outbox.Sink{"t": f.receiver},
			UnknownTopic: outbox.UnknownTopicDead})
		f.until("the key continues", time.Minute, func() bool { return f.had() == 2 })
		m, tried, err := f.box.Message(t.Context(), strange)
		if err != nil || m.State != outbox.StateDead || len(tried) != 1 || tried[0].Outcome != outbox.OutcomePermanent {
			t.Errorf("%+v, %+v, %v, want it dead, with one permanent failure", m, tried, err)
		}
	})
}

// Without a relay, Backlog says how many messages wait, how long the oldest due message has been
// due, and how old the oldest pending message is, no matter what holds it back.
//
// Fails when Backlog finds nothing without the topics of a relay, or when it confuses the two ages.
func TestBacklog(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		check := func(what string, want outbox.Backlog) {
			t.Helper()
			got, err := f.box.Backlog(t.Context())
			if err != nil || got != want {
				t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
			}
		}
		check("nothing", outbox.Backlog{})
		f.append("a", 1)
		time.Sleep(time.Minute)
		f.appendTo("strange", "b", 1)
		time.Sleep(time.Minute)
		check("no relay", outbox.Backlog{Pending: 2, DueAge: 2 * time.Minute, PendingAge: 2 * time.Minute})
		fails := outbox.SinkFunc(func(_ context.Context, d outbox.Delivery) error {
			if d.Topic == "t" {
				return outbox.RetryAfter(time.Hour, errors.New("busy"))
			}
			return outbox.Permanent(errors.New("no"))
		})
		_, stop := f.relayOf(outbox.RelayConfig{DefaultSink: fails})
		time.Sleep(time.Minute)
		check("it is tried again", outbox.Backlog{Pending: 1, Dead: 1, PendingAge: 3 * time.Minute})
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := (*outbox.Outbox)(nil).Backlog(t.Context()); err == nil {
		t.Error("an Outbox without a database has a backlog")
	}
}

// Ten thousand keys have one message each, and a hot key, which came first, has ten thousand
// messages. The other keys do not wait for the hot key, and reading the hot key takes no more calls
// than its messages fill batches.
//
// Fails when a key with many messages keeps others from being read, or when its messages are read
// one by one.
func TestTenThousandKeysOfWhichOneIsHot(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const hot, keys, places = 500, 10_000, 500
		f.append("hot", hot)
		for i := range keys {
			f.append(fmt.Sprint(i), 1)
		}
		calls := map[string]int{} // the only relay makes one call of each kind at a time
		f.store.Fault = func(op string) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			calls[op]++
			return nil
		}
		others, hots := 0, 0
		f.fail = func(d outbox.Delivery) error {
			if d.Key != "hot" {
				others++
			} else if hots++; others < keys && hots > 3*keys/places {
				t.Errorf("%d messages of the hot key came before %d others", hots, keys-others)
			}
			return nil
		}
		f.hold = func(context.Context, outbox.Delivery) { time.Sleep(10 * time.Millisecond) }
		f.relay(outbox.RelayConfig{BatchSize: places, MaxDeliveries: places})
		f.until("all are delivered", time.Hour, func() bool { return f.had() == hot+keys })
		f.inOrder(t)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.deliveries != hot+keys {
			t.Errorf("%d deliveries of %d messages", f.deliveries, hot+keys)
		}
		// The other keys fill batches. The rest of the hot key is read in batches, too.
		if most := 4 * (hot + keys) / places; calls["due"] > most {
			t.Errorf("%d calls of Due for %d batches, want at most %d", calls["due"], (hot+keys)/places, most)
		}
	})
}

// A sink requests a wait of a day before each further attempt, which is longer than the receiver
// remembers messages.
//
// Fails when the last attempt comes after the receiver has forgotten the first one.
func TestRetryAfterLongerThanTheInboxRemembers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const remembers = 10 * time.Hour
		f.fail = func(outbox.Delivery) error { return outbox.RetryAfter(24*time.Hour, errReceiver) }
		id := f.append("a", 1)[0]
		f.relay(outbox.RelayConfig{InboxRetention: remembers})
		time.Sleep(remembers)
		m, tried, err := f.box.Message(t.Context(), id)
		if err != nil || m.State != outbox.StateDead || len(tried) != 2 {
			t.Fatalf("%+v, attempts %+v, %v", m, tried, err)
		}
		if span := tried[len(tried)-1].FinishedAt.Sub(tried[0].FinishedAt); span < remembers/2 || span >= remembers {
			t.Errorf("the attempts are spread over %v, want almost %v", span, remembers)
		}
	})
}
