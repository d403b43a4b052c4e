package owners

import (
	"cmp"
	"slices"
	"time"

	"github.com/tickslot/tickslot/internal/torture"
)

// maxStatusGap is the longest gap between two status lines of a worker that was not stopped: they
// come every 100 ms.
const maxStatusGap = 300 * int64(time.Millisecond)

// reclaims looks how long runs stayed with workers whose leases had ended. Somebody is to blame if
// a worker was well for so long meanwhile: it was not stopped, nothing was done to it or its way to
// the database, and the database was well, too.
func (e *examiner) reclaims() {
	well := e.well()
	for _, l := range e.lines {
		if l.Kind != torture.Expired {
			continue
		}
		longest := int64(0)
		for _, times := range well {
			for _, s := range times {
				longest = max(longest, min(s.last, l.Last)-max(s.first, l.First))
			}
		}
		if longest <= 0 {
			continue
		}
		e.Timed++
		e.SlowestMillis = max(e.SlowestMillis, longest/int64(time.Millisecond))
		if longest > int64(e.rules.Within) {
			e.SlowReclaims++
			e.example("attempt %d of run %d: its lease ended at %d, and it was not reclaimed for %v, of which a "+
				"worker was well for %v", l.Work.Attempt, l.Work.ID, l.First, time.Duration(l.Last-l.First),
				time.Duration(longest))
		}
	}
}

// well returns when each worker was well.
func (e *examiner) well() map[string][]span {
	awake := map[string][]span{}
	ill := map[string][]span{}
	var storeIll []span
	recovers := int64(e.rules.Recovers)
	for _, l := range e.lines {
		switch l.Kind {
		case torture.Status:
			all := awake[l.Host]
			if n := len(all); n > 0 && l.At-all[n-1].last <= maxStatusGap {
				all[n-1].last = l.At
			} else { // it is new, or was stopped
				awake[l.Host] = append(all, span{l.At, l.At})
			}
		case torture.Fault:
			s := span{l.First, l.Last + recovers}
			if l.Target == "store" || l.Target == "fleet" {
				storeIll = append(storeIll, s)
			} else {
				ill[l.Target] = append(ill[l.Target], s)
			}
		case torture.Looked:
			if l.Failed || l.Last-l.First > maxStatusGap {
				storeIll = append(storeIll, span{l.First, l.Last + recovers})
			}
		}
	}
	well := map[string][]span{}
	for host, all := range awake {
		for i, s := range all {
			s.first += recovers
			if i == 0 {
				s.first = max(s.first, all[0].first+int64(e.rules.Begins))
			}
			well[host] = append(well[host], without(s, slices.Concat(ill[life(host)], storeIll))...)
		}
	}
	return well
}

// without returns what is left of a stretch.
func without(s span, out []span) (left []span) {
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for _, o := range out {
		if o.last <= s.first {
			continue
		}
		if o.first >= s.last {
			break
		}
		if o.first > s.first {
			left = append(left, span{s.first, o.first})
		}
		s.first = o.last
	}
	if s.first < s.last {
		left = append(left, s)
	}
	return left
}
