package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/internal/flow"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

func (c *check) messages(which store.Filter, limit int) (list []store.Record) {
	c.Helper()
	c.call("Messages", func(ctx context.Context) (err error) { list, err = c.Messages(ctx, which, limit); return err })
	return list
}

func (c *check) requeue(which store.Filter, olderThan time.Duration, force bool) (n, tooOld int) {
	c.Helper()
	c.call("Requeue", func(ctx context.Context) (err error) {
		done, err := c.Requeue(ctx, which, store.RequeueRequest{OlderThan: olderThan, Force: force,
			Note: "it's mended 漢", Limit: 1000})
		if n, tooOld = done.N, done.TooOld; done.After != 0 {
			c.Errorf("there is more than %d messages", n+tooOld)
		}
		return err
	})
	return n, tooOld
}

func (c *check) delete(which store.Filter) (n int) {
	c.Helper()
	c.call("Delete", func(ctx context.Context) (err error) { n, err = c.Delete(ctx, which); return err })
	return n
}

// dead appends messages with the keys and marks them as dead.
func (c *check) dead(keys ...string) []store.Message {
	c.Helper()
	list := c.keyed(keys...)
	for _, m := range list {
		c.ends(string(m.Payload), store.OutcomeExhausted)
	}
	return list
}

// passes waits until the store's clock has advanced by d.
func (c *check) passes(d time.Duration) {
	c.Helper()
	now := func() time.Time {
		c.append(c.message("clock", ""))
		return c.messages(store.Filter{Topic: "clock"}, 1)[0].CreatedAt
	}
	began := now()
	c.until("time has passed", func() bool { return now().Sub(began) > d })
}

func (c *check) topics() map[string]store.TopicHistory {
	c.Helper()
	topics, last := map[string]store.TopicHistory{}, ""
	c.call("Topics", func(ctx context.Context) error {
		list, err := c.Topics(ctx)
		for _, t := range list {
			if t.Topic <= last && len(topics) > 0 {
				c.Errorf("the topic %q comes after %q", t.Topic, last)
			}
			topics[t.Topic], last = t, t.Topic
		}
		return err
	})
	return topics
}

