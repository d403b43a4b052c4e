// Package torture checks the actions of many hosts against the promises I1 to I4, I7, I9 and I13.
// Handlers record the stretches of time in which their own run reported itself valid, in a Journal
// within one process, or in a Log for each of several processes. Examine uses nothing else, and
// nothing from the library.
//
// It cannot see an overlap shorter than the time between two checks of a handler, a run that does
// not check while it works, or what a process would have recorded in the 50 ms before it was
// killed.
package torture

import (
	"slices"
	"sync"
	"time"
)

// A Stretch is a time in which one run was valid according to its handler, which checked at First,
// at Last, and often in between.
type Stretch struct {
	Timer string
	Slot  int
	Fence int64
	Host  string
	First time.Time // this process's monotonic clock
	Last  time.Time
}

// A Journal collects stretches. Its methods may be called from any goroutine.
type Journal struct {
	mu        sync.Mutex
	stretches []Stretch
}

// Add records one stretch.
func (j *Journal) Add(s Stretch) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stretches = append(j.stretches, s)
}

// All returns the recorded stretches.
func (j *Journal) All() []Stretch {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.stretches)
}

// maxGap is the longest gap between two checks of a handler that still counts as one stretch. After
// a longer gap, it is unknown whether the run was valid in between.
const maxGap = 60 * time.Millisecond

// Witness follows a run while it is valid and watching returns true, and records its stretches.
func (j *Journal) Witness(s Stretch, valid func() bool, watching func() bool, pause func()) {
	open := false
	for watching() {
		now := time.Now()
		if !valid() {
			break
		}
		if open && now.Sub(s.Last) > maxGap {
			j.Add(s)
			open = false
		}
		if !open {
			s.First, open = now, true
		}
		s.Last = now
		pause()
	}
	if open {
		j.Add(s)
	}
}

// A Verdict is the result of the checker.
type Verdict struct {
	Runs             int // distinct fences
	OverLimit        int // times one more valid run started than the limit allows
	SameSlot         int // two valid runs in one slot
	FenceRegressions int // later runs of a slot without a higher fence
	Examples         []string
}

// Check checks the journal. limits has the limit of each timer.
func (j *Journal) Check(limits map[string]int) Verdict {
	all := j.All()
	if len(all) == 0 {
		return Verdict{}
	}
	zero := slices.MinFunc(all, func(a, b Stretch) int { return a.First.Compare(b.First) }).First
	fleet := Line{Kind: Born, Target: "fleet"}
	for name, n := range limits {
		fleet.Timers = append(fleet.Timers, TimerLine{Name: name, Limit: n})
	}
	lines := []Line{fleet}
	for i, s := range all {
		lines = append(lines, Line{Kind: Seen, Host: s.Host, Run: int64(i), Timer: s.Timer, Slot: s.Slot,
			Fence: s.Fence,
			At:    int64(s.Last.Sub(zero)), First: int64(s.First.Sub(zero)), Last: int64(s.Last.Sub(zero))})
	}
	f := Examine(lines, Rules{})
	return Verdict{f.Runs, f.OverLimit, f.SameSlot, f.FenceRegressions, f.Examples}
}
