package simulate

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

var (
	hostsFlag = flag.Int("hosts", 8, "how many hosts")
	daysFlag  = flag.Float64("days", 0, "how many days of virtual time; 0: six hours, and in long proofs one day")
	seedsFlag = flag.Int("seeds", 4, "how many simulations")
	seedFlag  = flag.Uint64("seed", 9, "the first seed; with the default, rare events happen within a few hours, too")
	ttlFlag   = flag.Duration("ttl", 30*time.Second, "how long a lease lasts: the longer, the less there is to compute")

	ttl time.Duration // *ttlFlag
)

// minHosts is the minimum number of hosts.
const minHosts = 4

// counts has the number of occurrences of each kind of event.
type counts map[string]int

func (c counts) count(kind string) { c[kind]++ }

func (c counts) add(kind string, n int) { c[kind] += n }

func (c counts) merge(other counts) {
	for kind, n := range other {
		c[kind] += n
	}
}

// A report has the counts of events and of violations.
type report struct {
	seed    uint64
	Hosts   int     `json:"hosts"`
	Days    float64 `json:"days"` // of virtual time, in all simulations
	Seeds   int     `json:"seeds"`
	Seconds float64 `json:"seconds"` // of real time

	Ticks      int     `json:"ticks"`
	Runs       int     `json:"runs"`
	Degraded   int     `json:"degraded_runs"`
	Lost       int     `json:"leases_lost"`
	Expired    int     `json:"leases_expired"`
	AskedAgain int     `json:"grants_asked_again"`
	KilledRuns int     `json:"runs_of_killed_hosts"`
	Calls      int     `json:"calls"`
	Samples    int     `json:"samples"`
	Reached    int     `json:"-"`
	Share      float64 `json:"n_reached_share"` // share of the samples of busy timers with N > 1
	Bursts     int     `json:"faults"`
	Faults     counts  `json:"faults_by_kind"`
	Skips      counts  `json:"skips"`

	OverLimit        int      `json:"over_limit"`
	SameSlot         int      `json:"two_in_one_slot"`
	OverTick         int      `json:"over_tick"`
	OverHost         int      `json:"over_host"`
	FenceRegressions int      `json:"fence_regressions"`
	StillValid       int      `json:"valid_though_grantable"`
	NotCancelled     int      `json:"not_cancelled_though_grantable"`
	LateRecoveries   int      `json:"slots_not_grantable_after_ttl"`
	EarlyEnds        int      `json:"slots_grantable_too_early"`
	LongCalls        int      `json:"long_calls"`
	Unaccounted      int      `json:"unaccounted"`
	Starved          int      `json:"starved"`
	Stuck            int      `json:"runs_that_did_not_end"`
	TooWeak          []string `json:"too_weak,omitempty"`
	Examples         []string `json:"examples,omitempty"`
}

func (r *report) violations() int {
	return r.OverLimit + r.SameSlot + r.OverTick + r.OverHost + r.FenceRegressions + r.StillValid + r.NotCancelled +
		r.LateRecoveries +
		r.EarlyEnds + r.LongCalls + r.Unaccounted + r.Starved + r.Stuck
}

func (r *report) merge(o *report) {
	r.Days += o.Days
	r.Seeds++
	r.Ticks, r.Runs, r.Degraded, r.Lost, r.Expired = r.Ticks+o.Ticks, r.Runs+o.Runs, r.Degraded+o.Degraded,
		r.Lost+o.Lost, r.Expired+o.Expired
	r.AskedAgain, r.KilledRuns, r.Calls = r.AskedAgain+o.AskedAgain, r.KilledRuns+o.KilledRuns, r.Calls+o.Calls
	r.Samples, r.Reached, r.Bursts = r.Samples+o.Samples, r.Reached+o.Reached, r.Bursts+o.Bursts
	r.Faults.merge(o.Faults)
	r.Skips.merge(o.Skips)
	r.OverLimit, r.SameSlot, r.OverTick, r.OverHost = r.OverLimit+o.OverLimit, r.SameSlot+o.SameSlot,
		r.OverTick+o.OverTick, r.OverHost+o.OverHost
	r.FenceRegressions, r.StillValid, r.NotCancelled = r.FenceRegressions+o.FenceRegressions, r.StillValid+o.StillValid,
		r.NotCancelled+o.NotCancelled
	r.EarlyEnds += o.EarlyEnds
	r.LateRecoveries, r.LongCalls, r.Unaccounted = r.LateRecoveries+o.LateRecoveries, r.LongCalls+o.LongCalls,
		r.Unaccounted+o.Unaccounted
	r.Starved, r.Stuck = r.Starved+o.Starved, r.Stuck+o.Stuck
	r.Examples = append(r.Examples, o.Examples...)
}

