package outboxtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/outboxtest"
)

// A recorder is a testing.TB that records that it has failed.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r)
}
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// fails fails the test unless another test fails with these words.
func fails(t *testing.T, test func(t testing.TB), says ...string) {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		test(r)
	}()
	for _, text := range says {
		if r.failed == "" || !strings.Contains(r.failed, text) {
			t.Errorf("%q does not say %q", r.failed, text)
		}
	}
}

type order struct{ Number int }

func message(topic, key, payload string) outbox.Message {
	return outbox.Message{ID: outbox.RandomID(), Topic: topic, Key: key, Payload: []byte(payload),
		Headers: map[string]string{"trace": "1"}}
}

// put appends messages.
func put(t *testing.T, box *outbox.Outbox, messages ...outbox.Message) {
	t.Helper()
	outboxtest.InTx(t, box, func(tx outbox.Tx) error {
		for _, m := range messages {
			if _, err := box.Append(t.Context(), tx, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// Fails when RequireAppended accepts a missing message, another number of messages, or another
// order, or when it sees uncommitted messages.
func TestRequireAppended(t *testing.T) {
	t.Parallel()
	box := outboxtest.New(t)
	outboxtest.RequireNotAppended(t, box, nil)
	outboxtest.InTx(t, box, func(tx outbox.Tx) error {
		m := message("invoice", "42", `{"Number":42}`)
		for _, want := range []bool{true, false} {
			if fresh, err := box.Append(t.Context(), tx, m); err != nil || fresh != want {
				t.Errorf("appended: %t, %v", fresh, err)
			}
		}
		got := outboxtest.RequireAppended(t, box, tx, "invoice")[0]
		if outboxtest.Payload[order](t, got).Number != 42 || got.ID != m.ID || got.Headers["trace"] != "1" {
			t.Errorf("%+v", got)
		}
		outboxtest.RequireNotAppended(t, box, nil)
		return nil
	})
	put(t, box, message("mail", "", "text"))
	fails(t, func(t testing.TB) {
		outboxtest.InTx(t, box, func(tx outbox.Tx) error {
			_, err := box.Append(t.Context(), tx, message("other", "", ""))
			return errors.Join(err, errors.New("no"))
		})
	}, "rolled back", "no")
	outboxtest.RequireNotAppended(t, box, nil, "other")
	m := outboxtest.RequireAppended(t, box, nil, "invoice", "mail")[0]
	if outboxtest.Payload[order](t, m).Number != 42 || m.Key != "42" {
		t.Errorf("%+v", m)
	}
	for _, topics := range [][]string{{"other"}, {"invoice", "invoice"}, {"mail", "invoice"}} {
		fails(t, func(t testing.TB) { outboxtest.RequireAppended(t, box, nil, topics...) }, topics[0], `"invoice"`,
			"Number", `"42"`, `"mail"`)
	}
	fails(t, func(t testing.TB) { outboxtest.RequireAppended(t, box, nil) }, "name the topics")
	fails(t, func(t testing.TB) { outboxtest.RequireNotAppended(t, box, nil) }, "any topic", "mail")
	fails(t, func(t testing.TB) { outboxtest.RequireNotAppended(t, box, nil, "mail") }, "invoice")
	fails(t, func(t testing.TB) { outboxtest.RequireAppended(t, nil, nil, "mail") }, "outbox")
	fails(t, func(t testing.TB) {
		outboxtest.Payload[order](t, outboxtest.RequireAppended(t, box, nil, "mail")[0])
	}, "order", "text")
}

// Fails when a transaction of a database does not see the messages that it has appended, or when
// others see them.
func TestRequireAppendedInATransaction(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "a.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	box := outbox.SQLite(db, outbox.Options{})
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := box.Append(t.Context(), outbox.SQLTx(tx), message("invoice", "42", `{"Number":42}`)); err != nil {
		t.Fatal(err)
	}
	m := outboxtest.RequireAppended(t, box, outbox.SQLTx(tx), "invoice")[0]
	if outboxtest.Payload[order](t, m).Number != 42 || m.Key != "42" || m.Headers["trace"] != "1" {
		t.Errorf("%+v", m)
	}
	outboxtest.RequireNotAppended(t, box, nil)
	fails(t, func(t testing.TB) { outboxtest.InTx(t, box, func(outbox.Tx) error { return nil }) }, "sqlite")
	fails(t, func(t testing.TB) {
		outboxtest.RequireAppended(t, outboxtest.New(t), outbox.SQLTx(tx), "invoice")
	}, "does not belong to this in-memory store")
}

func newRelay(t *testing.T, box *outbox.Outbox, sink outbox.SinkFunc) *outbox.Relay {
	t.Helper()
	r, err := outbox.NewRelay(box, outbox.RelayConfig{Sinks: map[string]outbox.Sink{"invoice": sink},
		DeliverTimeout: time.Minute, Retry: outbox.Retry{MaxAttempts: 3}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Fails when Deliver leaves out DeliverTimeout, the number of the attempt, or a mark of the error.
func TestDeliver(t *testing.T) {
	bad := errors.New("bad")
	for name, c := range map[string]struct {
		sink    outbox.SinkFunc
		attempt int
		topic   string
		want    outbox.Outcome
		retryIn time.Duration
		err     string
	}{
		"it succeeds": {func(ctx context.Context, d outbox.Delivery) error {
			if d.Attempt != 1 || d.ID == (outbox.ID{}) || d.Key != "k" || string(d.Payload) != "p" ||
				d.Headers["a"] != "b" {
				t.Errorf("%+v", d)
			}
			return nil
		}, 0, "invoice", outbox.OutcomeOK, 0, "nil"},
		"it fails": {func(_ context.Context, d outbox.Delivery) error {
			return outbox.RetryAfter(time.Minute, fmt.Errorf("attempt %d", d.Attempt))
		}, 2, "invoice", outbox.OutcomeTransient, time.Minute, "attempt 2"},
		"it fails for the last time": {func(context.Context, outbox.Delivery) error { return bad }, 3, "invoice",
			outbox.OutcomeExhausted, 0, "bad"},
		"it gives up": {func(context.Context, outbox.Delivery) error { return outbox.Permanent(bad) }, 1, "invoice",
			outbox.OutcomePermanent, 0, "bad"},
		"it panics": {func(context.Context, outbox.Delivery) error { panic("help") }, 3, "invoice",
			outbox.OutcomeExhausted, 0, "help"},
		"it takes too long": {func(ctx context.Context, _ outbox.Delivery) error { <-ctx.Done(); return ctx.Err() }, 3,
			"invoice", outbox.OutcomeExhausted, 0, "deadline"},
		"no sink": {func(context.Context, outbox.Delivery) error { return nil }, 1, "mail",
			outbox.OutcomePermanent, 0, "no sink"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := outbox.Delivery{Message: outbox.Message{Topic: c.topic, Key: "k", Payload: []byte("p"),
					Headers: map[string]string{"a": "b"}}, Attempt: c.attempt}
				got := outboxtest.Deliver(t, newRelay(t, outboxtest.New(t), c.sink), d)
				if got.Outcome != c.want || got.RetryIn != c.retryIn || !strings.Contains(fmt.Sprint(got.Err), c.err) {
					t.Errorf("%+v", got)
				}
			})
		})
	}
	r := newRelay(t, outboxtest.New(t), func(context.Context, outbox.Delivery) error { return nil })
	fails(t, func(t testing.TB) { outboxtest.Deliver(t, r, outbox.Delivery{}) }, "Topic")
	fails(t, func(t testing.TB) { outboxtest.Deliver(t, nil, outbox.Delivery{}) }, "nil")
}

// Fails when WorkOff returns before a retry, misses a message, returns messages that had ended
// before, or takes longer than atMost.
func TestWorkOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := outboxtest.New(t)
		var called []string
		sink := func(_ context.Context, d outbox.Delivery) error {
			called = append(called, fmt.Sprintf("%s/%d", d.Payload, d.Attempt))
			if string(d.Payload) == "a" && d.Attempt < 3 {
				return outbox.RetryAfter(time.Hour, errors.New("later"))
			}
			return nil
		}
		put(t, box, message("invoice", "k", "a"), message("invoice", "k", "b"))
		began := time.Now()
		ended := outboxtest.WorkOff(t, newRelay(t, box, sink), 24*time.Hour)
		if took := time.Since(began); took < 2*time.Hour || took > 2*time.Hour+time.Minute {
			t.Errorf("it took %v", took)
		}
		if got := strings.Join(called, " "); got != "a/1 a/2 a/3 b/1" {
			t.Error(got)
		}
		if len(ended) != 2 || string(ended[0].Payload) != "a" || ended[0].State != outbox.StateDispatched {
			t.Errorf("%+v", ended)
		}
		put(t, box, message("invoice", "k", "a"), message("mail", "", "no sink"))
		began = time.Now()
		if ended := outboxtest.WorkOff(t, newRelay(t, box, sink), time.Hour/2); len(ended) != 0 {
			t.Errorf("%+v", ended)
		}
		if took := time.Since(began); took < time.Hour/2 || took > time.Hour/2+time.Minute {
			t.Errorf("it took %v", took)
		}
		outboxtest.RequireAppended(t, box, nil, "invoice", "mail")
	})
	relay := func(box *outbox.Outbox) *outbox.Relay {
		return newRelay(t, box, func(context.Context, outbox.Delivery) error { return nil })
	}
	fails(t, func(tb testing.TB) { outboxtest.WorkOff(tb, relay(outboxtest.New(tb)), time.Hour) }, "synctest.Test")
	fails(t, func(tb testing.TB) {
		outboxtest.WorkOff(tb, relay(outbox.SQLite(&sql.DB{}, outbox.Options{})), time.Hour)
	}, "outboxtest.New")
}
