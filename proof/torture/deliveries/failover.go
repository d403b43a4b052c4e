package deliveries

import (
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
)

// noticed is how long messages must wait before that shows that their relay is gone.
const noticed = time.Second

// ofAll reports whether a fault of a target keeps all relays from delivering.
func ofAll(target string) bool {
	return target == "store" || target == "fleet" || strings.HasPrefix(target, "receiver")
}

// failOvers checks how long messages were due before a delivery began. Time counts only while some
// relay, the database and the receivers were all well. If one relay was paused, killed or cut off,
// another must take over within Rules.Within. If two were, the wait is not judged, because the
// second may have just taken over.
func (e *examiner) failOvers() {
	wellness := torture.Wellness{Recovers: e.rules.Recovers, Begins: e.rules.Begins, OfAll: ofAll}
	well := torture.Well(e.lines, wellness)
	e.Excused = torture.Excused(e.lines, wellness)
	var faults []torture.Line
	for _, l := range e.lines {
		if l.Kind == torture.Fault && strings.HasPrefix(l.Target, "host") {
			faults = append(faults, l)
		}
	}
	timed := map[int64]bool{} // by the start of the fault
	for _, l := range e.lines {
		if l.Kind != torture.Due {
			continue
		}
		for _, s := range e.parts(l) {
			var during []torture.Line
			for _, f := range faults {
				if f.First < s.Last && s.First < f.Last+int64(e.rules.Within) {
					during = append(during, f)
				}
			}
			allowed := e.rules.Looks
			switch len(during) {
			case 0:
			case 1:
				f := during[0]
				s.First = max(s.First, f.First)
				allowed = max(allowed, e.rules.Within)
				if strings.HasPrefix(f.Fault, "net_") { // it may continue to lead when it can
					allowed += time.Duration(f.Last - f.First)
				}
			default:
				continue
			}
			longest := int64(0)
			for _, times := range well {
				for _, w := range times {
					longest = max(longest, min(s.Last, w.Last)-max(s.First, w.First))
				}
			}
			if longest <= 0 {
				continue
			}
			if len(during) == 1 && longest > int64(noticed) {
				timed[during[0].First] = true
				e.SlowestMillis = max(e.SlowestMillis, longest/int64(time.Millisecond))
			}
			if longest > int64(allowed) {
				e.Slow++
				e.example("message %d was due at %d, and nobody began to deliver it for %v, of which a relay was well "+
					"for %v: %v is allowed", l.Message.Seq, s.First, time.Duration(s.Last-s.First),
					time.Duration(longest), allowed)
			}
		}
	}
	e.Timed = len(timed)
}

// parts splits the time in which a message was due at the instants when a relay began to deliver
// it.
func (e *examiner) parts(due torture.Line) (parts []torture.Span) {
	var cuts []int64
	for _, l := range e.started[try{due.Message.Seq, due.Message.Attempt + 1}] {
		if due.First < l.At && l.At < due.Last {
			cuts = append(cuts, l.At)
		}
	}
	slices.Sort(cuts)
	from := due.First
	for _, at := range append(cuts, due.Last) {
		parts = append(parts, torture.Span{First: from, Last: at})
		from = at
	}
	return parts
}
