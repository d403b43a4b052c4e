//go:build linux && amd64

package main

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
)

// A Spec tells a process what to do.
type Spec struct {
	Role   string // host, clients, writer
	Name   string // name of this life: host-3.17
	Dir    string // directory of the logs
	Seed   uint64
	Store  []StoreSpec // connections to the store; clients have several
	Timing Timing
	Ahead  time.Duration // how far a host's wall clock is ahead at its start
	// Registry is the connection to the registry, or nil for an older build.
	Registry *StoreSpec
	Timers   []torture.TimerLine
	Roles    []torture.TimerLine
}

// A Timing is the speed of a torture. Some stores need more time.
type Timing struct {
	TTL          time.Duration
	StoreTimeout time.Duration
	Period       time.Duration // of the timer with the shortest period
	// Lingers is by how many of its periods each run lasts longer. If faults of a store take long
	// and calls are slow, slots are rarely taken, and would be free most of the time.
	Lingers float64
}

// settling returns two TTLs for leases and fallbacks, one for a quarantine, and a second.
func (t Timing) settling() time.Duration { return 3*t.TTL + time.Second }

// afterwards returns how long only the registry is disturbed, while every timer must run again.
func afterwards() time.Duration { return time.Duration(len(registryFaults)) * (calmFault + calmPause) }

// tormented returns the part of a torture with faults.
func (t Timing) tormented(length time.Duration) time.Duration {
	return length - t.settling() - afterwards()
}

const maxRunTime = 3 * time.Second

// clientTTL is the length of the clients' leases.
const clientTTL = 300 * time.Millisecond

// sharedLimit is the name of the limit that some timers share, and sharedSize its size.
const (
	sharedLimit = "shared"
	sharedSize  = 4
)

// These are shared rates. For the first, each start has a separate record, and for the second,
// several share one. Their timers tick twice as often as the rate allows, and wait.
const (
	fewRate, manyRate = 24, 61
	fewPer, manyPer   = 6 * time.Second, 12 * time.Second
	ratedPeriod       = 500 * time.Millisecond
	// With the flag -rates, the periods of other timers are this many times as long.
	seldom = 3
)

// timers returns the timers of every host. With small, the largest limit is 3 instead of 5. If the
// store can take several locks in one step, some timers share a limit.
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
		if shares && i >= 8 && i <= 10 { // without the limit, six runs at once; none runs without the store
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

// roles returns the roles that every host competes for.
func roles() []torture.TimerLine {
	return []torture.TimerLine{{Name: "role-one", Limit: 1}, {Name: "role-some", Limit: 3}}
}

// local says which timers run without the store, too.
func local(i int) bool { return i%4 == 3 }
