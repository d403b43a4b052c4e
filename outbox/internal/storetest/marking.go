package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

var marking = []promise{
	{"mark/each outcome sets the state and adds a row of history", func(c *check) {
		states := map[store.Outcome]store.State{store.OutcomeOK: store.StateDispatched,
			store.OutcomePermanent: store.StateDead, store.OutcomeExhausted: store.StateDead,
			store.OutcomeTransient: store.StatePending, store.OutcomeUnreadable: store.StateDead}
		for outcome, state := range states {
			m := c.keyed(string(outcome))[0]
			c.ends(string(m.Payload), outcome)
			r, attempts := c.record(m.ID)
			if r.State != state || r.Attempts != 1 || r.FinishedAt.IsZero() != (state == store.StatePending) {
				c.Errorf("%s: %+v", outcome, r)
			}
			if wait := r.NextAttemptAt.Sub(r.CreatedAt); (wait > time.Minute) != (outcome == store.OutcomeTransient) {
				c.Errorf("%s: next attempt %v after the message was appended", outcome, wait)
			}
			want := store.Attempt{Number: 1, Took: time.Millisecond, Relay: node, Outcome: outcome}
			if outcome != store.OutcomeOK {
				want.Error = "the error of " + string(m.Payload)
			}
			if r.LastError != want.Error {
				c.Errorf("%s: last error %q", outcome, r.LastError)
			}
			if len(attempts) != 1 || attempts[0].FinishedAt.IsZero() {
				c.Fatalf("%s: attempts %+v", outcome, attempts)
			}
			if attempts[0].FinishedAt = (time.Time{}); attempts[0] != want {
				c.Errorf("%s: attempt %+v, want %+v", outcome, attempts[0], want)
			}
		}
		c.isDue(request())
	}},
	{"mark/a result counts once, even if repeated, and no other relay's result for the attempt counts",
		func(c *check) {
			list := c.keyed("a", "b")
			a, b := c.pending("topica"), c.pending("topicb")
			for range 3 {
				counted := c.mark(result(a, store.OutcomeTransient), result(b, store.OutcomeOK))
				if !slices.Equal(counted, []store.ID{a.ID, b.ID}) {
					c.Fatalf("%x counted", counted)
				}
			}
			other := func(node string, r store.Result) {
				c.Helper()
				c.call("Mark", func(ctx context.Context) error {
					marked, err := c.Mark(ctx, node, []store.Result{r})
					if len(marked.Counted) != 0 || len(marked.Locked) != 0 {
						c.Errorf("%+v of %s: %+v, want a result that does not count", r, node, marked)
					}
					return err
				})
			}
			other("other", result(a, store.OutcomeTransient))
			other("other", result(a, store.OutcomeOK))
			other(node, result(a, store.OutcomeOK))
			other(node, result(b, store.OutcomeExhausted))
			b.Attempts = 1
			other(node, result(b, store.OutcomeOK))
			other(node, store.Result{Seq: 1 << 40, Outcome: store.OutcomeOK})
			for i, want := range []store.State{store.StatePending, store.StateDispatched} {
				r, attempts := c.record(list[i].ID)
				if r.State != want || r.Attempts != 1 || len(attempts) != 1 {
					c.Errorf("%+v, attempts %+v", r, attempts)
				}
			}
			if counted := c.mark(); len(counted) != 0 {
				c.Error(counted)
			}
		}},
	{"mark/a result belongs to its message, not to another message with the same row number", func(c *check) {
		m := c.keyed("a")[0]
		a := c.pending("topica")
		stranger := result(a, store.OutcomeTransient)
		stranger.ID = c.message("topic", "b").ID
		isPending := func(when string, attempts int) {
			if counted := c.mark(stranger); len(counted) != 0 {
				c.Errorf("%s: the result of a missing message counts", when)
			}
			if r, history := c.record(m.ID); r.State != store.StatePending || r.Attempts != attempts ||
				len(history) != attempts {
				c.Errorf("%s: %+v, %d rows of history, want %d attempts", when, r, len(history), attempts)
			}
		}
		isPending("before an attempt", 0)
		c.ends("topica", store.OutcomeTransient)
		isPending("the same attempt has the same outcome", 1)
	}},
	{"note begun/it is read with the message until a result, or a requeue, and written of no other", func(c *check) {
		m := c.keyed("a", "b")[0]
		note := func(list ...store.Begun) {
			c.Helper()
			c.call("NoteBegun", func(ctx context.Context) error { return c.NoteBegun(ctx, list) })
		}
		wants := func(when string, crashes int) {
			c.Helper()
			if a, b := c.pending("topica"), c.pending("topicb"); a.Crashes != crashes || b.Crashes != 0 {
				c.Errorf("%s: %d relays have died with the first message, and %d with the second; want %d and 0",
					when, a.Crashes, b.Crashes, crashes)
			}
		}
		seq := c.pending("topica").Seq
		begun := store.Begun{ID: m.ID, Seq: seq, Crashes: 3}
		wants("at first", 0)
		note()
		note(begun, store.Begun{ID: c.message("topic", "b").ID, Seq: c.pending("topicb").Seq, Crashes: 9})
		note(begun) // repeat, as if the answer was lost
		wants("it was written", 3)
		begun.Attempts, begun.Crashes = 1, 9
		note(begun)
		wants("an attempt is not the next one", 3)
		note(store.Begun{ID: m.ID, Seq: seq, Crashes: 2})
		wants("it was given back", 2)
		r := result(c.pending("topica"), store.OutcomeTransient)
		r.RetryIn = 0
		c.mark(r)
		wants("there is a result", 0)
		begun.Crashes = 5
		note(begun)
		wants("it was written again", 5)
		dead := result(c.pending("topica"), store.OutcomeExhausted)
		c.mark(dead)
		begun.Attempts = 2
		note(begun) // the message is not pending
		if n, _ := c.requeue(store.Filter{State: store.StateDead}, 0, true); n != 1 {
			c.Fatalf("%d requeued", n)
		}
		wants("it was requeued", 0)
		c.isDue(request(), "topica", "topicb")
	}},
	{"mark/if two relays mark at once, each attempt counts for one of them", func(c *check) {
		var keys []string
		for i := range 20 {
			keys = append(keys, fmt.Sprint(i))
		}
		c.keyed(keys...)
		for round := range 3 {
			counts := make([][]store.ID, 2)
			var results []store.Result
			for _, m := range c.due(request()).Messages {
				r := result(m, store.OutcomeTransient)
				r.RetryIn = 0
				results = append(results, r)
			}
			if len(results) != len(keys) {
				c.Fatalf("%d messages are due", len(results))
			}
			backwards := slices.Clone(results)
			slices.Reverse(backwards)
			var both sync.WaitGroup
			for i, list := range [][]store.Result{results, backwards} {
				both.Go(func() {
					ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
					defer cancel()
					for len(list) > 0 { // the other relay may have locked some rows at that time
						marked, err := c.Mark(ctx, fmt.Sprint("relay", i), list)
						if err != nil {
							c.Errorf("Mark: %v", err)
							return
						}
						counts[i] = append(counts[i], marked.Counted...)
						list = slices.DeleteFunc(list, func(r store.Result) bool {
							return !slices.Contains(marked.Locked, r.ID)
						})
					}
				})
			}
			both.Wait()
			all := sorted(append(counts[0], counts[1]...))
			if len(all) != len(keys) || len(slices.Compact(all)) != len(keys) {
				c.Errorf("round %d: %d attempts of %d messages count", round, len(all), len(keys))
			}
		}
		for _, r := range c.messages(store.Filter{}, 100) {
			if _, attempts := c.record(r.ID); r.Attempts != 3 || len(attempts) != 3 {
				c.Errorf("%+v: %+v", r, attempts)
			}
		}
	}},
}
