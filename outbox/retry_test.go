package outbox_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// By default, a message whose receiver fails is tried for nine tenths of the time for which
// receivers remember it, at least every hour. If it is requeued, it is tried until receivers forget
// it. With Force, it is tried for as long as at first.
//
// Fails when attempts are limited by default, a wait is longer than an hour, the last attempt comes
// after the receiver may have forgotten the first one, or a Requeue does not restart the time.
func TestMessageIsTriedForAsLongAsReceiversRemember(t *testing.T) {
	t.Parallel()
	if outbox.DefaultMaxElapsedTime != outbox.DefaultInboxRetention/10*9 {
		t.Errorf("%v of %v", outbox.DefaultMaxElapsedTime, outbox.DefaultInboxRetention)
	}
	inBubble(t, func(t *testing.T, f *fleet) {
		const remembers, tried = 10 * time.Hour, 9 * time.Hour
		var began []time.Time
		f.fail = func(outbox.Delivery) error { began = append(began, time.Now()); return errReceiver }
		appended := time.Now()
		id := f.append("a", 1)[0]
		f.relay(calm(remembers))
		isDead := func(when string, after time.Duration) {
			t.Helper()
			time.Sleep(after + time.Minute)
			m, _, err := f.box.Message(t.Context(), id)
			if err != nil || m.State != outbox.StateDead || m.LastError != errReceiver.Error() {
				t.Fatalf("%s: %+v after %v, %v", when, m, time.Since(appended), err)
			}
			if span := began[len(began)-1].Sub(began[0]).Round(time.Minute); span != after {
				t.Errorf("%s: the message was tried for %v, want %v", when, span, after)
			}
			longest := time.Duration(0)
			for i := range began[1:] {
				longest = max(longest, began[i+1].Sub(began[i]))
			}
			if longest > outbox.DefaultMaxWait+time.Minute {
				t.Errorf("%s: the message was not tried for %v", when, longest)
			}
			if since := m.FailingFrom.Sub(began[0]).Abs(); since > time.Second {
				t.Errorf("%s: the message has failed since %v, want since %v", when, m.FailingFrom, began[0])
			}
			began = nil
		}
		requeue := func(force bool) {
			t.Helper()
			n, err := f.box.Requeue(t.Context(), outbox.Filter{IDs: []outbox.ID{id}},
				outbox.RequeueOptions{InboxRetention: remembers, Force: force})
			if n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		isDead("at first", tried)
		requeue(false)
		isDead("requeued", remembers-time.Since(appended).Truncate(time.Minute))
		requeue(true)
		isDead("requeued by force", tried)
	})
}

// calm returns the config of a relay that does little except deliver, for days of virtual time.
func calm(remembers time.Duration) outbox.RelayConfig {
	return outbox.RelayConfig{InboxRetention: remembers, TTL: time.Hour, IdleDelay: time.Hour, SweepInterval: time.Hour}
}

// If both MaxElapsedTime and MaxAttempts are set, the one that is reached first ends the attempts.
// A receiver that requests a longer wait gets it, up to the end of MaxElapsedTime.
//
// Fails when one of them is ignored, or when a wait extends beyond MaxElapsedTime.
func TestRetryIsBoundedByTimeAndByCount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		retry    outbox.Retry
		err      error
		attempts int // 0: any number
		within   time.Duration
	}{
		"time": {outbox.Retry{MaxElapsedTime: 10 * time.Minute, FirstWait: 4 * time.Minute, MaxWait: 4 * time.Minute},
			errReceiver, 0, 10 * time.Minute},
		"count": {outbox.Retry{MaxElapsedTime: outbox.NoLimit, MaxAttempts: 3, FirstWait: 4 * time.Minute}, errReceiver,
			3, 12 * time.Minute},
		"both": {outbox.Retry{MaxElapsedTime: time.Hour, MaxAttempts: 2, FirstWait: 4 * time.Minute}, errReceiver,
			2, 4 * time.Minute},
		"the receiver asks for more": {outbox.Retry{MaxElapsedTime: 30 * time.Minute},
			outbox.RetryAfter(20*time.Minute, errReceiver), 3, 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				f.fail = func(outbox.Delivery) error { return c.err }
				id := f.append("a", 1)[0]
				f.relay(outbox.RelayConfig{Retry: c.retry})
				time.Sleep(time.Hour)
				m, attempts, err := f.box.Message(t.Context(), id)
				if err != nil || m.State != outbox.StateDead {
					t.Fatalf("%+v, %v", m, err)
				}
				span := m.FinishedAt.Sub(attempts[0].FinishedAt).Round(time.Second)
				if c.attempts > 0 && len(attempts) != c.attempts || span > c.within ||
					c.attempts == 0 && span != c.within {
					t.Errorf("dead after %v, %d attempts", span, len(attempts))
				}
			})
		})
	}
}

