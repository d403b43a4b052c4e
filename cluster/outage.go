package cluster

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// The values of TimerDetail.OnStoreDown; "": the timer runs without the store.
const (
	runLocal = "run_local" // as a Runner shows it; it is not written
	skips    = "skip"
	noStore  = "none"
)

// A TimerOutage is what a timer does while no host reaches the store of its locks.
type TimerOutage struct {
	Timer string
	Limit int // the MaxConcurrency of most hosts; -1: none
	// MaxRuns is how many runs may be in progress at once in the fleet: the sum of MaxPerHost of
	// the hosts that run the timer without the store. -1: any number. 0: no host starts it.
	MaxRuns int
	// PerHost: MaxRuns is the limit of each host, because the number of hosts is not known.
	PerHost bool
}

// add counts a live host that has the timer.
func (f *FleetTimer) add(d TimerDetail) {
	f.Hosts++
	f.Limits[d.MaxConcurrency]++
	perHost := cmp.Or(d.MaxPerHost, d.MaxConcurrency)
	switch {
	case d.OnStoreDown == noStore:
	case d.OnStoreDown == skips:
		f.needsStore = true
	case perHost < 0 || f.alone < 0:
		f.needsStore, f.alone = true, -1
	default:
		f.needsStore, f.alone = true, f.alone+perHost
	}
}

// OutageText says what the host does with the timer while the store of its locks does not answer.
func (t TimerDetail) OutageText() string {
	perHost := cmp.Or(t.MaxPerHost, t.MaxConcurrency)
	switch {
	case t.OnStoreDown == noStore:
		return "does not need it"
	case t.OnStoreDown == skips:
		return "starts nothing"
	case perHost < 0:
		return "any number of runs at once"
	case perHost == 1:
		return "1 run at once"
	}
	return fmt.Sprintf("up to %d runs at once", perHost)
}

// Outage returns what the timer does while no host reaches the store of its locks. ok is false if
// no live host has the timer, or if it does not need the store.
func (f *FleetTimer) Outage() (o TimerOutage, ok bool) {
	return TimerOutage{Timer: f.Name, Limit: f.MaxConcurrency(), MaxRuns: f.alone}, f.needsStore
}

// excess returns by how much the timer may exceed its limit. A number that is not known counts as
// more than any that is.
func (t TimerOutage) excess() int {
	switch {
	case t.Limit <= 0:
		return 0
	case t.MaxRuns < 0:
		return math.MaxInt
	case t.PerHost:
		return math.MaxInt - 1
	}
	return t.MaxRuns - t.Limit
}

// Text says how many runs there may be at once: "up to 12 runs at once of mail instead of 3". It is
// "" if the limit holds.
func (t TimerOutage) Text() string {
	switch {
	case t.excess() <= 0:
		return ""
	case t.MaxRuns < 0:
		return fmt.Sprintf("any number of runs at once of %s instead of %d", t.Timer, t.Limit)
	case t.PerHost:
		return fmt.Sprintf("up to %d runs at once of %s on each host instead of %d in all", t.MaxRuns, t.Timer, t.Limit)
	}
	return fmt.Sprintf("up to %d runs at once of %s instead of %d", t.MaxRuns, t.Timer, t.Limit)
}

// OutageText says what timers do while no host reaches the store of their locks, and which of them
// may exceed its limit most. Leave out timers that are paused: no host starts them. It is "" if
// there are none.
func OutageText(timers []TimerOutage) string {
	without, waiting, worst := 0, 0, TimerOutage{}
	for _, t := range timers {
		if t.MaxRuns == 0 {
			waiting++
			continue
		}
		without++
		if t.excess() > worst.excess() {
			worst = t
		}
	}
	var texts []string
	if without > 0 {
		text := timersDo(without, "run") + " without it"
		if bound := worst.Text(); bound != "" {
			text += ": " + bound
		}
		texts = append(texts, text)
	}
	if waiting > 0 {
		texts = append(texts, timersDo(waiting, "wait")+" for it")
	}
	return strings.Join(texts, "; ")
}

func timersDo(n int, does string) string {
	if n == 1 {
		return "1 timer " + does + "s"
	}
	return fmt.Sprintf("%d timers %s", n, does)
}
