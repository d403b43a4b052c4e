package timer

import (
	"fmt"
	"strings"
	"time"
)

// Decisions returns what this host has decided about the latest ticks of the timer, up to 16, the
// newest first. Each is Known, and its Text has only the reason, or how the run went. Decisions
// reads this host's memory when it is called, not the snapshot, and does not know what other hosts
// decided: see Scheduler.Explain.
func (t TimerStatus) Decisions() []Explanation {
	if t.host == nil {
		return nil
	}
	s := t.settings
	w := wording{timer: s.timer, window: s.catchUpWindow(), perHost: s.hostLimit(), maxRuns: t.host.config.MaxRuns}
	found, errs, slots := remembered(s)
	list := make([]Explanation, 0, len(found))
	for i, d := range found {
		x := Explanation{Timer: t.Name, Tick: time.UnixMicro(d.tick).UTC(), Host: t.host.config.Holder, Known: true,
			Slot: -1}
		w.said, w.onStart = decidedAt(&d), d.cause == causeOnStart
		if d.ran() {
			x.Slot, x.Run = slots[i], d.endedRun(errs[i])
		} else {
			x.Reason, x.Err = d.verdict.reason(errs[i]), errs[i]
		}
		x.Text = x.brief(w)
		if !d.ran() && d.extent > 0 {
			x.Text += ", and so were those until " + time.UnixMicro(d.through()).UTC().Format(time.RFC3339)
		}
		list = append(list, x)
	}
	return list
}

// brief returns the text of why or here, without the parts that are shown beside it: the timer, the
// tick, the host and the reason.
func (x *Explanation) brief(w wording) string {
	if x.Reason != "" {
		return strings.TrimPrefix(x.why(w), w.timer.lockName()+": not acquired: ")
	}
	text := x.here(w)
	for _, what := range []string{"ran", "runs"} {
		text = strings.TrimPrefix(text, fmt.Sprintf("%s here, on %s, ", what, x.Host))
	}
	return text
}

// remembered returns what this host remembers of a timer, the newest first, with the errors, and
// the slots of runs.
func remembered(s *settings) (found []decision, errs []error, slots []int) {
	e := s.entry
	e.mu.Lock() // no run of it begins or ends meanwhile
	defer e.mu.Unlock()
	r := &e.record
	for n := len(r.history.decisions) - 1; n >= 0; n-- {
		c, err := r.history.get(r.history.at(n))
		found, errs, slots = append(found, *c), append(errs, err), append(slots, int(c.slot))
	}
	for i := range found {
		for _, r := range e.runs {
			if r != nil && found[i].isOf(r) {
				slots[i] = r.Slot()
			}
		}
	}
	return found, errs, slots
}
