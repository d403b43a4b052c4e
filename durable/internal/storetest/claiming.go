package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

var claiming = []promise{
	{"claiming/a claimed run is running, with one more attempt and a lease", func(c *check) {
		c.ready(orders)
		from := c.now()
		by := store.Cause{By: "Ann", Note: "now"}
		id := c.insert(store.NewRun{Handler: "orders", Payload: []byte("{}"), Key: "k", By: by})
		claimed := c.claim(store.ClaimRequest{Worker: "w", Handlers: []store.Handler{orders}, Limit: 1, TTL: lease})
		if len(claimed.Runs) != 1 {
			c.Fatalf("%+v", claimed)
		}
		c.near("Now", claimed.Now, from)
		run := claimed.Runs[0]
		c.near("ClaimedAt", run.ClaimedAt, from)
		c.near("LeaseUntil", run.LeaseUntil, from.Add(lease))
		if run.ID != id || run.Attempt != 1 || run.Claim == 0 || run.Nonce == "" ||
			run.State != store.StateRunning || run.Worker != "w" ||
			run.Handler != "orders" || run.MaxAttempts != 3 || run.Key != "k" || string(run.Payload) != "{}" ||
			run.PayloadLen != 2 || run.By != by || !run.FinishedAt.IsZero() {
			c.Errorf("%+v", run)
		}
		stored, attempts := c.run(id)
		if !bytes.Equal(stored.Payload, run.Payload) || len(attempts) != 0 {
			c.Errorf("%+v, %+v", stored, attempts)
		}
		stored.Payload, run.Payload = nil, nil
		if !sameRun(stored, run) {
			c.Errorf("the row is %+v, and Claim returned %+v", stored, run)
		}
		c.claims(0, request(10, orders))
	}},
	{"claiming/the most urgent first: by priority, then RunAt, then ID", func(c *check) {
		mails := store.Handler{Name: "mails", MaxAttempts: 1}
		c.ready(orders, mails)
		now := c.now()
		at := func(seconds int) time.Time { return now.Add(time.Duration(seconds-100) * time.Second) }
		var want [7]int64
		for _, run := range []struct {
			place   int
			handler string
			runAt   time.Time
			urgency int
		}{
			{6, "orders", at(1), 1}, {2, "orders", at(5), 0}, {3, "mails", at(5), 0}, {1, "mails", at(9), -1},
			{4, "orders", at(5), 0}, {0, "orders", at(8), -1}, {5, "mails", at(6), 0},
		} {
			want[run.place] = c.insert(store.NewRun{Handler: run.handler, RunAt: run.runAt, Priority: run.urgency})
		}
		var got []int64
		for _, limit := range []int{1, 3, 2, 9} {
			for _, run := range c.claim(request(limit, orders, mails)).Runs {
				got = append(got, run.ID)
			}
		}
		if !slices.Equal(got, want[:]) {
			c.Errorf("%v, want %v", got, want)
		}
	}},
	{"claiming/only due runs, and when the next becomes due", func(c *check) {
		mails := store.Handler{Name: "mails"}
		c.ready(orders, mails)
		from := c.now()
		c.insert(store.NewRun{Handler: "orders", RunIn: time.Hour, Priority: 1})
		c.insert(store.NewRun{Handler: "orders", RunIn: 2 * time.Hour, Priority: -1})
		c.insert(store.NewRun{Handler: "mails", RunIn: 30 * time.Minute})
		c.insert(store.NewRun{Handler: "unknown", RunIn: time.Minute})
		claimed := c.claim(request(10, orders))
		if len(claimed.Runs) != 0 {
			c.Errorf("%+v", claimed.Runs)
		}
		c.near("Next", claimed.Next, from.Add(time.Hour))
		c.near("Next of two", c.claim(request(10, orders, mails)).Next, from.Add(30*time.Minute))
		c.insert(store.NewRun{Handler: "orders", RunAt: from.Add(short)})
		c.pass(from.Add(short))
		c.near("Next beside one that is due", c.claim(request(10, orders)).Next, from.Add(time.Hour))
	}},
	{"claiming/the payloads of one answer are bounded", func(c *check) {
		c.ready(orders)
		payload := make([]byte, 1<<20)
		for range 6 {
			c.insert(store.NewRun{Handler: "orders", Payload: payload})
		}
		for i, want := range []int{store.MaxClaimedBytes >> 20, 6 - store.MaxClaimedBytes>>20, 0} {
			claimed := c.claim(request(16, orders))
			if len(claimed.Runs) != want || claimed.More != (i == 0) {
				c.Fatalf("claim %d has %d runs and More %t, want %d", i, len(claimed.Runs), claimed.More, want)
			}
		}
		c.insert(store.NewRun{Handler: "orders", Payload: make([]byte, store.MaxClaimedBytes+1)})
		if claimed := c.claim(request(16, orders)); len(claimed.Runs) != 1 || claimed.More {
			c.Errorf("a single payload above the maximum: %d, %t", len(claimed.Runs), claimed.More)
		}
	}},
	{"claiming/at most the requested number", func(c *check) {
		c.ready(orders)
		c.inserts("orders", 7)
		for _, want := range []int{5, 2, 0} {
			c.claims(want, request(5, orders))
		}
	}},
	{"claiming/runs of other handlers are not claimed", func(c *check) {
		mails := store.Handler{Name: "mails"}
		c.ready(orders, mails)
		c.inserts("mails", 2)
		c.inserts("nobody's", 2)
		c.claims(0, request(10, orders))
		c.claims(2, request(10, orders, mails))
	}},
	{"claiming/a run has its own MaxAttempts, or the handler's at the time of the claim", func(c *check) {
		c.ready(orders)
		own := c.insert(store.NewRun{Handler: "orders", MaxAttempts: 9})
		c.inserts("orders", 1)
		for _, most := range []int{3, 5} {
			for _, run := range c.claims(2, request(10, store.Handler{Name: "orders", MaxAttempts: most})) {
				want := most
				if run.ID == own {
					want = 9
				}
				if run.MaxAttempts != want {
					c.Errorf("%+v, want %d", run, want)
				}
				c.finishes(failed(run))
			}
		}
	}},
	{"claiming/by many workers at once: each run once", func(c *check) {
		c.ready(orders)
		total := 30 * c.h.Rounds
		c.inserts("orders", total)
		var mu sync.Mutex
		seen := map[int64]string{}
		c.atOnce(6, func(i int, c *check) {
			own := request(4, orders)
			own.Worker = fmt.Sprint("worker", i)
			for {
				for _, run := range c.claim(own).Runs {
					mu.Lock()
					if seen[run.ID] != "" || run.Attempt != 1 || run.Worker != own.Worker {
						c.Errorf("%s has %+v, and %q had it", own.Worker, run, seen[run.ID])
					}
					seen[run.ID] = own.Worker
					mu.Unlock()
				}
				mu.Lock()
				all := len(seen) == total
				mu.Unlock()
				if all {
					return
				}
			}
		})
		for id, name := range seen {
			if run := c.inState(id, store.StateRunning, 0); run.Worker != name {
				c.Errorf("%+v, want %s", run, name)
			}
		}
	}},
	{"claiming/a worker gets other runs if all urgent runs are taken", func(c *check) {
		c.ready(orders)
		for range 3 * c.h.Rounds {
			for i := range 9 {
				c.insert(store.NewRun{Handler: "orders", Priority: i%3 - 1})
			}
			var got [3]int
			c.atOnce(3, func(i int, c *check) { got[i] = len(c.claim(request(3, orders)).Runs) })
			if got[0]+got[1]+got[2] != 9 {
				c.Fatalf("three workers that each want three of 9 runs get %v", got)
			}
		}
	}},
}

// sameRun reports whether two runs without payloads are equal.
func sameRun(a, b store.Run) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }
