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
	{"mark/each outcome makes the state, and a row of history", func(c *check) {
		states := map[store.Outcome]store.State{store.OutcomeOK: store.StateDispatched,
			store.OutcomePermanent: store.StateDead, store.OutcomePoison: store.StateDead,
			store.OutcomeTransient: store.StatePending}
		for outcome, state := range states {
			m := c.keyed(string(outcome))[0]
			c.ends(string(m.Payload), outcome)
			r, attempts := c.record(m.ID)
			if r.State != state || r.Attempts != 1 || r.FinishedAt.IsZero() != (state == store.StatePending) {
				c.Errorf("%s: %+v", outcome, r)
			}
			if wait := r.NextAttemptAt.Sub(r.CreatedAt); (wait > time.Minute) != (outcome == store.OutcomeTransient) {
				c.Errorf("%s: next attempt %v after it was appended", outcome, wait)
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
	{"mark/a result counts once, says so when it is repeated, and another's for the same attempt does not",
		func(c *check) {
			list := c.keyed("a", "b")
			a, b := c.pending("topica"), c.pending("topicb")
			for range 3 {
				counted := c.mark(result(a, store.OutcomeTransient), result(b, store.OutcomeOK))
				if !slices.Equal(counted, []int64{a.Seq, b.Seq}) {
					c.Fatalf("%v counted", counted)
				}
			}
			other := func(node string, r store.Result) {
				c.Helper()
				c.call("Mark", func(ctx context.Context) error {
					counted, err := c.Mark(ctx, node, []store.Result{r})
					if len(counted) != 0 {
						c.Errorf("%+v of %s counted", r, node)
					}
					return err
				})
			}
			other("other", result(a, store.OutcomeTransient))
			other("other", result(a, store.OutcomeOK))
			other(node, result(a, store.OutcomeOK))
			other(node, result(b, store.OutcomePoison))
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
	{"mark/of two relays that mark at once, in any order, each attempt counts for one", func(c *check) {
		var keys []string
		for i := range 20 {
			keys = append(keys, fmt.Sprint(i))
		}
		c.keyed(keys...)
		for round := range 3 {
			counts := make([][]int64, 2)
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
					var err error
					if counts[i], err = c.Mark(ctx, fmt.Sprint("relay", i), list); err != nil {
						c.Errorf("Mark: %v", err)
					}
				})
			}
			both.Wait()
			all := slices.Sorted(slices.Values(append(counts[0], counts[1]...)))
			if len(all) != len(keys) || len(slices.Compact(all)) != len(keys) {
				c.Errorf("round %d: %d attempts count, of %d messages", round, len(all), len(keys))
			}
		}
		for _, r := range c.messages(store.Filter{}, 100) {
			if _, attempts := c.record(r.ID); r.Attempts != 3 || len(attempts) != 3 {
				c.Errorf("%+v: %+v", r, attempts)
			}
		}
	}},
}
