package timer

import (
	"log/slog"
	"time"
)

// keepFinished is how long a timer whose schedule.At has no tick left stays registered, at least:
// long enough for the metrics of its last run to be scraped, and for an operator to call Explain.
// Any other schedule may have further ticks, even if it has just said that there is none.
const keepFinished = 10 * time.Minute

// finishLater plans to look whether a timer whose schedule has no tick left may leave. Called with
// mu held.
func (p *planner) finishLater(s *settings) {
	p.heap.push(item{when: p.now().Add(keepFinished).UnixMicro(), e: s})
}

// finish removes a timer whose schedule has no tick left, unless a run goes on, or a tick is to be
// tried again: then it looks again later. Called with mu held.
func (p *planner) finish(s *settings) {
	if s.later > 0 || !p.waits.of(s).IsZero() || !p.registry.retire(s) {
		p.finishLater(s)
		return
	}
	p.log.later(slog.LevelDebug, "timer: removed, because the last of its instants has come", "timer", s.timer.Name)
}
