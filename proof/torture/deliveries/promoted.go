package deliveries

import "github.com/tickslot/tickslot/proof/torture"

// A standby that is promoted lacks what was committed in a while before: that is lost, and nobody
// has promised anything else. What is judged is that all else is kept, and that what the standby
// has is delivered, whatever relays and receivers remember of the other server.

// during reports whether something that began and ended then may be lost.
func (e *examiner) during(first, last int64) bool {
	for _, s := range e.gone {
		if first < s.Last && last >= s.First {
			return true
		}
	}
	return false
}

// forgotten finds the changes that are lost with a server: they were committed, or may have been,
// and the database has nothing of them.
func (e *examiner) forgotten() {
	for _, l := range e.lines {
		if l.Kind == torture.Fault && l.Fault == torture.Promoted && l.Target == torture.Commits {
			e.gone = append(e.gone, torture.Span{First: l.First, Last: l.Last})
		}
	}
	for _, l := range e.lines {
		if l.Kind != torture.Appended || l.Message.Outcome == torture.RolledBack || !e.during(l.First, l.At) {
			continue
		}
		if c := changeOf(*l.Message); e.changes[c] == 0 {
			e.lacks[c] = true
			if l.Message.Outcome == torture.Committed {
				e.Forgotten++
			}
		}
	}
	// A producer that was killed has not written down what it began.
	written := map[change]bool{}
	for _, l := range e.lines {
		if l.Kind == torture.Appended {
			written[changeOf(*l.Message)] = true
		}
	}
	for _, lines := range e.started {
		for _, l := range lines {
			if c := changeOf(*l.Message); !written[c] && e.changes[c] == 0 && e.during(l.At, l.At) {
				e.lacks[c] = true
			}
		}
	}
}

// effectLost reports whether the effect of a message may be lost with a server: a receiver accepted
// it then, and its relay knows that.
func (e *examiner) effectLost(n name, t try) bool {
	for _, l := range e.said[t] {
		if nameOf(*l.Message) != n || l.Message.Outcome != torture.Accepted {
			continue
		}
		for _, s := range e.started[t] {
			if s.Host == l.Host && nameOf(*s.Message) == n && e.during(s.At, l.At) {
				return true
			}
		}
	}
	return false
}
