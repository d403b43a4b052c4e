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

// A Fault is one planned disturbance of a process, a network or a server.
type Fault struct {
	At     time.Duration // since the beginning; later if its target is still busy with the one before
	Target string        // host-3, clients-0, store, fleet
	Kind   string
	For    time.Duration // for how long, or by how much
	Pick   int           // which one, where there is a choice
}

func (f Fault) String() string {
	return fmt.Sprintf("%8s  %-10s %-20s %v", f.At.Round(time.Millisecond), f.Target, f.Kind,
		f.For.Round(time.Millisecond))
}

// Unknown is the error for a fault that cannot be done.
func (f Fault) Unknown() error { return fmt.Errorf("no such fault: %s", f.Kind) }

// A Track is the faults of one target, one after the other. Its Deck is dealt in random order, each
// card before any comes twice, but for those that First has.
type Track struct {
	Number uint64 // each track of a plan has another
	Target string
	Deck   []string
	First  []string      // dealt before all others
	Mean   time.Duration // between two faults
	// Lasts returns for how long a fault lasts, and Busy for how long its target is busy with it;
	// nil: for as long.
	Lasts func(kind string, random *rand.Rand) time.Duration
	Busy  func(f Fault) time.Duration
}

// Plan draws the faults of so much time from a seed, and nothing else, in the order of time.
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

// Sort puts faults in the order of time.
func Sort(all []Fault) {
	slices.SortStableFunc(all, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// UpTo returns a random duration.
func UpTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most)))
}

// CarryOut carries out a plan, the faults of each target one after the other. It returns when all
// are over, and not before the time is up.
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