var operating = []promise{
	{"topics/Flow counts which messages were appended and ended when", func(c *check) {
		for _, topic := range []string{"ok", "ok", "dead", "waits"} {
			m := c.message(topic, "")
			c.append(m)
			if topic != "waits" {
				c.ends(string(m.Payload), map[string]store.Outcome{"ok": store.OutcomeOK,
					"dead": store.OutcomePermanent}[topic])
			}
		}
		sums := map[string][2]int64{}
		c.call("Flow", func(ctx context.Context) error {
			f, err := c.Flow(ctx)
			if d := f.Until.Sub(f.From); d < flow.Span-flow.Interval || d >= flow.Span {
				c.Errorf("from %v until %v", f.From, f.Until)
			}
			for _, n := range f.Counts {
				s := sums[n.Name]
				sums[n.Name] = [2]int64{s[0] + n.In, s[1] + n.Out}
				if n.At.After(f.Until) || f.Until.Sub(n.At) > 2*flow.Interval ||
					!n.At.Equal(n.At.Truncate(flow.Interval)) {
					c.Errorf("%+v, until %v", n, f.Until)
				}
			}
			return err
		})
		if sums["ok"] != [2]int64{2, 2} || sums["dead"] != [2]int64{1, 1} || sums["waits"] != [2]int64{1, 0} {
			c.Errorf("%v", sums)
		}
	}},
	{"topics/tell how the messages of each ended, and since when all fail", func(c *check) {
		if all := c.topics(); len(all) != 0 {
			c.Errorf("%+v", all)
		}
		is := func(topic string, pending, dead int64, outcomes ...store.State) store.TopicHistory {
			c.Helper()
			t := c.topics()[topic]
			if t.Topic != topic || t.Pending != pending || t.Dead != dead || !slices.Equal(t.Outcomes, outcomes) ||
				t.EndedAt.IsZero() == (len(outcomes) > 0) || t.FailingSince.IsZero() == (dead > 0) ||
				t.DispatchedAt.IsZero() == slices.Contains(outcomes, store.StateDispatched) ||
				(t.LastError != "") != (dead > 0) {
				c.Errorf("%s: %+v, want %d pending, %d dead, %v", topic, t, pending, dead, outcomes)
			}
			return t
		}
		end := func(topic string, outcome store.Outcome, took time.Duration) {
			c.Helper()
			if topic != "often" { // the messages that passes appends would be due before it
				c.passes(time.Millisecond)
			}
			m := c.message(topic, "")
			c.append(m)
			r := result(c.pending(string(m.Payload)), outcome)
			r.Took, r.MostLate = took, time.Hour
			if counted := c.mark(r); len(counted) != 1 {
				c.Fatalf("%x counted", counted)
			}
		}
		c.append(c.message("waits", ""), c.message("waits", ""))
		is("waits", 2, 0)
		end("it's", store.OutcomeExhausted, 0)
		end("it's", store.OutcomePermanent, time.Minute)
		t := is("it's", 0, 2, store.StateDead, store.StateDead)
		if d := t.EndedAt.Sub(t.FailingSince); d < time.Minute-time.Second || d > 2*time.Minute {
			c.Errorf("it fails since %v, and the last one ended %v", t.FailingSince, t.EndedAt)
		}
		end("it's", store.OutcomeOK, 0)
		is("it's", 0, 0, store.StateDead, store.StateDead, store.StateDispatched)
		end("it's", store.OutcomePermanent, time.Minute)
		t = is("it's", 0, 1, store.StateDead, store.StateDead, store.StateDispatched, store.StateDead)
		if !t.FailingSince.Equal(t.DispatchedAt) {
			c.Errorf("it fails since %v, though one was dispatched %v", t.FailingSince, t.DispatchedAt)
		}
		for range store.MaxOutcomes {
			end("often", store.OutcomeExhausted, 0)
		}
		end("often", store.OutcomeExhausted, 0)
		is("often", 0, store.MaxOutcomes, slices.Repeat([]store.State{store.StateDead}, store.MaxOutcomes)...)
		is("it's", 0, 1, store.StateDead, store.StateDead, store.StateDispatched, store.StateDead)
		is("waits", 2, 0)
	}},
	{"messages/by each field of the filter, the newest first, in pages", func(c *check) {
		a, b, d := c.message("ta", "ka"), c.message("tb", "kb"), c.message("ta", "it's \"d\" 漢")
		c.append(a, b)
		c.append(d)
		c.ends(string(b.Payload), store.OutcomePermanent)
		all := c.messages(store.Filter{}, 10)
		if len(all) != 3 || all[0].Payload != nil || all[0].Headers != nil {
			c.Fatalf("%+v", all)
		}
		created := map[store.ID]time.Time{}
		for _, r := range all {
			created[r.ID] = r.CreatedAt
			if r.CreatedAt != r.CreatedAt.Truncate(time.Microsecond) {
				c.Errorf("%v", r.CreatedAt)
			}
		}
		hour := time.Hour
		for _, x := range []struct {
			which store.Filter
			want  []store.Message
		}{
			{store.Filter{}, []store.Message{d, b, a}},
			{store.Filter{IDs: []store.ID{a.ID, d.ID, {9}}}, []store.Message{d, a}},
			{store.Filter{Topic: "ta"}, []store.Message{d, a}},
			{store.Filter{Topic: "TA"}, nil},
			{store.Filter{Key: d.Key}, []store.Message{d}},
			{store.Filter{Key: "ka "}, nil},
			{store.Filter{State: store.StateDead}, []store.Message{b}},
			{store.Filter{State: store.StatePending, Topic: "ta", Key: "ka"}, []store.Message{a}},
			{store.Filter{CreatedFrom: created[a.ID], CreatedBefore: created[d.ID].Add(hour)},
				[]store.Message{d, b, a}},
			{store.Filter{CreatedFrom: created[d.ID].Add(hour)}, nil},
			{store.Filter{CreatedBefore: created[a.ID]}, nil},
			{store.Filter{BeforeSeq: all[0].Seq}, []store.Message{b, a}},
		} {
			var got, want []store.ID
			for _, r := range c.messages(x.which, 10) {
				got = append(got, r.ID)
			}
			for _, m := range x.want {
				want = append(want, m.ID)
			}
			if !slices.Equal(got, want) {
				c.Errorf("%+v: %x, want %x", x.which, got, want)
			}
		}
		if page := c.messages(store.Filter{}, 2); len(page) != 2 || page[1].ID != b.ID {
			c.Errorf("%+v", page)
		}
		c.call("Message", func(ctx context.Context) error {
			_, _, ok, err := c.Message(ctx, store.ID{9})
			if ok {
				c.Error("Message returned a message that was never appended")
			}
			return err
		})
	}},
	{"requeue/a dead message is due again, with a new budget and its history", func(c *check) {
		list := c.keyed("a", "a", "b")
		for range 2 {
			r := result(c.due(request()).Messages[0], store.OutcomeTransient)
			r.RetryIn = 0
			c.mark(r)
		}
		c.ends("topicb", store.OutcomeOK)
		first := c.due(request()).Messages[0]
		c.mark(result(first, store.OutcomeExhausted))
		c.isDue(request(), "topica")
		if n, tooOld := c.requeue(store.Filter{}, 0, false); n != 1 || tooOld != 0 {
			c.Fatalf("%d requeued, %d too old", n, tooOld)
		}
		due := c.isDue(request(), "topica", "topica").Messages[0]
		if due.ID != list[0].ID || due.Attempts != 3 || due.Budget != 3 {
			c.Errorf("%+v", due)
		}
		r, attempts := c.record(due.ID)
		if r.State != store.StatePending || !r.FinishedAt.IsZero() || len(attempts) != 3 {
			c.Errorf("%+v, attempts %+v", r, attempts)
		}
		c.mark(result(due, store.OutcomePermanent))
		if _, attempts := c.record(due.ID); len(attempts) != 4 || attempts[3].Number != 4 ||
			attempts[3].Outcome != store.OutcomePermanent {
			c.Errorf("%+v", attempts)
		}
	}},
	{"requeue/in batches, in the order of their rows, each message once", func(c *check) {
		list := c.dead("a", "b", "c", "d", "e")
		r := store.RequeueRequest{Limit: 2}
		counts := []int{}
		for {
			done, err := c.Requeue(c.ctx, store.Filter{}, r)
			if err != nil {
				c.Fatal(err)
			}
			counts = append(counts, done.N)
			if r.After = done.After; r.After == 0 {
				break
			}
			if len(counts) == 1 { // the message is dead again and must not be processed again
				c.isDue(request(), "topica", "topicb")
				c.ends("topica", store.OutcomePermanent)
			}
		}
		if !slices.Equal(counts, []int{2, 2, 1}) {
			c.Errorf("%v messages were requeued, want all five, two at a time", counts)
		}
		if r, _ := c.record(list[0].ID); r.State != store.StateDead {
			c.Errorf("%+v", r)
		}
	}},
	{"requeue/messages appended later get half of each answer, and keys are in order", func(c *check) {
		const many, limit = 150, 32
		var list []store.Message
		for i := range many {
			list = append(list, c.message("topic", []string{"", "hot", fmt.Sprint("key", i)}[i%3]))
		}
		c.append(list...)
		for pending := true; pending; {
			var results []store.Result
			for _, m := range c.due(request()).Messages {
				results = append(results, result(m, store.OutcomePermanent))
			}
			c.mark(results...)
			pending = len(results) > 0
		}
		if n, _ := c.requeue(store.Filter{State: store.StateDead}, 0, true); n != many {
			c.Fatalf("%d requeued, want %d", n, many)
		}
		for i := range 20 {
			c.append(c.message("live", fmt.Sprint("live", i)), c.message("live", "key2"), c.message("live", ""))
		}
		last, requeued := map[string]int64{}, 0
		for round, left := 0, many; left > 0; round++ {
			r := request()
			r.Limit = limit
			due := c.due(r).Messages
			live := 0
			var results []store.Result
			for _, m := range due {
				results = append(results, result(m, store.OutcomeOK))
				if m.Topic == "live" {
					live++
				}
				if m.Topic == "topic" {
					requeued++
					left--
				}
				if m.Key != "" && m.Seq <= last[m.Key] {
					c.Errorf("key %q: %d after %d", m.Key, m.Seq, last[m.Key])
				}
				last[m.Key] = m.Seq
				if m.Topic == "live" && m.Key == "key2" && last["key2 of those requeued"] == 0 {
					c.Error("a message has overtaken an earlier message of its key")
				}
				if m.Topic == "topic" && m.Key == "key2" {
					last["key2 of those requeued"] = 1
				}
			}
			if round < 2 && live != limit/2 {
				c.Errorf("round %d: %d of %d messages were never requeued, want half", round, live, len(due))
			}
			if len(due) == 0 || round > many {
				c.Fatalf("round %d: %d messages, %d requeued messages are left", round, len(due), left)
			}
			c.mark(results...)
		}
	}},
	{"requeue/messages that are too old need force, and only matching messages change", func(c *check) {
		list := c.dead("a", "b", "c")
		c.keyed("d")
		which := store.Filter{IDs: []store.ID{list[0].ID, list[1].ID}}
		c.until("the messages are old", func() bool {
			n, tooOld := c.requeue(which, time.Microsecond, false)
			return n == 0 && tooOld == 2
		})
		if n, tooOld := c.requeue(store.Filter{State: store.StatePending}, 0, true); n != 0 || tooOld != 0 {
			c.Errorf("%d, %d", n, tooOld)
		}
		if n, tooOld := c.requeue(store.Filter{Key: "a"}, time.Hour, false); n != 1 || tooOld != 0 {
			c.Errorf("%d, %d", n, tooOld)
		}
		if n, tooOld := c.requeue(which, time.Microsecond, true); n != 1 || tooOld != 0 {
			c.Errorf("%d, %d", n, tooOld)
		}
		c.isDue(request(), "topica", "topicb", "topicd")
	}},
	{"delete/only dead messages, with their attempts", func(c *check) {
		list := c.dead("a", "b", "c")
		c.keyed("a")
		if n := c.delete(store.Filter{IDs: []store.ID{list[0].ID}}); n != 1 {
			c.Errorf("%d deleted", n)
		}
		if n := c.delete(store.Filter{Key: "a"}); n != 0 {
			c.Errorf("%d deleted, but none was dead", n)
		}
		if n := c.delete(store.Filter{}); n != 2 {
			c.Errorf("%d deleted", n)
		}
		if all := c.messages(store.Filter{}, 10); len(all) != 1 || all[0].State != store.StatePending {
			c.Errorf("%+v", all)
		}
		c.append(list[0]) // its ID is free again, and the message has no attempts
		if _, attempts := c.record(list[0].ID); len(attempts) != 0 {
			c.Errorf("%+v", attempts)
		}
	}},
	{"sweep/messages that ended long ago, by the retention of their state, at most limit", func(c *check) {
		c.dead("a", "b")
		c.keyed("c", "d", "e", "f", "waits")
		for _, key := range []string{"c", "d", "e"} {
			c.ends("topic"+key, store.OutcomeOK)
		}
		c.ends("topicf", store.OutcomeTransient)
		c.within(func(ctx context.Context, tx store.Tx) {
			for _, consumer := range []string{"x", "y"} {
				if _, err := c.Once(ctx, tx, consumer, store.ID{1}); err != nil {
					c.Fatal(err)
				}
			}
		})
		sweep := func(r store.Retention, limit int) (n int) {
			c.Helper()
			c.call("Sweep", func(ctx context.Context) (err error) { n, err = c.Sweep(ctx, r, limit); return err })
			return n
		}
		hour, soon := time.Hour, time.Microsecond
		if n := sweep(store.Retention{}, 10) + sweep(store.Retention{Dispatched: hour, Dead: hour, Inbox: hour}, 10) +
			sweep(store.Retention{Dispatched: soon, Dead: soon, Inbox: soon}, 0); n != 0 {
			c.Errorf("%d deleted too early", n)
		}
		swept := func(what string, r store.Retention, limit, want int) {
			c.Helper()
			got := 0
			c.until(what, func() bool {
				n := sweep(r, limit)
				if n > limit {
					c.Fatalf("%d deleted, want at most %d", n, limit)
				}
				got += n
				return got >= want
			})
			if n := sweep(r, 10); got+n != want {
				c.Errorf("%s: %d deleted, want %d", what, got+n, want)
			}
		}
		swept("dispatched messages are swept", store.Retention{Dispatched: soon}, 2, 3)
		swept("dead messages are swept", store.Retention{Dead: soon, Dispatched: hour}, 1, 2)
		swept("records of receivers are swept", store.Retention{Inbox: soon}, 1, 2)
		if all := c.messages(store.Filter{}, 10); len(all) != 2 {
			c.Errorf("%+v", all)
		}
	}},
	{"stats/pending, due and dead messages, and messages without a sink", func(c *check) {
		stats := func(stop bool, topics ...string) (s store.Stats) {
			c.Helper()
			c.call("Stats", func(ctx context.Context) (err error) { s, err = c.Stats(ctx, topics, stop); return err })
			return s
		}
		if s := stats(false); s.Pending+s.Dead != 0 || s.OldestDue+s.OldestPending != 0 || len(s.Unknown) != 0 {
			c.Errorf("of empty tables: %+v", s)
		}
		c.dead("a")
		c.ends(string(c.keyed("ok")[0].Payload), store.OutcomeOK)
		c.append(c.message("strange", "s"), c.message("strange", ""), c.message("odd'", ""), c.message("topic", "s"))
		c.append(c.message("topic", "a"))
		c.ends("topica", store.OutcomeTransient)
		s := stats(false, "topic")
		if s.Pending != 5 || s.Dead != 1 || len(s.Unknown) != 2 || s.Unknown["strange"] != 2 || s.Unknown["odd'"] != 1 {
			c.Errorf("%+v", s)
		}
		if s.OldestDue != 0 { // one message waits for a message without a sink, and one for its next attempt
			c.Errorf("nothing is due: %+v", s)
		}
		if s = stats(false); len(s.Unknown) != 0 {
			c.Errorf("every topic has a sink: %+v", s)
		}
		c.until("a message has waited", func() bool {
			s = stats(false)
			return s.OldestDue > 0 && s.OldestPending > 0
		})
		c.keyed("a") // comes after a message in back-off and after a dead message
		if s = stats(true, "nothing"); s.OldestDue != 0 || s.OldestPending == 0 || s.Unknown["topic"] != 3 {
			c.Errorf("no topic has a sink: %+v", s)
		}
	}},
	{"stats/a message is pending since it was appended or requeued", func(c *check) {
		age := func() (d time.Duration) {
			c.call("Stats", func(ctx context.Context) error {
				s, err := c.Stats(ctx, nil, false)
				d = s.OldestPending
				return err
			})
			return d
		}
		old := c.dead("a")[0]
		created := c.messages(store.Filter{IDs: []store.ID{old.ID}}, 1)[0].CreatedAt
		c.until("half a second has passed", func() bool {
			c.dead("clock")
			return c.messages(store.Filter{}, 1)[0].CreatedAt.Sub(created) > time.Second/2
		})
		at := time.Now()
		c.requeue(store.Filter{IDs: []store.ID{old.ID}}, 0, true)
		if d := age(); d >= time.Second/2+time.Since(at) {
			c.Errorf("it has been pending for %v, want the time since it was requeued", d)
		}
		c.keyed("later")
		c.until("another message is older", func() bool { return age() > 10*time.Millisecond })
	}},
	{"stats/a message behind a dead one is not due, if the dead one stops its key", func(c *check) {
		c.dead("a")
		c.keyed("a")
		due := func(stop bool) (d time.Duration) {
			c.call("Stats", func(ctx context.Context) error {
				s, err := c.Stats(ctx, nil, stop)
				d = s.OldestDue
				return err
			})
			return d
		}
		c.until("the message has waited", func() bool { return due(false) > 0 })
		if d := due(true); d != 0 {
			c.Errorf("it could have been delivered for %v", d)
		}
	}},
}
