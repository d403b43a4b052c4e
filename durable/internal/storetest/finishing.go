package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

var renewing = []promise{
	{"renewing/extends the leases of runs that the worker still owns", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 6)
		runs := c.claims(6, request(6, orders))
		c.finishes(succeeded(runs[0]), failed(runs[1]))
		again := c.claims(1, request(1, orders))[0] // another attempt of runs[1]
		c.cancel(runs[2].ID, store.Cause{By: "Ann", Note: "wrong"})
		was := c.inState(runs[3].ID, store.StateRunning, 0)
		c.pass(was.LeaseUntil.Add(-lease))
		from := c.now()
		var keys []store.RunKey
		for _, run := range append(runs[:4:4], again) {
			keys = append(keys, run.RunKey)
		}
		keys = append(keys, store.RunKey{ID: runs[5].ID, Attempt: 2}, store.RunKey{ID: 1 << 50, Attempt: 1})
		renewed := c.renew(worker, keys...)
		slices.SortFunc(renewed, func(a, b store.Renewed) int { return int(a.ID - b.ID) })
		want := []store.Renewed{{RunKey: again.RunKey},
			{RunKey: runs[2].RunKey, Canceled: true, By: store.Cause{By: "Ann", Note: "wrong"}},
			{RunKey: runs[3].RunKey}}
		if !slices.Equal(renewed, want) {
			c.Errorf("%+v, want %+v", renewed, want)
		}
		c.near("LeaseUntil", c.inState(runs[3].ID, store.StateRunning, 0).LeaseUntil, from.Add(lease))
		for _, other := range []store.Run{runs[4], runs[5]} {
			if run := c.inState(other.ID, store.StateRunning, 0); !run.LeaseUntil.Equal(other.LeaseUntil) {
				c.Errorf("Renew changed the lease of a wrong run or attempt from %v to %v",
					other.LeaseUntil, run.LeaseUntil)
			}
		}
	}},
	{"renewing/does not extend the leases of other workers", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 1)
		run := c.claimOne(orders)
		if renewed := c.renew("another", run.RunKey); len(renewed) != 0 {
			c.Errorf("%+v", renewed)
		}
		if renewed := c.renew(worker, run.RunKey); len(renewed) != 1 {
			c.Errorf("%+v", renewed)
		}
	}},
	{"renewing/an expired lease that was not reclaimed", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 1)
		r := request(1, orders)
		r.TTL = short
		run := c.claims(1, r)[0]
		c.pass(run.LeaseUntil)
		if renewed := c.renew(worker, run.RunKey); len(renewed) != 1 {
			c.Errorf("%+v", renewed)
		}
		if reclaimed := c.reclaim(10); len(reclaimed) != 0 {
			c.Errorf("%+v", reclaimed)
		}
	}},
	{"renewing/does not extend a reclaimed lease", func(c *check) {
		run := c.expired(orders)
		c.reclaims(1)
		if renewed := c.renew(worker, run.RunKey); len(renewed) != 0 {
			c.Errorf("%+v", renewed)
		}
		again := c.claimOne(orders)
		renewed := c.renew(worker, run.RunKey, again.RunKey)
		if len(renewed) != 1 || renewed[0].RunKey != again.RunKey {
			c.Errorf("%+v", renewed)
		}
	}},
}

// expired queues a run, and claims it with a lease that expires soon.
func (c *check) expired(handler store.Handler) store.Run {
	c.Helper()
	c.ready(handler)
	c.insert(store.NewRun{Handler: handler.Name})
	r := request(1, handler)
	r.TTL = short
	return c.claims(1, r)[0]
}

