package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

var delivering = []promise{
	{"due/in the order of the rows, at most Limit, and what the caller has is left out", func(c *check) {
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
	{"due/a key in back-off holds back its later messages, and no other", func(c *check) {
		c.keyed("a", "a", "b", "", "")
		c.ends("topica", store.OutcomeTransient)
		due := c.isDue(request(), "topicb", "topic", "topic")
		if due.NextIn < 59*time.Minute || due.NextIn > time.Hour {
			c.Errorf("the first one waits %v, want an hour", due.NextIn)
		}
		keyless := due.Messages[1]
		r := result(keyless, store.OutcomeTransient)
		r.RetryIn = time.Minute
		c.mark(r)
		due = c.isDue(request(), "topicb", "topic")
		if due.NextIn < 55*time.Second || due.NextIn > time.Minute {
			c.Errorf("the first one waits %v, want a minute", due.NextIn)
		}
	}},
	{"due/a message whose wait is over is due before the later ones of its key", func(c *check) {
		list := c.keyed("a", "a")
		r := result(c.due(request()).Messages[0], store.OutcomeTransient)
		r.RetryIn = 0
		c.mark(r)
		due := c.isDue(request(), "topica", "topica")
		if due.Messages[0].ID != list[0].ID || due.Messages[0].Attempts != 1 {
			c.Errorf("%+v", due.Messages)
		}
	}},
	{"due/a message whose topic has no sink waits, and so do the later ones of its key", func(c *check) {
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
	{"due/while a message of a key is dead its later ones wait, if that is asked for", func(c *check) {
		c.keyed("a", "b", "a", "b")
		stop := request()
		stop.StopOnDead = true
		c.ends("topica", store.OutcomeRejected)
		c.isDue(request(), "topicb", "topica", "topicb")
		c.isDue(stop, "topicb", "topicb")
		c.ends("topicb", store.OutcomePoison)
		c.isDue(stop)
		c.isDue(request(), "topica", "topicb")
	}},
	{"due/what another transaction commits later, with a lower number, is found", func(c *check) {
		if c.h.OneWriter {
			return // it cannot happen
		}
		early := c.h.Begin(c.TB, c.Store)
		fresh, _, err := c.Append(c.ctx, early, c.message("topic", "early"))
		if err != nil || !fresh {
			c.Fatal(fresh, err)
		}
		c.keyed("late")
		c.isDue(request(), "topiclate")
		c.ends("topiclate", store.OutcomeSuccess)
		if err := early.Commit(); err != nil {
			c.Fatal(err)
		}
		c.isDue(request(), "topicearly")
	}},
	{"due/each message is of one shard, and nobody gets any under another layout", func(c *check) {
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
			c.Errorf("under the layout of epoch 1, of as many shards: %d", len(due.Messages))
		}
	}},
}
