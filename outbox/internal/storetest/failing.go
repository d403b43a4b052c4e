package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// fails marks the due message with the payload as failed once more.
func (c *check) fails(payload string, took, mostLate time.Duration) store.Pending {
	c.Helper()
	m := c.pending(payload)
	r := result(m, store.OutcomeTransient)
	r.RetryIn, r.Took, r.MostLate = 0, took, mostLate
	if counted := c.mark(r); !slices.Equal(counted, []store.ID{m.ID}) {
		c.Fatalf("%x counted", counted)
	}
	return m
}

var failing = []promise{
	{"failing/FailingSince is kept until the message is requeued", func(c *check) {
		id := c.keyed("a")[0].ID
		isOK := c.keyed("ok")[0].ID
		c.ends("topicok", store.OutcomeOK)
		if r, _ := c.record(isOK); !r.FailingSince.IsZero() {
			c.Errorf("%+v has not failed", r)
		}
		for range 2 {
			if m := c.fails("topica", time.Hour, time.Hour); m.Failing != 0 {
				c.Errorf("%+v has not failed", m)
			}
			first, attempts := c.record(id)
			last := attempts[len(attempts)-1]
			if off := last.FinishedAt.Add(-time.Hour).Sub(first.FailingSince).Abs(); off > time.Minute {
				c.Errorf("it has been failing since %v, want an hour before %v", first.FailingSince, last.FinishedAt)
			}
			want := first.NextAttemptAt.Sub(first.FailingSince)
			if m := c.fails("topica", 0, time.Hour); m.Failing != want || want < time.Hour {
				c.Errorf("it has failed for %v, want %v", m.Failing, want)
			}
			c.ends("topica", store.OutcomeExhausted)
			r, _ := c.record(id)
			if listed := c.messages(store.Filter{Key: "a"}, 1)[0]; !r.FailingSince.Equal(first.FailingSince) ||
				!r.FailingSince.Equal(listed.FailingSince) {
				c.Errorf("it had been failing since %v, and then since %v", first.FailingSince, r.FailingSince)
			}
			c.requeue(store.Filter{Key: "a"}, 0, true)
			if r, _ := c.record(id); !r.FailingSince.IsZero() {
				c.Errorf("%+v has not failed since it was requeued", r)
			}
		}
		c.ends("topica", store.OutcomePermanent)
		if r, _ := c.record(id); r.FailingSince.IsZero() {
			c.Errorf("%+v has failed", r)
		}
	}},
	{"failing/time without attempts does not count as failing", func(c *check) {
		const passes = 50 * time.Millisecond
		ids := map[string]store.ID{}
		for _, m := range c.keyed("late", "in time") {
			ids[m.Key] = m.ID
		}
		c.fails("topiclate", 0, time.Hour)
		c.fails("topicin time", 0, time.Hour)
		first, _ := c.record(ids["in time"])
		c.passes(passes)
		c.fails("topiclate", 0, time.Millisecond)
		c.fails("topicin time", 0, time.Hour)
		late, _ := c.record(ids["late"])
		if moved := late.FailingSince.Sub(first.FailingSince); moved < passes {
			c.Errorf("the attempt was %v late, but FailingSince has moved by %v", passes, moved)
		}
		if r, _ := c.record(ids["in time"]); !r.FailingSince.Equal(first.FailingSince) {
			c.Errorf("it had been failing since %v, and then since %v", first.FailingSince, r.FailingSince)
		}
		if l, i := c.pending("topiclate"), c.pending("topicin time"); l.Failing >= i.Failing || i.Failing < passes {
			c.Errorf("one message has been failing for %v, and one that was not tried for a while for %v",
				i.Failing, l.Failing)
		}
	}},
	{"failing/the first and the latest attempts of a message that keeps failing are kept", func(c *check) {
		const kept = store.FirstAttempts + store.LastAttempts
		id := c.keyed("a", "other")[0].ID
		c.fails("topicother", 0, time.Hour)
		r := result(c.pending("topica"), store.OutcomeTransient)
		for range kept + 1 {
			c.mark(r)
			r.Attempts++
		}
		for range 2 { // repeat, as if the answer was lost
			if counted := c.mark(r); len(counted) != 1 {
				c.Fatalf("%x counted", counted)
			}
		}
		m, attempts := c.record(id)
		for i, a := range attempts {
			want := i + 1
			if i >= store.FirstAttempts {
				want += 2
			}
			if len(attempts) != kept || a.Number != want {
				c.Fatalf("attempt %d of %d is number %d, want %d of %d", i, len(attempts), a.Number, want, kept)
			}
		}
		if m.Attempts != kept+2 {
			c.Errorf("%d attempts, want %d", m.Attempts, kept+2)
		}
	}},
	{"failing/topics whose messages are retried, longest first, with the last error", func(c *check) {
		topics := func() (list []store.FailingTopic) {
			c.Helper()
			c.call("Failing", func(ctx context.Context) (err error) { list, err = c.Failing(ctx); return err })
			return list
		}
		c.append(c.message("ok", ""), c.message("odd'", "a"), c.message("odd'", "b"), c.message("orders", "c"))
		if list := topics(); len(list) != 0 {
			c.Errorf("nothing has failed: %+v", list)
		}
		c.ends("ok", store.OutcomeOK)
		c.fails("odd'a", 0, time.Hour)
		c.fails("odd'b", time.Minute, time.Hour)
		c.fails("ordersc", time.Hour, time.Hour)
		list := topics()
		if len(list) != 2 || list[0].Topic != "orders" || list[1].Topic != "odd'" || list[0].Messages != 1 ||
			list[1].Messages != 2 || list[0].For < time.Hour || list[1].For < time.Minute || list[1].For > time.Hour ||
			list[0].Error != "the error of ordersc" || list[1].Error != "the error of odd'b" {
			c.Errorf("%+v", list)
		}
		if r := c.messages(store.Filter{Topic: "orders"}, 1)[0]; !r.FailingSince.Equal(list[0].Since) {
			c.Errorf("%+v since %v, want %v", list[0], list[0].Since, r.FailingSince)
		}
		c.ends("ordersc", store.OutcomeExhausted)
		c.ends("odd'b", store.OutcomeOK)
		if list = topics(); len(list) != 1 || list[0].Messages != 1 || list[0].Error != "the error of odd'a" {
			c.Errorf("%+v", list)
		}
	}},
}
