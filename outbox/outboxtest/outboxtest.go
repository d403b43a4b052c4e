// Package outboxtest tests programs that append messages to an outbox, and the sinks that deliver
// them. It needs no server.
//
//	box := outboxtest.New(t) // in memory
//	outboxtest.InTx(t, box, func(tx outbox.Tx) error {
//		return placeOrder(ctx, box, tx, order) // yours, which calls box.Append
//	})
//	message := outboxtest.RequireAppended(t, box, nil, "invoice.create")[0]
//	payload := outboxtest.Payload[Order](t, message)
//
// Deliver calls one sink once. WorkOff makes a relay deliver all messages, including retries, in
// virtual time: see package testing/synctest.
package outboxtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/kit"
	"github.com/tickslot/tickslot/outbox/internal/memory"
)

// callTimeout bounds each call to a database.
const callTimeout = 30 * time.Second

// New returns an Outbox in the memory of this process. Its messages wait, fail and die by the same
// rules as in a database. Its clock is time.Now, which is virtual inside synctest.Test. It is only
// for tests, because it does not keep its data. Its transactions come from InTx. Test code that
// needs a *sql.Tx or a pgx.Tx with a database, such as outbox.SQLite.
func New(t testing.TB) *outbox.Outbox {
	t.Helper()
	return kit.New(memory.New(), memlock.New()).(*outbox.Outbox)
}

// InTx calls f with a transaction of an Outbox from New, and commits the transaction if f returns
// nil. If f returns an error, the test fails immediately.
func InTx(t testing.TB, box *outbox.Outbox, f func(tx outbox.Tx) error) {
	t.Helper()
	below, err := kit.StoreOf(box)
	if err != nil {
		t.Fatalf("outboxtest: %v", err)
	}
	s, ok := below.(*memory.Store)
	if !ok {
		t.Fatalf("outboxtest: the outbox is in %s: begin a transaction of its database", below)
	}
	tx := s.Begin()
	defer tx.Rollback() // even if f ends the test
	if err := f(tx); err != nil {
		t.Fatalf("outboxtest: the transaction is rolled back: %v", err)
	}
	tx.Commit()
}

// RequireAppended fails the test immediately unless the pending messages of the named topics are
// exactly the listed ones, one message for each name, in the order in which they were appended. It
// returns the messages with their payloads and ignores messages of other topics. With tx, it sees
// what that transaction sees, and fills in only the Seq and the appended fields. If tx is nil, it
// sees committed messages.
func RequireAppended(t testing.TB, box *outbox.Outbox, tx outbox.Tx, topics ...string) []outbox.Record {
	t.Helper()
	if len(topics) == 0 {
		t.Fatal("outboxtest: RequireAppended has no topic: name the topics of the messages that must be pending")
	}
	all := pending(t, box, tx)
	list := slices.DeleteFunc(slices.Clone(all), func(r outbox.Record) bool {
		return !slices.Contains(topics, r.Topic)
	})
	if !slices.EqualFunc(list, topics, func(r outbox.Record, topic string) bool { return r.Topic == topic }) {
		t.Fatalf("outboxtest: want appended: %q\n%s", topics, listed(all))
	}
	return list
}

// RequireNotAppended fails the test immediately if a message of a named topic is pending. Without a
// name, messages of all topics count. See RequireAppended for tx.
func RequireNotAppended(t testing.TB, box *outbox.Outbox, tx outbox.Tx, topics ...string) {
	t.Helper()
	all := pending(t, box, tx)
	if slices.ContainsFunc(all, func(r outbox.Record) bool {
		return len(topics) == 0 || slices.Contains(topics, r.Topic)
	}) {
		t.Fatalf("outboxtest: want nothing appended of %q\n%s", cmp.Or(strings.Join(topics, ", "), "any topic"),
			listed(all))
	}
}

// pending returns the pending messages, in the order in which they were appended.
func pending(t testing.TB, box *outbox.Outbox, tx outbox.Tx) (list []outbox.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	below, err := kit.StoreOf(box)
	if tx == nil && err == nil {
		list, err = all(ctx, box, outbox.Filter{State: outbox.StatePending}, 0)
		for i := range list {
			if err == nil {
				list[i], _, err = box.Message(ctx, list[i].ID)
			}
		}
	}
	for after, more := int64(0), tx != nil; more && err == nil; {
		m, seq, ok, fault := below.NextAppended(ctx, tx, after)
		if more, err, after = ok, fault, seq; ok && err == nil {
			list = append(list, outbox.Record{Seq: seq, State: outbox.StatePending, Message: outbox.Message{
				ID: outbox.ID(m.ID), Topic: m.Topic, Key: m.Key, Payload: m.Payload, Headers: m.Headers}})
		}
	}
	if err != nil {
		t.Fatalf("outboxtest: the messages could not be read: %v", err)
	}
	return list
}