// The clock of the database is set 400 days forward while messages fail, once during a delivery.
// The messages are tried for as long as any other message.
//
// Fails when messages are dead early because a clock stepped.
func TestClockOfTheDatabaseIsSetForward(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const remembers, tried = 10 * time.Hour, 9 * time.Hour
		var ahead atomic.Int64
		f.store.Ahead = func() time.Duration { return time.Duration(ahead.Load()) }
		began := time.Now()
		f.fail = func(d outbox.Delivery) error {
			if d.Topic == "begun" && ahead.Load() == 0 && time.Since(began) > 3*time.Hour {
				ahead.Store(int64(400 * 24 * time.Hour))
			}
			return errReceiver
		}
		ids := map[string]outbox.ID{}
		for _, topic := range []string{"begun", "waits"} {
			ids[topic] = f.appendTo(topic, topic, 1)[0]
		}
		f.relay(calm(remembers))
		states := func(want outbox.State) {
			t.Helper()
			for topic, id := range ids {
				if m, _, err := f.box.Message(t.Context(), id); err != nil || m.State != want {
					t.Errorf("%s: after %v %+v, %v, want it %s", topic, time.Since(began), m, err, want)
				}
			}
		}
		time.Sleep(tried - time.Hour)
		if ahead.Load() == 0 {
			t.Fatal("the clock was not set")
		}
		states(outbox.StatePending)
		time.Sleep(3 * time.Hour)
		states(outbox.StateDead)
	})
}

// A receiver fails for days. In each minute, some attempts are logged as warnings. The last attempt
// is logged as an error that says how many attempts there were and how long they took. In the
// meantime, the check receivers-accept says which topic fails, since when, and why, without
// secrets.
//
// Fails when an operator has to query the database to see which receiver fails and since when.
func TestFailingReceiverIsSeen(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		f.fail = func(d outbox.Delivery) error {
			if d.Topic == "orders" {
				return secretError{}
			}
			return nil
		}
		var log bytes.Buffer // the relay writes it, and the test reads it after the relay has stopped
		began := time.Now()
		relay, stop := f.relayOf(outbox.RelayConfig{Retry: outbox.Retry{MaxElapsedTime: 10 * time.Hour},
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for i := range 12 {
			f.appendTo("orders", string(rune('a'+i)), 1)
		}
		f.append("ok", 3)
		f.box.Notify()
		time.Sleep(2 * time.Hour)
		text := ""
		if err := relay.Checks()["receivers-accept"](); err != nil {
			text = err.Error()
		}
		for _, want := range []string{`topic "orders": 12 messages are failing, since ` +
			began.UTC().Format(time.RFC3339), "last error: ", "refused"} {
			if !strings.Contains(text, want) {
				t.Errorf("the check receivers-accept says %q, want %q", text, want)
			}
		}
		topics, err := f.box.Failing(t.Context())
		if err != nil || len(topics) != 1 || topics[0].Messages != 12 ||
			topics[0].Since.Sub(began).Abs() > time.Second {
			t.Errorf("%+v, %v", topics, err)
		}
		time.Sleep(10 * time.Hour)
		if err := relay.Checks()["receivers-accept"](); err != nil {
			t.Errorf("all are dead, but the check receivers-accept says %v", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		warned, dead := 0, 0
		for line := range strings.Lines(log.String()) {
			switch {
			case strings.Contains(line, "level=WARN") && strings.Contains(line, "a delivery failed"):
				warned++
			case strings.Contains(line, "gave up: the message is now dead"):
				dead++
				if !strings.Contains(line, " attempts=") || !strings.Contains(line, " tried_for=10h0m0") {
					t.Errorf("%s: want the number of attempts and the time they took", line)
				}
			}
		}
		if warned < 12 || dead != 10 { // of 12 that died in the same minute; the others are logged at Debug
			t.Errorf("%d warnings, and %d lines of dead messages", warned, dead)
		}
		if strings.Contains(log.String()+text, "hunter2") {
			t.Error("the log contains a password")
		}
	})
}

type secretError struct{}

func (secretError) Error() string { return "dial postgres://user:hunter2@db: refused" }
