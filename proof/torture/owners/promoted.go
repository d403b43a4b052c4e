package owners

import (
	"fmt"

	"github.com/tickslot/tickslot/proof/torture"
)

// A promoted standby lacks what was committed shortly before. Runs committed then are lost, work on
// other runs is repeated, and an owner by the old server keeps its run until its lease ends. That
// is documented. Everything committed afterwards is kept, and a result counts only for its own run,
// whichever number that has.

// identity identifies the run of an entry, because two runs may have the same number.
func identity(w torture.Work) string {
	if w.Schedule != "" {
		return fmt.Sprintf("%s@%d", w.Schedule, w.Tick)
	}
	return w.Key
}

func (e *examiner) promotions() {
	for _, l := range e.lines {
		if l.Kind == torture.Fault && l.Fault == torture.Promoted && l.Target == torture.Commits {
			e.gone = append(e.gone, span{First: l.First, Last: l.Last})
		}
	}
}

// during reports whether something in that time may be lost.
func (e *examiner) during(first, last int64) bool {
	for _, s := range e.gone {
		if first < s.Last && last >= s.First {
			return true
		}
	}
	return false
}

// mayBeLost reports whether an attempt that started then may belong to a lost server: its worker
// claimed it there, and starts claimed runs until the lease ends.
func (e *examiner) mayBeLost(began int64) bool { return e.during(began-int64(e.rules.Lease), began) }

// known returns the part of an attempt's valid time in which it cannot be valid by a lost server,
// that is after its lease there.
func (e *examiner) known(began int64, s span) (left []span) {
	left = []span{s}
	for _, g := range e.gone {
		if began >= g.Last+int64(e.rules.Lease) {
			continue
		}
		var rest []span
		for _, s := range left {
			if s.First < g.First {
				rest = append(rest, span{First: s.First, Last: min(s.Last, g.First)})
			}
			if after := g.Last + int64(e.rules.Lease); s.Last > after {
				rest = append(rest, span{First: max(s.First, after), Last: s.Last})
			}
		}
		left = rest
	}
	return left
}
