// Package torture checks what many hosts did against what they were promised. Handlers write into a Journal the stretches
// of time in which their own run said that it was valid; the checker knows nothing else, least of all from the library.
package torture

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Stretch is a time in which one run was valid, as its handler saw it: it asked at First and at Last, and often in
// between.
type Stretch struct {
	Timer string
	Slot  int
	Fence int64
	Host  string
	First time.Time // on this process's monotonic clock
	Last  time.Time
}

// A Journal collects stretches. Its methods may be called from any goroutine.
type Journal struct {
	mu        sync.Mutex
	stretches []Stretch
}

// Add writes one stretch down.
func (j *Journal) Add(s Stretch) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stretches = append(j.stretches, s)
}

// All returns what was written down so far.
func (j *Journal) All() []Stretch {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.stretches)
}

// maxGap is how long a handler may be out of sight and its stretch still be one: longer, and nobody knows whether it was
// valid in between.
const maxGap = 60 * time.Millisecond

// Witness follows a run as long as it is valid and watching is true, and writes its stretches down.
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

// A Verdict is what the checker found.
type Verdict struct {
	Runs             int // distinct fences
	OverLimit        int // moments at which one more valid run began than the limit allows
	SameSlot         int // two valid runs in one slot
	FenceRegressions int // a later run of a slot with a fence that is not higher
	Examples         []string
}

// Check goes through the journal. limits has the limit of each timer.
func (j *Journal) Check(limits map[string]int) Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	var v Verdict
	byTimer := map[string][]Stretch{}
	for _, s := range j.stretches {
		byTimer[s.Timer] = append(byTimer[s.Timer], s)
	}
	for timer, all := range byTimer {
		v.sweep(timer, all, limits[timer])
		bySlot := map[int][]Stretch{}
		for _, s := range all {
			bySlot[s.Slot] = append(bySlot[s.Slot], s)
		}
		for _, slot := range bySlot {
			v.order(slot)
		}
	}
	return v
}

func (v *Verdict) example(format string, args ...any) {
	if len(v.Examples) < 10 {
		v.Examples = append(v.Examples, fmt.Sprintf(format, args...))
	}
}

// sweep walks along time and counts how many stretches are open.
func (v *Verdict) sweep(timer string, all []Stretch, limit int) {
	type edge struct {
		at    time.Time
		delta int
		s     Stretch
	}
	edges := make([]edge, 0, 2*len(all))
	for _, s := range all {
		edges = append(edges, edge{s.First, +1, s}, edge{s.Last, -1, s})
	}
	// Ends before beginnings: two stretches that touch at one instant do not overlap.
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.delta, b.delta))
	})
	open := 0
	for _, e := range edges {
		open += e.delta
		if e.delta > 0 && open > limit {
			v.OverLimit++
			v.example("%s: %d valid runs, limit %d: slot %d, fence %d on %s", timer, open, limit, e.s.Slot, e.s.Fence, e.s.Host)
		}
	}
}

// order looks at the stretches of one slot: one after the other, with growing fences.
func (v *Verdict) order(slot []Stretch) {
	slices.SortFunc(slot, func(a, b Stretch) int { return a.First.Compare(b.First) })
	for i, s := range slot {
		if i == 0 {
			v.Runs++
			continue
		}
		before := slot[i-1]
		if s.Fence == before.Fence {
			continue // the same run, after a gap
		}
		v.Runs++
		if s.Fence < before.Fence {
			v.FenceRegressions++
			v.example("%s slot %d: fence %d after %d", s.Timer, s.Slot, s.Fence, before.Fence)
		}
		if s.First.Before(before.Last) {
			v.SameSlot++
			v.example("%s slot %d: fences %d and %d at once, on %s and %s", s.Timer, s.Slot, before.Fence, s.Fence, before.Host, s.Host)
		}
	}
}
