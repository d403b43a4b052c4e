package storetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// odd has texts that often break SQL or its clients.
var odd = []string{"it's", `"double"`, "`back`", "🦊 漢", "a b ", " ", "\t\r\n\x01\x7f", `\`, `\'; --`, "%_", "$1 ?1 @p1 {id}",
	"ABC", "abc", "äöü", strings.Repeat("x", 200), strings.Repeat("🦊", 50)}

var appending = []promise{
	{"append/a message is delivered as it was appended", func(c *check) {
		var list []store.Message
		for _, text := range odd {
			m := c.message(text, text)
			m.Hash = 1<<32 - 1
			m.Headers = map[string]string{text: text, "plain": "", "nul": "\x00"}
			m.Payload = []byte(text + "\x00\xff")
			list = append(list, m)
		}
		empty := c.message("t", "")
		empty.Payload = nil
		all := c.message("t", "")
		all.Payload = make([]byte, 256)
		for i := range all.Payload {
			all.Payload[i] = byte(i)
		}
		list = append(list, empty, all)
		c.append(list...)
		r := request()
		r.Topics = []string{"t"}
		r.Topics = append(r.Topics, odd...)
		for _, r := range []store.DueRequest{r, request()} {
			due := c.due(r).Messages
			if len(due) != len(list) {
				c.Fatalf("%d of %d messages are due", len(due), len(list))
			}
			for i, m := range list {
				same(c, due[i].Message, m)
				if due[i].Attempts != 0 || due[i].Budget != 0 || due[i].Age < 0 || due[i].Seq <= 0 {
					c.Errorf("%+v", due[i])
				}
			}
		}
		for _, m := range list {
			r, attempts := c.record(m.ID)
			same(c, r.Message, m)
			if r.State != store.StatePending || len(attempts) != 0 {
				c.Errorf("%+v, attempts %+v", r, attempts)
			}
		}
		for _, key := range odd {
			r := request()
			r.Keys = []string{key}
			if n := len(c.due(r).Messages); n != len(list)-1 {
				c.Errorf("without key %q, %d of %d messages are due", key, n, len(list))
			}
		}
	}},
	{"append/a large payload", func(c *check) {
		m := c.message("t", "")
		size := c.h.Large
		if size == 0 {
			size = 10 << 20
		}
		m.Payload = bytes.Repeat([]byte{0, 'a', '\'', 0xff}, size/4)
		c.append(m)
		same(c, c.due(request()).Messages[0].Message, m)
	}},
	{"append/an ID is appended once, even by two transactions or with another payload", func(c *check) {
		m := c.message("topic", "a'")
		m.Headers = map[string]string{"trace": "1"}
		other := m
		other.Topic, other.Key, other.Payload, other.Headers = "t2", "k2", []byte("p2"), map[string]string{"trace": "2"}
		again := func(ctx context.Context, tx store.Tx, m store.Message) {
			c.Helper()
			fresh, old, err := c.Append(ctx, tx, m)
			if err != nil || fresh {
				c.Fatalf("again: %t, %v", fresh, err)
			}
			if old.Topic != "topic" || old.Key != "a'" || !bytes.Equal(old.Payload, []byte("topica'")) {
				c.Errorf("the earlier message is %+v", old)
			}
		}
		c.within(func(ctx context.Context, tx store.Tx) {
			if fresh, _, err := c.Append(ctx, tx, m); err != nil || !fresh {
				c.Fatal(fresh, err)
			}
			again(ctx, tx, m)
			again(ctx, tx, other)
		})
		c.within(func(ctx context.Context, tx store.Tx) {
			again(ctx, tx, other)
			again(ctx, tx, m)
		})
		c.isDue(request(), "topica'")
		c.ends("topica'", store.OutcomeOK)
		c.within(func(ctx context.Context, tx store.Tx) { again(ctx, tx, m) })
		c.isDue(request())
	}},
	{"append/a name that is too long is an error", func(c *check) {
		long := strings.Repeat("x", store.MaxName+1)
		for _, m := range []store.Message{c.message(long, "a"), c.message("t", long)} {
			tx := c.h.Begin(c.TB, c.Store)
			if fresh, _, err := c.Append(c.ctx, tx, m); err == nil || fresh {
				c.Errorf("Append: %t, %v", fresh, err)
			}
			_ = tx.Rollback()
		}
		tx := c.h.Begin(c.TB, c.Store)
		if fresh, err := c.Once(c.ctx, tx, long, store.ID{1}); err == nil || fresh {
			c.Errorf("Once: %t, %v", fresh, err)
		}
		_ = tx.Rollback()
		c.isDue(request())
	}},
	{"append/a message of a rolled-back transaction does not exist", func(c *check) {
		tx := c.h.Begin(c.TB, c.Store)
		m := c.message("topic", "a")
		if fresh, _, err := c.Append(c.ctx, tx, m); err != nil || !fresh {
			c.Fatal(fresh, err)
		}
		if err := tx.Rollback(); err != nil {
			c.Fatal(err)
		}
		c.isDue(request())
		c.append(m)
		c.isDue(request(), "topica")
	}},
	{"append/many messages keep their order, and none is appended if one exists", func(c *check) {
		old := c.message("topic", "old")
		c.append(old)
		var list []store.Message
		var want []string
		for i := range store.MaxAppendAll {
			m := c.message("t", "k")
			m.Payload, m.Headers = []byte(fmt.Sprintf("%d'\x00\xff", i)), map[string]string{"n": odd[i%len(odd)]}
			if m.Key = odd[i%len(odd)]; i == 7 {
				m.Key, m.Payload, m.Headers = "", nil, nil
			}
			list = append(list, m)
			want = append(want, string(m.Payload))
		}
		all := func(tx store.Tx, list []store.Message, want bool) {
			c.Helper()
			if ok, err := c.AppendAll(c.ctx, tx, list); err != nil || ok != want {
				c.Fatalf("AppendAll: %t, %v, want %t", ok, err, want)
			}
		}
		tx := c.h.Begin(c.TB, c.Store)
		all(tx, list, true)
		if err := tx.Rollback(); err != nil {
			c.Fatal(err)
		}
		c.isDue(request(), "topicold")
		c.within(func(_ context.Context, tx store.Tx) {
			all(tx, append(list[:2:2], old), false) // old already exists
			all(tx, list, true)
			all(tx, list[5:6], false) // the message exists in this transaction
		})
		r := request()
		r.Limit = 2 * len(list)
		due := c.due(r).Messages
		if len(due) != len(list)+1 {
			c.Fatalf("%d are due", len(due))
		}
		for i, m := range list {
			same(c, due[i+1].Message, m)
			if due[i+1].Seq <= due[i].Seq || string(due[i+1].Payload) != want[i] {
				c.Errorf("message %d is %+v", i, due[i+1])
			}
		}
	}},
	{"append/a transaction sees pending messages and its own", func(c *check) {
		done, old := c.message("topic", "done"), c.message("topic", "old")
		c.append(done, old)
		c.isDue(request(), "topicdone", "topicold")
		c.ends("topicdone", store.OutcomeOK)
		fresh := c.message("it's", "key")
		fresh.Headers = map[string]string{"trace": "1"}
		c.within(func(ctx context.Context, tx store.Tx) {
			if _, _, err := c.Append(ctx, tx, fresh); err != nil {
				c.Fatal(err)
			}
			var after int64
			for _, want := range []store.Message{old, fresh} {
				m, seq, ok, err := c.NextAppended(ctx, tx, after)
				if err != nil || !ok || seq <= after {
					c.Fatalf("after %d: %d, %t, %v", after, seq, ok, err)
				}
				m.Hash = want.Hash
				same(c, m, want)
				after = seq
			}
			if m, _, ok, err := c.NextAppended(ctx, tx, after); err != nil || ok {
				c.Errorf("after the last message, there is %+v: %v", m, err)
			}
		})
	}},
	{"append/a transaction that has ended is an error", func(c *check) {
		tx := c.h.Begin(c.TB, c.Store)
		if err := tx.Commit(); err != nil {
			c.Fatal(err)
		}
		if fresh, _, err := c.Append(c.ctx, tx, c.message("topic", "a")); err == nil || fresh {
			c.Errorf("Append in a committed transaction: %t, %v", fresh, err)
		}
		if fresh, err := c.Once(c.ctx, tx, "billing", store.ID{1}); err == nil || fresh {
			c.Errorf("Once in a committed transaction: %t, %v", fresh, err)
		}
		if fresh, _, err := c.Append(c.ctx, nil, c.message("topic", "a")); err == nil || fresh {
			c.Errorf("Append without a transaction: %t, %v", fresh, err)
		}
	}},
	{"once/a message is new to each consumer once, unless the transaction is rolled back", func(c *check) {
		id := store.ID{0, 1, 0, 0xff, '\''}
		once := func(ctx context.Context, tx store.Tx, consumer string, want bool) {
			c.Helper()
			if fresh, err := c.Once(ctx, tx, consumer, id); err != nil || fresh != want {
				c.Errorf("Once for %q: %t, %v, want %t", consumer, fresh, err, want)
			}
		}
		tx := c.h.Begin(c.TB, c.Store)
		once(c.ctx, tx, "billing", true)
		if err := tx.Rollback(); err != nil {
			c.Fatal(err)
		}
		for _, fresh := range []bool{true, false} {
			c.within(func(ctx context.Context, tx store.Tx) {
				for _, consumer := range append([]string{"billing"}, odd...) {
					once(ctx, tx, consumer, fresh)
					once(ctx, tx, consumer, false)
				}
			})
		}
	}},
}

// same fails the test unless two messages are the same.
func same(c *check, got, want store.Message) {
	c.Helper()
	if got.ID != want.ID || got.Topic != want.Topic || got.Key != want.Key || got.Hash != want.Hash ||
		!bytes.Equal(got.Payload, want.Payload) || len(got.Headers) != len(want.Headers) {
		if len(got.Payload) > 1000 || len(want.Payload) > 1000 {
			got.Payload, want.Payload = nil, nil
		}
		c.Errorf("got %+v, want %+v", got, want)
	}
	for k, v := range want.Headers {
		if got.Headers[k] != v {
			c.Errorf("header %q is %q, want %q", k, got.Headers[k], v)
		}
	}
}
