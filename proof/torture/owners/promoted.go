package owners

import (
	"fmt"

	"github.com/tickslot/tickslot/proof/torture"
)

// A standby that is promoted lacks what was committed in a while before. Runs that were committed
// then are lost, what was done with others is done again, and who had a run by the other server has
// it until its lease ends. Nobody has promised anything else; all that is committed afterwards is
// kept, and a result counts for the run that it is of, whatever number that has.

// identity returns which run an entry is about: one with its number may have been another.
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

// during reports whether something that began and ended then may be lost.
func (e *examiner) during(first, last int64) bool {
	for _, s := range e.gone {
		if first < s.Last && last >= s.First {
			return true
		}
	}
	return false
}

// mayBeLost reports whether an attempt that began then may be of a server that is gone: its worker
// had claimed it there, and begins what it has claimed until the lease ends.
func (e *examiner) mayBeLost(began int64) bool { return e.during(began-int64(e.rules.Lease), began) }

// known returns what is left of the time in which an attempt was valid without that in which it may
// be so by a server that is gone: until its lease ends.
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