// all returns the messages with a Seq above after, in order, without payloads.
func all(ctx context.Context, box *outbox.Outbox, which outbox.Filter, after int64) (list []outbox.Record, err error) {
	for {
		page, err := box.Messages(ctx, which, outbox.MaxPage)
		for _, r := range page {
			if r.Seq > after {
				list = append(list, r)
			}
		}
		if err != nil || len(page) < outbox.MaxPage || page[len(page)-1].Seq <= after {
			slices.Reverse(list)
			return list, err
		}
		which.BeforeSeq = page[len(page)-1].Seq
	}
}

// listed describes messages for an error.
func listed(list []outbox.Record) string {
	if len(list) == 0 {
		return "nothing is pending"
	}
	var text strings.Builder
	text.WriteString("pending are:")
	for _, r := range list {
		fmt.Fprintf(&text, "\n\tmessage %s of topic %q, key %q, payload %.200q", r.ID, r.Topic, r.Key, r.Payload)
	}
	return text.String()
}

// Payload returns the payload of a message, decoded from JSON. The test fails immediately if the
// payload is not a T.
func Payload[T any](t testing.TB, m outbox.Record) (payload T) {
	t.Helper()
	if err := json.Unmarshal(m.Payload, &payload); err != nil {
		t.Fatalf("outboxtest: the payload of message %s of topic %q is not a %T: %v\n\t%.200q", m.ID, m.Topic, payload,
			err, m.Payload)
	}
	return payload
}

// Deliver passes a message to the sink of its topic once, with DeliverTimeout, as the relay does.
// The relay's Retry decides the outcome. A panic becomes an error, and t.FailNow in the sink ends
// the test. Deliver writes nothing. Only d.Topic is required. Zero fields get the values of a first
// attempt.
func Deliver(t testing.TB, r *outbox.Relay, d outbox.Delivery) outbox.AttemptInfo {
	t.Helper()
	if r == nil {
		t.Fatal("outboxtest: the relay is nil: make one with outbox.NewRelay")
	}
	info, err := kit.Deliver(t.Context(), r, d)
	if err != nil {
		t.Fatalf("outboxtest: nothing was delivered: %v", err)
	}
	return info.(outbox.AttemptInfo)
}

// WorkOff runs a relay in virtual time until no message is pending, but for at most atMost, and
// then drains it. It returns the messages that were dispatched or died during the call, with their
// payloads, in the order in which they ended. The relay's Outbox must come from New, and both must
// be created inside synctest.Test. A virtual day of an idle relay takes about 1.1 s of CPU time.
// The relay cannot run again. To continue, create another relay on the same Outbox.
func WorkOff(t testing.TB, r *outbox.Relay, atMost time.Duration) (ended []outbox.Record) {
	t.Helper()
	below, err := kit.StoreOf(r)
	if err != nil {
		t.Fatalf("outboxtest: %v", err)
	}
	if _, ok := below.(*memory.Store); !ok {
		t.Fatalf("outboxtest: the clock of %s is not virtual: make the outbox with outboxtest.New", below)
	}
	l := &look{t: t, box: kit.OutboxOf(r).(*outbox.Outbox), open: map[outbox.ID]time.Time{}}
	l.look()
	l.ended = nil // discard messages that had ended before
	testkit.WorkOff(t, r.Run, atMost, l.look)
	l.look()
	slices.SortFunc(l.ended, func(a, b outbox.Record) int {
		return cmp.Or(a.FinishedAt.Compare(b.FinishedAt), cmp.Compare(a.Seq, b.Seq))
	})
	return l.ended
}

// A look tracks messages until they end.
type look struct {
	t     testing.TB
	box   *outbox.Outbox
	last  int64                   // the newest message seen so far
	open  map[outbox.ID]time.Time // when each pending message is due
	ended []outbox.Record
}

func (l *look) look() (left bool, dueAt time.Time) {
	l.t.Helper()
	ctx := context.WithoutCancel(l.t.Context())
	fresh, err := all(ctx, l.box, outbox.Filter{}, l.last)
	if err != nil {
		l.t.Fatalf("outboxtest: %v", err)
	}
	for _, m := range fresh {
		l.last, l.open[m.ID] = m.Seq, m.NextAttemptAt
	}
	for _, id := range slices.Collect(maps.Keys(l.open)) {
		m, _, err := l.box.Message(ctx, id)
		switch {
		case err != nil: // the message was deleted
			delete(l.open, id)
		case m.State == outbox.StatePending:
			l.open[id] = m.NextAttemptAt
		default:
			delete(l.open, id)
			l.ended = append(l.ended, m)
		}
	}
	for _, at := range l.open {
		if left = true; dueAt.IsZero() || at.Before(dueAt) {
			dueAt = at
		}
	}
	return left, dueAt
}
