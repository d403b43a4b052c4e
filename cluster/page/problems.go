package page

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/internal/mask"
)

// maxSearch is how much of an error is searched for: it stands in a URL.
const maxSearch = 80

// maxAtOnce is how many timers a card pauses: the names of all are read before.
const maxAtOnce = 100

// A problem is timers that fail for one cause, on a card with what can be done.
type problem struct {
	Name   string    // of the timer that fails for longest
	More   int       // others that fail for the same cause
	Since  time.Time // when the first of the runs in a row failed, or the last one succeeded; zero: not known
	Failed int       // in a row
	Err    string
	Row    timerRow
	Why    string
	Open   string       // URL
	Pause  *pagekit.Ask // nil: there are too many
	Run    string       // URL; "": there are several

	names []string // of all its timers
}

// failingText says that a timer fails, and why; "": it does not. outage: its store does not answer.
func (t timerRow) failingText(outage bool, c *clock) string {
	switch {
	case t.State == cluster.TimerPaused:
	case outage && t.waits() && t.Failed < cluster.FailingRuns: // that is why
	case late(t.Local):
		return fmt.Sprintf("%s has not succeeded for %s: %s.", t.Name,
			pagekit.Count(t.Local.TicksSinceSuccess, "tick"), t.whyNot(c))
	case t.Failed >= cluster.FailingRuns:
		return fmt.Sprintf("%s is %s: %s.", t.Name, t.Failing(), t.whyNot(c))
	}
	return ""
}

// problemsOf groups timers that fail by the error of their last run, what fails for longest first.
func problemsOf(read *reading) (list []problem) {
	byErr, c := map[string]int{}, read.clock()
	for _, r := range read.rows {
		text := r.failingText(read.outage != nil, c)
		if text == "" {
			continue
		}
		p := problem{Name: r.Name, Since: r.FailingSince, Failed: r.Failed, Row: r, Why: mask.Text(text),
			names: []string{r.Name}}
		if p.Failed == 0 {
			p.Since = r.succeededAt()
		}
		if r.Last != nil && !r.Last.Succeeded() {
			p.Err = r.Last.Err
		}
		i, same := byErr[p.Err]
		if !same || p.Err == "" { // what is not known need not be the same
			byErr[p.Err] = len(list)
			list = append(list, p)
			continue
		}
		all := &list[i]
		all.More++
		all.names = append(all.names, r.Name)
		if compareTimes(p.Since, all.Since) < 0 {
			p.More, p.names = all.More, all.names
			*all = p
		}
	}
	slices.SortStableFunc(list, func(a, b problem) int {
		return cmp.Or(compareTimes(a.Since, b.Since), cmp.Compare(b.Failed, a.Failed))
	})
	for i := range list {
		p := &list[i]
		p.Open = URL("timer", "name", p.Name)
		if p.More > 0 {
			p.Open = URL("timers", "state", string(cluster.TimerFailing), "q", cutText(p.Err, maxSearch))
		} else {
			p.Run = URL("confirm", "action", "trigger", "name", p.Name)
		}
		if len(p.names) <= maxAtOnce {
			title := "Pause…"
			if p.More > 0 {
				title = "Pause all…"
			}
			ask := pagekit.NewAsk("pause", title, "name", p.names)
			p.Pause = &ask
		}
	}
	return list
}

// succeededAt returns when the timer last succeeded, as far as is known; zero: it is not.
func (t timerRow) succeededAt() (at time.Time) {
	if t.Local != nil {
		at = t.Local.LastSuccessAt
	}
	if h := t.fleet.History; h != nil && h.SucceededAt.After(at) {
		at = h.SucceededAt
	}
	return at
}

// CancelURL is that of the page which asks whether to cancel the run that is in progress for
// longest; "": none is.
func (p problem) CancelURL() string {
	oldest := slotBox{}
	for _, box := range p.Row.Slots {
		if box.CancelID() != "" && (oldest.Lease == nil || box.Lease.AcquiredAt.Before(oldest.Lease.AcquiredAt)) {
			oldest = box
		}
	}
	if p.More > 0 || p.Failed > 0 || oldest.Lease == nil {
		return ""
	}
	return URL("confirm", "action", "cancelrun", "name", p.Name, "id", oldest.CancelID())
}

func cutText(text string, most int) string {
	for i := range text {
		if i >= most {
			return text[:i]
		}
	}
	return text
}

// longest are the timers whose runs go on for longest.
func longest(rows []timerRow) []timerRow {
	list := slices.DeleteFunc(slices.Clone(rows), func(r timerRow) bool { return r.Held == 0 })
	sortRows(list, "running")
	return list[:min(len(list), 5)]
}

// HeldOn are the hosts that hold its slots.
func (t timerRow) HeldOn() (hosts []string) {
	for _, l := range t.fleet.Held {
		hosts = append(hosts, l.Holder.Host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