var finishing = []promise{
	{"finishing/writes the result of a run and a row for the attempt", func(c *check) {
		c.ready(orders)
		for _, result := range []store.Result{
			{Outcome: store.OutcomeOK, State: store.StateSucceeded},
			{Outcome: store.OutcomeFailed, State: store.StateDead, Error: "no paper"},
			{Outcome: store.OutcomePanicked, State: store.StateQueued, Error: "index out of range", RetryIn: time.Hour},
			{Outcome: store.OutcomeTimedOut, State: store.StateDead, Error: "too slow"},
			{Outcome: store.OutcomeCanceled, State: store.StateCanceled, Error: "canceled by Ann"},
		} {
			c.inserts("orders", 1)
			run := c.claimOne(orders)
			result.RunKey, result.Took = run.RunKey, 10*time.Microsecond
			c.pass(run.ClaimedAt.Add(2 * time.Millisecond))
			from := c.now()
			if counted := c.finish(result); len(counted) != 1 || counted[0] != run.RunKey {
				c.Fatalf("%v counts", counted)
			}
			got, attempts := c.run(run.ID)
			if got.State != result.State || got.Attempt != 1 || got.LastError != result.Error || len(attempts) != 1 {
				c.Fatalf("%+v: %+v, %+v", result, got, attempts)
			}
			if result.State == store.StateQueued {
				c.near("RunAt", got.RunAt, from.Add(result.RetryIn))
			}
			if ended := result.State != store.StateQueued; ended != !got.FinishedAt.IsZero() {
				c.Errorf("%+v: FinishedAt is %v", result, got.FinishedAt)
			} else if ended {
				c.near("FinishedAt", got.FinishedAt, from)
			}
			a := attempts[0]
			if a.Attempt != 1 || a.Worker != worker || a.Outcome != result.Outcome || a.Error != result.Error ||
				a.FinishedAt.Sub(a.StartedAt) != result.Took || a.StartedAt.Before(run.ClaimedAt) ||
				a.FinishedAt.After(c.now()) {
				c.Errorf("%+v: %+v of %+v", result, a, run)
			}
		}
	}},
	{"finishing/a retried run keeps its history", func(c *check) {
		c.ready(orders)
		id := c.insert(store.NewRun{Handler: "orders", Payload: []byte("p"), Key: "k"})
		for i := range 3 {
			run := c.claimOne(orders)
			if run.ID != id || run.Attempt != i+1 || run.MaxAttempts != 3 || string(run.Payload) != "p" ||
				run.Key != "k" {
				c.Fatalf("%+v", run)
			}
			if i < 2 {
				c.finishes(failed(run))
			} else {
				c.finishes(succeeded(run))
			}
		}
		_, attempts := c.run(id)
		for i, want := range []store.Outcome{store.OutcomeFailed, store.OutcomeFailed, store.OutcomeOK} {
			if len(attempts) != 3 || attempts[i].Attempt != i+1 || attempts[i].Outcome != want {
				c.Fatalf("%+v", attempts)
			}
		}
		if run := c.inState(id, store.StateSucceeded, 3); !run.LeaseUntil.IsZero() {
			c.Errorf("%+v has a lease", run)
		}
	}},
	{"finishing/FailingSince is kept until the run is requeued", func(c *check) {
		endless := store.Handler{Name: "orders"}
		c.ready(endless)
		id := c.insert(store.NewRun{Handler: "orders"})
		c.finishes(givenBack(c.claimOne(endless)))
		first := c.claimOne(endless)
		if !first.FailingSince.IsZero() {
			c.Errorf("%+v has not failed", first)
		}
		c.finishes(failed(first))
		for range 2 {
			run := c.claimOne(endless)
			if !run.FailingSince.Equal(first.ClaimedAt) || run.MaxAttempts != 0 {
				c.Errorf("%+v, want FailingSince %v", run, first.ClaimedAt)
			}
			c.finishes(dead(run))
			if run := c.inState(id, store.StateDead, run.Attempt); !run.FailingSince.Equal(first.ClaimedAt) {
				c.Errorf("%+v, want FailingSince %v", run, first.ClaimedAt)
			}
			c.requeue(store.Filter{}, store.Cause{})
			if first = c.claimOne(endless); !first.FailingSince.IsZero() {
				c.Errorf("%+v has not failed since it was requeued", first)
			}
			c.finishes(failed(first))
		}
	}},
	{"finishing/the first and the latest attempts of a run that keeps failing are kept", func(c *check) {
		endless := store.Handler{Name: "orders"}
		c.ready(endless)
		id := c.insert(store.NewRun{Handler: "orders"})
		const kept = store.FirstAttempts + store.LastAttempts
		for range kept + 1 {
			c.finishes(failed(c.claimOne(endless)))
		}
		r := request(1, endless)
		r.TTL = short
		c.claims(1, r)
		c.reclaims(1)
		_, attempts := c.run(id)
		for i, a := range attempts {
			want := i + 1
			if i >= store.FirstAttempts {
				want += 2
			}
			if len(attempts) != kept || a.Attempt != want {
				c.Fatalf("%d attempts, the %dth is %d, want %d of %d", len(attempts), i, a.Attempt, want, kept)
			}
		}
	}},
	{"finishing/a run that was given back loses no attempt", func(c *check) {
		last := store.Handler{Name: "orders", MaxAttempts: 1}
		c.ready(last)
		id := c.insert(store.NewRun{Handler: "orders"})
		for i := range 3 {
			run := c.claimOne(last)
			if run.Attempt != i+1 || run.MaxAttempts != run.Attempt || run.Uncounted != i {
				c.Fatalf("%+v, want attempt %[2]d, the last", run, i+1)
			}
			c.finishes(givenBack(run))
		}
		r := request(1, last)
		r.TTL = short
		c.claims(1, r)
		if reclaimed := c.reclaims(1); !reclaimed[0].Dead {
			c.Errorf("%+v, want it dead", reclaimed)
		}
		c.inState(id, store.StateDead, 4)
	}},
	{"finishing/only the running attempt counts", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 2)
		runs := c.claims(2, request(2, orders))
		wrong := succeeded(runs[0])
		wrong.Attempt++
		none := succeeded(store.Run{RunKey: store.RunKey{ID: 1 << 50, Attempt: 1}})
		if counted := c.finish(wrong, succeeded(runs[1]), none); len(counted) != 1 || counted[0] != runs[1].RunKey {
			c.Errorf("%v counts", counted)
		}
		c.inState(runs[0].ID, store.StateRunning, 0)
		c.inState(runs[1].ID, store.StateSucceeded, 1)
	}},
	{"finishing/with two attempts of a run in one call, the running one counts", func(c *check) {
		zombie := c.expired(orders)
		c.reclaims(1)
		again := c.claimOne(orders)
		if counted := c.finish(dead(zombie), succeeded(again)); len(counted) != 1 || counted[0] != again.RunKey {
			c.Errorf("%v counts", counted)
		}
		c.inState(again.ID, store.StateSucceeded, 2)
		zombie = c.expired(orders)
		c.reclaims(1)
		again = c.claimOne(orders)
		renewed := c.renew(worker, again.RunKey, zombie.RunKey)
		if len(renewed) != 1 || renewed[0].RunKey != again.RunKey {
			c.Errorf("%+v", renewed)
		}
		if counted := c.finish(succeeded(again), dead(zombie)); len(counted) != 1 || counted[0] != again.RunKey {
			c.Errorf("%v counts", counted)
		}
		c.inState(again.ID, store.StateSucceeded, 2)
	}},
	{"finishing/the result of a reclaimed run changes nothing", func(c *check) {
		zombie := c.expired(orders)
		c.reclaims(1)
		if counted := c.finish(succeeded(zombie)); len(counted) != 0 {
			c.Errorf("%v counts for a queued run", counted)
		}
		was := c.inState(zombie.ID, store.StateQueued, 1)
		again := c.claimOne(orders)
		for _, result := range []store.Result{succeeded(zombie), failed(zombie), dead(zombie), givenBack(zombie)} {
			if counted := c.finish(result); len(counted) != 0 {
				c.Errorf("%v counts for a run of another worker", counted)
			}
		}
		c.inState(zombie.ID, store.StateRunning, 1)
		c.finishes(succeeded(again))
		if counted := c.finish(dead(zombie)); len(counted) != 0 {
			c.Errorf("%v counts for a run that has succeeded", counted)
		}
		if run := c.inState(zombie.ID, store.StateSucceeded, 2); run.LastError != was.LastError {
			c.Errorf("%+v", run)
		}
	}},
	{"finishing/an expired lease that was not reclaimed", func(c *check) {
		run := c.expired(orders)
		c.pass(run.LeaseUntil)
		c.finishes(succeeded(run))
		if reclaimed := c.reclaim(10); len(reclaimed) != 0 {
			c.Errorf("%+v", reclaimed)
		}
	}},
	{"finishing/a call repeated after a lost answer counts once, and says so", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 4)
		runs := c.claims(4, request(4, orders))
		results := []store.Result{succeeded(runs[0]), failed(runs[1]), dead(runs[2]), givenBack(runs[3])}
		c.finishes(results[:3]...)
		was, _ := c.run(runs[1].ID)
		c.finishes(results...) // one of them is new
		c.finishes(results...)
		again := c.claims(2, request(4, orders))
		c.finishes(results...)
		for i, want := range []store.State{store.StateSucceeded, store.StateRunning, store.StateDead,
			store.StateRunning} {
			c.inState(runs[i].ID, want, 1)
		}
		for _, run := range again {
			if run.Attempt != 2 || run.ID == runs[3].ID && run.MaxAttempts != 4 ||
				run.ID == was.ID && run.MaxAttempts != 3 {
				c.Errorf("%+v", run)
			}
		}
		if run := c.inState(was.ID, store.StateRunning, 1); !run.RunAt.Equal(was.RunAt) {
			c.Errorf("RunAt changed from %v to %v", was.RunAt, run.RunAt)
		}
		if counted := c.finish(dead(runs[0]), succeeded(runs[2])); len(counted) != 0 {
			c.Errorf("%v counts, although the earlier result differs", counted)
		}
	}},
	{"finishing/a result belongs to one claim, even if a restored database assigns its numbers again", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 2)
		runs := c.claims(2, request(2, orders))
		c.inserts("orders", 1)
		next := c.claimOne(orders)
		if next.Claim == runs[0].Claim || next.Nonce == runs[0].Nonce || runs[0].Claim == 0 {
			c.Errorf("two claims of two runs: %+v, %+v", next, runs[0])
		}
		other := runs[0] // a claim by another database, or by this one before a restore
		other.Claim++
		if renewed := c.renew(worker, other.RunKey); len(renewed) != 0 {
			c.Errorf("renewed by another claim: %+v", renewed)
		}
		if counted := c.finish(succeeded(other)); len(counted) != 0 {
			c.Errorf("finished by another claim: %+v", counted)
		}
		c.call("Finish", func(ctx context.Context) error {
			done, err := c.Finish(ctx, "another", []store.Result{succeeded(runs[0])})
			if len(done.Counted)+len(done.Locked) != 0 {
				c.Errorf("finished by another worker: %+v", done)
			}
			return err
		})
		c.inState(runs[0].ID, store.StateRunning, 0)
		c.finishes(succeeded(runs[0]))
		if counted := c.finish(succeeded(other)); len(counted) != 0 {
			c.Errorf("the result of one claim counts for another: %+v", counted)
		}
		c.finishes(succeeded(runs[0])) // the answer may have been lost
	}},
	{"finishing/repeated at once", func(c *check) {
		c.ready(orders)
		for range 3 * c.h.Rounds {
			c.inserts("orders", 10)
			runs := c.claims(10, request(10, orders))
			c.atOnce(4, func(i int, c *check) {
				var results []store.Result
				for _, run := range slices.Concat(runs[i:], runs[:i]) {
					results = append(results, succeeded(run))
				}
				c.finishes(results...)
			})
			for _, run := range runs {
				c.inState(run.ID, store.StateSucceeded, 1)
			}
		}
	}},
	{"finishing/a run whose cancellation was requested is not tried again", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 3)
		runs := c.claims(3, request(3, orders))
		for _, run := range runs {
			c.cancel(run.ID, store.Cause{By: "Ann"})
		}
		c.finishes(failed(runs[0]), givenBack(runs[1]), succeeded(runs[2]))
		for i, want := range []store.State{store.StateCanceled, store.StateCanceled, store.StateSucceeded} {
			if run := c.inState(runs[i].ID, want, 1); run.FinishedAt.IsZero() || run.CanceledBy.By != "Ann" {
				c.Errorf("%+v", run)
			}
		}
		c.claims(0, request(10, orders))
	}},
	{"finishing/with an error of any text", func(c *check) {
		c.ready(orders)
		for _, text := range []string{"a\x00b", "\xff\xfe", "'; DROP TABLE runs; --", strings.Repeat("é", 20_000),
			"\U0001F600"} {
			c.inserts("orders", 1)
			run := c.claimOne(orders)
			result := dead(run)
			result.Error = text
			c.finishes(result)
			if run := c.inState(run.ID, store.StateDead, 1); run.LastError == "" {
				c.Errorf("%.20q is stored as an empty text", text)
			}
		}
	}},
}
