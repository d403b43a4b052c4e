//go:build linux && amd64

package main

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
)

// A Spec is what a process has to know.
type Spec struct {
	Role   string // host, clients, writer
	Name   string // of this life: host-3.17
	Dir    string // where the logs are
	Seed   uint64
	Store  []StoreSpec // where to find the store; clients have several ways
	Timing Timing
	Ahead  time.Duration // how far the wall clock of a host is when it begins
	// Registry is where to find the registry; an earlier build has none.
	Registry *StoreSpec
	Timers   []torture.TimerLine
	Roles    []torture.TimerLine
}

// Timing is what differs between stores: some take longer.
type Timing struct {
	TTL          time.Duration
	StoreTimeout time.Duration
	Period       time.Duration // of the busiest timer
	// Lingers is by how many of its periods each run lasts longer. Where a fault of the store takes
	// long and calls are dear, slots are taken seldom, and would be free most of the time.
	Lingers float64
}

// settling is two TTLs for leases and fallbacks, one for a quarantine, and a second.
func (t Timing) settling() time.Duration { return 3*t.TTL + time.Second }

// afterwards is how long only the registry is tormented, while every timer has to run once more.
func afterwards() time.Duration { return time.Duration(len(registryFaults)) * (calmFault + calmPause) }

// tormented is how much of a torture something is done.
func (t Timing) tormented(length time.Duration) time.Duration {
	return length - t.settling() - afterwards()
}

const maxRunTime = 3 * time.Second

// clientTTL is how long the leases of the clients last.
const clientTTL = 300 * time.Millisecond

// sharedLimit is the name of the limit that some timers share, and sharedSize its size.
const (
	sharedLimit = "shared"
	sharedSize  = 4
)

// What some timers share: of the first each start has a record of its own, and of the second
// several have one. Their ticks come twice as often as the rate allows, and wait.
const (
	fewRate, manyRate = 24, 61
	fewPer, manyPer   = 6 * time.Second, 12 * time.Second
	ratedPeriod       = 500 * time.Millisecond
	// With the flag -rates the periods of other timers are so many times as long.
	seldom = 3
)

// timers are those of every host. While small, the largest limit is 3 and not 5. If the store can
// take several locks in one step, some of them share a limit.
func timers(timing Timing, small, shares bool) []torture.TimerLine {
	limits := []int{1, 3, 5, 2, 1, 3, 5, 4, 1, 2, 3, 5, 1, 3, 2, 5, 1, 3}
	all := make([]torture.TimerLine, len(limits))
	for i, n := range limits {
		if small {
			n = min(n, 3)
		}
		t := torture.TimerLine{Name: fmt.Sprintf("timer-%02d", i), Limit: n, PerTick: n, PerHost: n,
			Period: int64(timing.Period) * int64(4+i%4) / 4}
		switch i {
		case 1, 3, 6:
			t.PerHost = 1
		case 10:
			t.PerTick = 1
		}
		if shares && i >= 8 && i <= 10 { // six runs at once, but for the limit; none of them runs without the store
			t.Shared = sharedSize
		}
		all[i] = t
	}
	if shares {
		for i := range 4 {
			t := torture.TimerLine{Name: fmt.Sprintf("timer-%02d", len(all)), Limit: 5, PerTick: 5, PerHost: 1,
				Period: int64(ratedPeriod), Rated: "few", Rate: fewRate, Per: int64(fewPer)}
			if i%2 == 1 {
				t.Rated, t.Rate, t.Per = "many", manyRate, int64(manyPer)
			}
			all = append(all, t)
		}
	}
	return all
}

// roles are what every host competes for.
func roles() []torture.TimerLine {
	return []torture.TimerLine{{Name: "role-one", Limit: 1}, {Name: "role-some", Limit: 3}}
}

// local says which timers run without the store, too.
func local(i int) bool { return i%4 == 3 }
