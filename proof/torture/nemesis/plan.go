package nemesis

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A Fault is one planned fault of a process, a network or a server.
type Fault struct {
	At     time.Duration // since the start; later if the previous fault of the target is still active
	Target string        // host-3, clients-0, store, fleet
	Kind   string
	For    time.Duration // a duration or an amount
	Pick   int           // which one, if there is a choice
}

func (f Fault) String() string {
	return fmt.Sprintf("%8s  %-10s %-20s %v", f.At.Round(time.Millisecond), f.Target, f.Kind,
		f.For.Round(time.Millisecond))
}

// Unknown returns the error for an unknown fault.
func (f Fault) Unknown() error { return fmt.Errorf("no such fault: %s", f.Kind) }

// A Track is the sequence of faults of one target. Its Deck is dealt in random order, each card
// once before any comes twice, after the cards of First.
type Track struct {
	Number uint64 // unique in a plan
	Target string
	Deck   []string
	First  []string      // dealt before all others
	Mean   time.Duration // average time between two faults
	// Lasts returns the duration of a fault, and Busy how long its target is busy with it. If Busy
	// is nil, both are the same.
	Lasts func(kind string, random *rand.Rand) time.Duration
	Busy  func(f Fault) time.Duration
}

// Plan draws the faults for this length from a seed, and from nothing else, in order of time.
func Plan(seed uint64, length time.Duration, tracks ...Track) []Fault {
	var all []Fault
	for _, t := range tracks {
		random := rand.New(rand.NewPCG(seed, t.Number))
		left := slices.Clone(t.First)
		for at := t.Mean/4 + UpTo(random, t.Mean); at < length; {
			if len(left) == 0 {
				left = slices.Clone(t.Deck)
				random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
			}
			f := Fault{At: at, Target: t.Target, Kind: left[0], Pick: random.IntN(1 << 20)}
			left = left[1:]
			f.For = t.Lasts(f.Kind, random)
			all = append(all, f)
			busy := f.For
			if t.Busy != nil {
				busy = t.Busy(f)
			}
			at += busy + t.Mean/3 + time.Duration(random.ExpFloat64()*float64(t.Mean)*2/3)
		}
	}
	Sort(all)
	return all
}

// Sort sorts faults by time.
func Sort(all []Fault) {
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// UpTo returns a random duration of at most most.
func UpTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most)))
}

// CarryOut performs a plan. The faults of each target run one at a time. It returns once
// length has passed and every fault that was started is over. If ctx ends, it starts no more.
func CarryOut(ctx context.Context, faults []Fault, length time.Duration, do func(Fault)) {
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(length))
	defer cancel()
	tracks := map[string][]Fault{}
	for _, f := range faults {
		tracks[f.Target] = append(tracks[f.Target], f)
	}
	var all sync.WaitGroup
	for _, track := range tracks {
		all.Go(func() {
			for _, f := range track {
				select {
				case <-time.After(time.Until(began.Add(f.At))):
				case <-ctx.Done():
				}
				if ctx.Err() != nil {
					return
				}
				do(f)
			}
		})
	}
	all.Wait()
	<-ctx.Done()
}
