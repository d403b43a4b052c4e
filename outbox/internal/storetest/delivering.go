package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

var delivering = []promise{
	{"due/in the order of the rows, at most Limit, without the caller's keys", func(c *check) {
		c.keyed("a", "", "b", "a")
		due := c.isDue(request(), "topica", "topic", "topicb", "topica")
		if due.Layout != one || due.NextIn >= 0 {
			c.Errorf("%+v", due)
		}
		r := request()
		r.Limit = 2
		c.isDue(r, "topica", "topic")
		r.Limit = 0
		c.isDue(r)
		r = request()
		r.Keys = []string{"a", "漢'\""}
		c.isDue(r, "topic", "topicb")
		r.IDs = []int64{due.Messages[1].Seq}
		c.isDue(r, "topicb")
	}},
	{"due/a key in back-off delays only its own later messages", func(c *check) {
		c.keyed("a", "a", "b", "", "")
		c.ends("topica", store.OutcomeTransient)
		due := c.isDue(request(), "topicb", "topic", "topic")
		if due.NextIn < 59*time.Minute || due.NextIn > time.Hour {
			c.Errorf("the first message waits %v, want an hour", due.NextIn)
		}
		keyless := due.Messages[1]
		r := result(keyless, store.OutcomeTransient)
		r.RetryIn = time.Minute
		c.mark(r)
		due = c.isDue(request(), "topicb", "topic")
		if due.NextIn < 55*time.Second || due.NextIn > time.Minute {
			c.Errorf("the first message waits %v, want a minute", due.NextIn)
		}
	}},
	{"due/a message whose wait is over is due before later messages of its key", func(c *check) {
		list := c.keyed("a", "a")
		r := result(c.due(request()).Messages[0], store.OutcomeTransient)
		r.RetryIn = 0
		c.mark(r)
		due := c.isDue(request(), "topica")
		if due.Messages[0].ID != list[0].ID || due.Messages[0].Attempts != 1 {
			c.Errorf("%+v", due.Messages)
		}
		c.mark(result(due.Messages[0], store.OutcomeOK))
		c.isDue(request(), "topica")
	}},
	{"due/a message whose topic has no sink waits, as do later messages of its key", func(c *check) {
		c.append(c.message("known", "a"), c.message("unknown", "a"), c.message("known", "a"), c.message("known", "b"),
			c.message("unknown", ""), c.message("known", ""))
		r := request()
		r.Topics = []string{"known", "other"}
		due := c.isDue(r, "knowna", "knownb", "known")
		if due.NextIn >= 0 {
			c.Errorf("%v", due.NextIn)
		}
		r.Topics = []string{}
		c.isDue(r)
		r.Topics = nil
		c.isDue(r, "knowna", "unknowna", "knowna", "knownb", "unknown", "known")
	}},
	{"due/a message of a full topic waits, as do later messages of its key", func(c *check) {
		c.append(c.message("free", "a"), c.message("full", "a"), c.message("free", "a"), c.message("free", "b"),
			c.message("full", ""), c.message("free", ""))
		r := request()
		r.FullTopics = []string{"full", "other"}
		for _, topics := range [][]string{nil, {"free", "full"}, {"free"}} {
			r.Topics = topics
			if due := c.isDue(r, "freea", "freeb", "free"); due.NextIn >= 0 {
				c.Errorf("%v", due.NextIn)
			}
		}
		r.FullTopics = []string{"free", "full"}
		c.isDue(r)
	}},
	{"due/other messages are found behind a long queue of a full topic", func(c *check) {
		for i := range 300 {
			c.append(c.message("full", []string{"", fmt.Sprint("key", i)}[i%2]))
		}
		c.append(c.message("free", "z"), c.message("free", ""))
		r := request()
		r.FullTopics = []string{"full"}
		var found []string
		for range 300 {
			due, err := c.Due(c.ctx, r)
			if err != nil {
				c.Fatal(err)
			}
			for _, m := range due.Messages {
				found = append(found, m.Topic+m.Key)
			}
			if r.After = due.After; r.After == "" {
				break
			}
		}
		slices.Sort(found)
		if !slices.Equal(slices.Compact(found), []string{"free", "freez"}) {
			c.Errorf("%q", found)
		}
	}},
	{"due/with StopOnDead, later messages of a key wait for a dead one", func(c *check) {
		c.keyed("a", "b", "a", "b")
		stop := request()
		stop.StopOnDead = true
		c.ends("topica", store.OutcomePermanent)
		c.isDue(request(), "topicb", "topica", "topicb")
		c.isDue(stop, "topicb", "topicb")
		c.ends("topicb", store.OutcomeExhausted)
		c.isDue(stop)
		c.isDue(request(), "topica", "topicb")
	}},
	{"due/a message committed later with a lower number is found", func(c *check) {
		if c.h.OneWriter {
			return // two transactions cannot write at the same time
		}
		early := c.h.Begin(c.TB, c.Store)
		fresh, _, err := c.Append(c.ctx, early, c.message("topic", "early"))
		if err != nil || !fresh {
			c.Fatal(fresh, err)
		}
		c.keyed("late")
		c.isDue(request(), "topiclate")
		c.ends("topiclate", store.OutcomeOK)
		if err := early.Commit(); err != nil {
			c.Fatal(err)
		}
		c.isDue(request(), "topicearly")
	}},
	{"due/an answer ends when its payloads reach DueBytes, and says that there is more", func(c *check) {
		large := func(key string, n int) (list []store.Message) {
			for range n {
				m := c.message("topic", key)
				m.Payload = make([]byte, store.DueBytes/4)
				list = append(list, m)
			}
			return list
		}
		huge := c.message("topic", "")
		huge.Payload = make([]byte, store.DueBytes+1)
		c.append(append(large("a", 5), huge)...)
		wants := func(what string, n int, full bool) {
			c.Helper()
			due := c.due(request())
			if len(due.Messages) != n || due.Full != full {
				c.Errorf("%s: %d messages, full %t; want %d, %t", what, len(due.Messages), due.Full, n, full)
			}
			for _, m := range due.Messages {
				c.mark(result(m, store.OutcomeOK))
			}
		}
		wants("the first four", 4, true)
		wants("the fifth, and one that is longer than all that fits", 2, true)
		wants("nothing is left", 0, false)
		c.keyed(slices.Repeat([]string{"long"}, 300)...) // more than Due reads in row order
		m := c.due(request()).Messages[0]
		c.mark(result(m, store.OutcomeTransient))
		c.append(append(large("b", 6), large("", 6)...)...)
		for range 2 { // first the half for messages without a key, then the rest
			due := c.due(request())
			if n := len(due.Messages); n == 0 || n > 8 || !due.Full {
				c.Errorf("behind a long queue: %d messages, full %t; want at most 8, and full", n,
					due.Full)
			}
			for _, m := range due.Messages {
				c.mark(result(m, store.OutcomeOK))
			}
			if len(due.Messages) == 0 {
				break
			}
		}
	}},
	{"due/other messages are found behind a long queue, no matter why it waits", func(c *check) {
		queue := make([]store.Message, 300) // more than Due reads in row order
		for i := range queue {
			queue[i] = c.message("topic", "long")
		}
		c.append(queue...)
		keys := []string{"a", "b", "b", "", "z", "a", "b", "zz", ""}
		var others []store.Message
		for _, key := range append(keys, "unknown", "unknown") {
			others = append(others, c.message("topic", key))
		}
		others[len(keys)].Topic = "unknown" // later messages of its key wait
		c.append(others...)
		ask := request()
		ask.Topics = []string{"topic"}
		// all checks the messages that are found by as many calls as needed, each for at most limit
		// messages.
		all := func(what string, limit int) {
			c.Helper()
			r, got := ask, map[string][]store.ID{}
			r.Limit = limit
			for calls := 0; ; calls++ {
				due := c.due(r)
				if len(due.Messages) > limit || calls > 20 {
					c.Fatalf("%s: %d messages in call %d", what, len(due.Messages), calls)
				}
				for _, m := range due.Messages {
					got[m.Key] = append(got[m.Key], m.ID)
					if m.Key == "" {
						r.IDs = append(r.IDs, m.Seq)
					} else if !slices.Contains(r.Keys, m.Key) {
						r.Keys = append(r.Keys, m.Key)
					}
				}
				if r.After = due.After; r.After == "" && len(due.Messages) == 0 {
					break
				}
			}
			first := map[string][]store.ID{}
			for i, key := range keys {
				first[key] = append(first[key], others[i].ID)
			}
			for key, want := range first {
				if have := got[key]; len(have) == 0 || len(have) > len(want) || !slices.Equal(have, want[:len(have)]) ||
					key == "" && len(have) < len(want) {
					c.Errorf("%s, %d at a time: key %q has %x, want the first of %x", what, limit, key, have, want)
				}
			}
			if len(got) != len(first) {
				c.Errorf("%s, %d at a time: messages of %d keys, want %d: %v", what, limit, len(got), len(first), got)
			}
		}
		ask.Keys = []string{"long"}
		all("the caller has it", 3)
		ask.Keys = nil
		c.mark(result(c.due(request()).Messages[0], store.OutcomeTransient))
		all("in back-off", 32)
		all("in back-off", 2)
		if due := c.due(ask); due.NextIn <= 59*time.Minute {
			c.Errorf("the first message waits %v, want an hour", due.NextIn)
		}
		c.call("Stats", func(ctx context.Context) error {
			s, err := c.Stats(ctx, ask.Topics, false)
			if s.OldestDue == 0 {
				c.Errorf("nothing is due: %+v", s)
			}
			return err
		})
		first, _ := c.record(queue[0].ID)
		r := store.Result{ID: first.ID, Seq: first.Seq, Attempts: 1, Outcome: store.OutcomePermanent}
		c.mark(r)
		ask.StopOnDead = true
		all("behind a dead one", 32)
		if n, _ := c.requeue(store.Filter{Key: "long"}, 0, true); n != 1 {
			c.Fatalf("%d requeued", n)
		}
		due := c.due(ask).Messages
		if len(due) != ask.Limit || due[0].ID != queue[0].ID || due[1].ID != queue[1].ID {
			c.Errorf("%d messages are due of a queue that no longer waits", len(due))
		}
	}},
	{"due/behind a long queue, a key does not wait for messages without a key", found("a", "")},
	{"due/behind a long queue, messages without a key do not wait for keys", found("", "a", "b", "c")},
	{"due/the answer says whether more messages of the keys are left", func(c *check) {
		c.keyed("a", "b", "")
		if due := c.isDue(request(), "topica", "topicb", "topic"); due.More {
			c.Error("More is set, although all messages were returned")
		}
		c.ends("topicb", store.OutcomeTransient)
		queue := make([]store.Message, 350)
		for i := range queue {
			queue[i] = c.message("topic", "b")
			if i >= 300 {
				queue[i] = c.message("topic", []string{"a", "c"}[i%2]) // a key that came first, and a new key
			}
		}
		c.append(queue...)
		r := request()
		r.Keys = []string{"b"}
		for range 2 { // on MySQL, the first call finds where the first messages end
			if due := c.due(r); !due.More && len(due.Messages) < 52 {
				c.Errorf("%d of 52 due messages were returned, and More is not set", len(due.Messages))
			}
		}
	}},
	{"due/NextIn ignores messages behind a requeued one", func(c *check) {
		c.keyed("a", "a")
		c.ends("topica", store.OutcomePermanent)
		c.ends("topica", store.OutcomeTransient)
		if n, _ := c.requeue(store.Filter{State: store.StateDead}, 0, false); n != 1 {
			c.Fatalf("%d requeued", n)
		}
		due := c.isDue(request(), "topica")
		if due.NextIn >= 0 || due.Messages[0].Attempts != 1 {
			c.Errorf("%+v", due)
		}
		c.ends("topica", store.OutcomeOK)
		if due := c.isDue(request()); due.NextIn < 59*time.Minute {
			c.Errorf("the second message waits %v, want an hour", due.NextIn)
		}
	}},
	{"due/each message belongs to one shard, and another layout gets none", func(c *check) {
		var keys []string
		for i := range 20 {
			keys = append(keys, fmt.Sprint("key", i))
		}
		c.keyed(keys...)
		if l := c.layout(0); l != one {
			c.Fatalf("fresh tables have layout %+v", l)
		}
		l := c.layout(3)
		if l != (store.Layout{Shards: 3, Epoch: 2}) || c.layout(3) != l || c.layout(0) != l {
			c.Fatalf("layout %+v, want 3 shards, changed once", l)
		}
		if due := c.isDue(request()); due.Layout != l {
			c.Errorf("Due says layout %+v, want %+v", due.Layout, l)
		}
		var all []string
		for shard := range 3 {
			r := request()
			r.Layout, r.Shard = l, shard
			for _, m := range c.due(r).Messages {
				if m.Hash != hashOf(m.Key) || int(m.Hash%3) != shard {
					c.Errorf("message of hash %d, key %q in shard %d of 3", m.Hash, m.Key, shard)
				}
				all = append(all, m.Key)
			}
		}
		slices.Sort(all)
		slices.Sort(keys)
		if !slices.Equal(all, keys) {
			c.Errorf("the shards have %q, want %q", all, keys)
		}
		if l := c.layout(1); l != (store.Layout{Shards: 1, Epoch: 3}) {
			c.Errorf("%+v", l)
		}
		if due := c.due(request()); len(due.Messages) != 0 {
			c.Errorf("under the layout of epoch 1, which has as many shards: %d", len(due.Messages))
		}
	}},
}

// found returns a test that fails unless a message of the key is found after a long queue, although
// 200 undelivered messages of other keys follow it.
func found(key string, others ...string) func(c *check) {
	return func(c *check) {
		queue := make([]store.Message, 501)
		for i := range queue {
			switch {
			case i < 300:
				queue[i] = c.message("topic", "long")
			case i == 300:
				queue[i] = c.message("topic", key)
			default:
				queue[i] = c.message("topic", others[i%len(others)])
			}
		}
		c.append(queue...)
		is := func(m store.Pending) bool { return m.ID == queue[300].ID }
		for _, limit := range []int{1, 2, 8} {
			r := request()
			r.Keys, r.Limit = []string{"long"}, limit
			for calls := 1; ; calls++ {
				due := c.due(r)
				if slices.ContainsFunc(due.Messages, is) {
					break
				}
				if r.After = due.After; calls == 5 {
					c.Fatalf("%d at a time: %d calls did not return the message", limit, calls)
				}
			}
		}
	}
}