// weak adds to TooWeak what happened too rarely for zero violations to be meaningful.
func (r *report) weak() {
	hostDays := float64(r.Hosts) * r.Days
	for _, want := range []struct {
		what  string
		is    int
		least float64
	}{
		{"runs", r.Runs, 200 * r.Days},
		{"faults", r.Bursts, 15 * r.Days},
		{"leases_lost", r.Lost, r.Days},
		{"degraded_runs", r.Degraded, r.Days},
		{"leases_expired", r.Expired, r.Days},
		{"runs_of_killed_hosts", r.KilledRuns, r.Days / 4},
		{"grants_asked_again", r.AskedAgain, r.Days / 4},
		{"ticks", r.Ticks, 200 * hostDays},
		{"n_reached", 100 * r.Reached / max(r.Samples, 1), 20},
	} {
		if want.least >= 1 && float64(want.is) < want.least { // an event expected less than once may be missing
			r.TooWeak = append(r.TooWeak, fmt.Sprintf("%s: %d, should be %.0f", want.what, want.is, want.least))
		}
	}
	for _, f := range allFaults() {
		if r.Faults[f] == 0 {
			r.TooWeak = append(r.TooWeak, "no "+f)
		}
	}
}

// Eight hosts run for six hours, four times, or for a day as a long proof. make proof WHAT=simulate
// has fifty hosts for thirty days, twenty times.
//
// Fails when trust windows never close, when slots returns N+1, when memlock keeps leases for half
// the TTL, allows one start of a tick too many, or restarts its fences at 1, when a run releases
// its slot before the handler has returned, when MaxPerHost is exceeded by one, and when a refusal
// is not counted. If the heartbeat or an acquire counts trust from the reply, only some seeds find
// it: make proof WHAT=simulate does, and proof/mutants has such a seed.
func TestSimulate(t *testing.T) {
	began := time.Now()
	if *daysFlag == 0 {
		*daysFlag = float64(testkit.Rounds(t, 6, 24)) / 24
	}
	total := report{Hosts: *hostsFlag, Faults: counts{}, Skips: counts{}}
	var mu sync.Mutex
	t.Run("seeds", func(t *testing.T) {
		free := make(chan struct{}, runtime.GOMAXPROCS(0))
		for i := range *seedsFlag {
			seed := *seedFlag + uint64(i)
			t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
				t.Parallel()
				free <- struct{}{}
				defer func() { <-free }()
				started := time.Now()
				r := &report{seed: seed, Hosts: *hostsFlag, Days: *daysFlag, Faults: counts{}, Skips: counts{}}
				synctest.Test(t, func(t *testing.T) { simulate(t, r) })
				t.Logf("seed %d: %d ticks, %d runs, %d faults, %d leases lost, %d violations, %v",
					seed, r.Ticks, r.Runs, r.Bursts, r.Lost, r.violations(),
					time.Since(started).Round(time.Millisecond))
				for _, e := range r.Examples {
					t.Log(e)
				}
				if r.violations() > 0 {
					t.Errorf("promises were broken; again: go test ./proof/simulate -run TestSimulate -v -hosts "+
						"%d -days %v -seeds 1 -seed %d", *hostsFlag, *daysFlag, seed)
				}
				mu.Lock()
				defer mu.Unlock()
				total.merge(r)
			})
		}
	})
	total.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	total.Share = float64(total.Reached) / float64(max(total.Samples, 1))
	total.weak()
	if len(total.TooWeak) > 0 {
		t.Errorf("too weak to tell: %q", total.TooWeak)
	}
	total.Examples = total.Examples[:min(len(total.Examples), 10)]
	line, err := json.Marshal(total)
	if err != nil {
		t.Fatal(err)
	}
	figures = string(line)
}

// figures are printed at the end.
var figures string

func TestMain(m *testing.M) {
	flag.Parse()
	ttl = *ttlFlag
	code := m.Run()
	if testing.Verbose() && figures != "" {
		fmt.Println(figures)
	}
	os.Exit(code)
}

// simulate runs the hosts and the nemesis for r.Days.
func simulate(t *testing.T, r *report) {
	// The longer a call may take, the more the moments before and after it differ.
	storeTimeout := []time.Duration{time.Second, 5 * time.Second, 2500 * time.Millisecond}[r.seed%3]
	w := newWorld(r, storeTimeout, newKinds())
	ctx, stop := context.WithTimeout(t.Context(), time.Duration(r.Days*float64(24*time.Hour)))
	defer stop()
	var all sync.WaitGroup
	places := make([]*place, max(r.Hosts, minHosts))
	for i := range places {
		places[i] = &place{orders: make(chan order, 1)}
		all.Go(func() {
			if err := places[i].inhabit(ctx, w, r.seed, uint64(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		minute := time.NewTicker(time.Minute)
		defer minute.Stop()
		for {
			select {
			case <-minute.C:
				w.sample()
			case <-ctx.Done():
				return
			}
		}
	})
	n := &nemesis{w: w, places: places, random: rand.New(rand.NewPCG(r.seed, 1<<40))}
	n.rage(ctx)
	all.Wait()
	// Handlers that ignore their contexts end, and late requests arrive.
	time.Sleep(longestDeaf + 3*ttl)
	w.final()
	// The bubble ends here: a remaining goroutine is a deadlock, and fails the test.
}
