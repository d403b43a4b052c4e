package deliveries

import "github.com/tickslot/tickslot/proof/torture"

// A promoted standby lacks what was committed shortly before. That is lost, as documented.
// Everything else must be kept, and what the standby has must be delivered, whatever relays and
// receivers remember of the old server.

// during reports whether something in that time may be lost.
func (e *examiner) during(first, last int64) bool {
	for _, s := range e.gone {
		if first < s.Last && last >= s.First {
			return true
		}
	}
	return false
}

// forgotten finds the changes that are lost with a server: they were or may have been committed,
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
	// A killed producer has not logged what it began.
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

// effectLost reports whether a message's effect may be lost with a server: a receiver accepted the
// message in that time, and its relay knows it.
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
