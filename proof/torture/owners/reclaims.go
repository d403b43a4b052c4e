package owners

import (
	"time"

	"github.com/tickslot/tickslot/proof/torture"
)

// reclaims checks how long runs stayed with workers whose leases had ended. Time counts only while
// some worker was well: it had registered, was not paused, no fault acted on it or its connection,
// and the database was well, too.
func (e *examiner) reclaims() {
	wellness := torture.Wellness{Recovers: e.rules.Recovers, Registers: true,
		OfAll: func(target string) bool { return target == "store" || target == "fleet" }}
	well := torture.Well(e.lines, wellness)
	e.Excused = torture.Excused(e.lines, wellness)
	for _, l := range e.lines {
		if l.Kind != torture.Expired {
			continue
		}
		longest := int64(0)
		for _, times := range well {
			for _, s := range times {
				longest = max(longest, min(s.Last, l.Last)-max(s.First, l.First))
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
