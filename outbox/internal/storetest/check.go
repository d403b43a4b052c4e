package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// check is one test, with methods for calls to the store that must not fail.
type check struct {
	testing.TB
	store.Store

	ctx context.Context
	h   Harness
	ids uint64
}

const (
	callTimeout = 20 * time.Second
	node        = "host/1/abc"
)

func (c *check) call(what string, call func(ctx context.Context) error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	if err := call(ctx); err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

// until calls done until it returns true. This is needed because a database's clock may show the
// same time in two calls.
func (c *check) until(what string, done func() bool) {
	c.Helper()
	for began := time.Now(); !done(); time.Sleep(time.Millisecond) {
		if time.Since(began) > callTimeout {
			c.Fatalf("it did not happen in time: %s", what)
		}
	}
}

// message returns a message with a new ID.
func (c *check) message(topic, key string) store.Message {
	c.ids++
	m := store.Message{Topic: topic, Key: key, Payload: []byte(topic + key)}
	binary.BigEndian.PutUint64(m.ID[8:], c.ids)
	m.Hash = hashOf(key)
	if key == "" {
		m.Hash = uint32(c.ids)
	}
	return m
}

func hashOf(key string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(key))
	return h.Sum32()
}

// within calls do with a transaction of the application and commits it.
func (c *check) within(do func(ctx context.Context, tx store.Tx)) {
	c.Helper()
	tx := c.h.Begin(c.TB, c.Store)
	committed := false
	defer func() {
		if !committed {
			_ = tx.Rollback()
		}
	}()
	c.call("a transaction", func(ctx context.Context) error {
		do(ctx, tx.Tx)
		return tx.Commit()
	})
	committed = true
}

// append appends messages, all of which must be new. It appends up to 200 in a transaction, because
// each transaction has the time-out of one call. It appends many messages with one call, which is a
// hundred times faster.
func (c *check) append(list ...store.Message) {
	c.Helper()
	for some := range slices.Chunk(list, 200) {
		if len(some) > 50 {
			c.within(func(ctx context.Context, tx store.Tx) {
				if ok, err := c.AppendAll(ctx, tx, some); err != nil || !ok {
					c.Fatalf("AppendAll of %d messages: %t, %v", len(some), ok, err)
				}
			})
			continue
		}
		c.within(func(ctx context.Context, tx store.Tx) {
			for _, m := range some {
				if fresh, _, err := c.Append(ctx, tx, m); err != nil || !fresh {
					c.Fatalf("Append of %q: %t, %v", m.Key, fresh, err)
				}
			}
		})
	}
}

// keyed appends one message for each of the keys, all with the same topic, and returns them.
func (c *check) keyed(keys ...string) (list []store.Message) {
	c.Helper()
	for _, key := range keys {
		list = append(list, c.message("topic", key))
	}
	c.append(list...)
	return list
}

func (c *check) layout(want int) (l store.Layout) {
	c.Helper()
	c.call("Layout", func(ctx context.Context) (err error) { l, err = c.Layout(ctx, want); return err })
	return l
}

// one is the layout of new tables.
var one = store.Layout{Shards: 1, Epoch: 1}

// request returns a request for all messages.
func request() store.DueRequest { return store.DueRequest{Layout: one, Limit: 100} }

func (c *check) due(r store.DueRequest) (due store.Due) {
	c.Helper()
	c.call("Due", func(ctx context.Context) (err error) { due, err = c.Due(ctx, r); return err })
	return due
}

// isDue fails the test unless Due returns messages with these payloads, in this order.
func (c *check) isDue(r store.DueRequest, want ...string) store.Due {
	c.Helper()
	due := c.due(r)
	var got []string
	for _, m := range due.Messages {
		got = append(got, string(m.Payload))
	}
	if !slices.Equal(got, want) {
		c.Fatalf("%q are due, want %q", got, want)
	}
	return due
}

// pending returns the only due message with a payload.
func (c *check) pending(payload string) store.Pending {
	c.Helper()
	for _, m := range c.due(request()).Messages {
		if string(m.Payload) == payload {
			return m
		}
	}
	c.Fatalf("%q is not due", payload)
	return store.Pending{}
}

func result(m store.Pending, outcome store.Outcome) store.Result {
	r := store.Result{ID: m.ID, Seq: m.Seq, Attempts: m.Attempts, Outcome: outcome, Took: time.Millisecond,
		MostLate: time.Hour}
	if outcome != store.OutcomeOK {
		r.Error = "the error of " + string(m.Payload)
	}
	if outcome == store.OutcomeTransient {
		r.RetryIn = time.Hour
	}
	return r
}

// mark writes results and returns those that count. No row may be locked.
func (c *check) mark(results ...store.Result) []store.ID {
	c.Helper()
	var marked store.Marked
	c.call("Mark", func(ctx context.Context) (err error) { marked, err = c.Mark(ctx, node, results); return err })
	if len(marked.Locked) > 0 {
		c.Errorf("%x are locked", marked.Locked)
	}
	return sorted(marked.Counted)
}

func sorted(ids []store.ID) []store.ID {
	slices.SortFunc(ids, func(a, b store.ID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// ends marks the message with the payload. The result must count.
func (c *check) ends(payload string, outcome store.Outcome) store.Pending {
	c.Helper()
	m := c.pending(payload)
	if counted := c.mark(result(m, outcome)); !slices.Equal(counted, []store.ID{m.ID}) {
		c.Fatalf("Mark of %q as %s: these counted: %x", payload, outcome, counted)
	}
	return m
}

// record returns the record of a message and its attempts.
func (c *check) record(id store.ID) (r store.Record, attempts []store.Attempt) {
	c.Helper()
	c.call("Message", func(ctx context.Context) (err error) {
		var ok bool
		r, attempts, ok, err = c.Message(ctx, id)
		if err == nil && !ok {
			c.Fatalf("there is no message %x", id)
		}
		return err
	})
	return r, attempts
}
