package torture

import (
	"slices"
	"time"
)

// warnSlack is how late a warning may be logged, because a Logger has its own goroutine.
const warnSlack = 300 * int64(time.Millisecond)

// registry checks the effect of package cluster's registry on the hosts, which must be minimal: one
// warning when it begins to fail, and no lost lease.
func (e *examiner) registry() {
	failing := map[string]bool{} // by host: it has warned, and not yet reported recovery
	warnings := map[string][]int64{}
	var broken []Line
	for _, l := range e.lines {
		switch l.Kind {
		case RegistryFails:
			e.Warnings++
			warnings[l.Host] = append(warnings[l.Host], l.At)
			if failing[l.Host] {
				e.WarnedTwice++
				e.example("%s: a second warning before the registry worked again", l.Host)
			}
			failing[l.Host] = true
		case RegistryWorks:
			failing[l.Host] = false
		case RegistryBroken:
			broken = append(broken, l)
		case LeaseEnd:
			e.lostInCalm(l)
		}
	}
	for _, b := range broken {
		for host, at := range warnings {
			if b.Target != "" && b.Target != host {
				continue
			}
			n := 0
			for _, at := range at {
				if b.First+warnSlack <= at && at <= b.Last {
					n++
				}
			}
			if n > 1 {
				e.WarnedTwice++
				e.example("%s: %d warnings while %s lasted", host, n, b.Fault)
			}
		}
	}
}

// lostInCalm counts a lease that was lost while only the registry had faults, unless the host or
// the store was too slow just before.
func (e *examiner) lostInCalm(l Line) {
	if e.rules.Settled == 0 || l.At < e.rules.Settled || l.At > e.rules.CalmUntil {
		return
	}
	if e.starved(l.Host, l.At) {
		e.LostToSlowness++
		return
	}
	e.LostByRegistry++
	e.example("%s slot %d fence %d on %s: lost at %d, while nothing but the registry was tormented", l.Timer, l.Slot,
		l.Fence, l.Host, l.At)
}

// starved reports whether, within two TTLs before an instant, the host did not report its status in
// time or got no timely answer from the store.
func (e *examiner) starved(host string, at int64) bool {
	from, most := at-2*int64(e.rules.TTL), int64(e.rules.TTL)/3
	var before int64
	return slices.ContainsFunc(e.lines, func(l Line) bool {
		if l.Host != host {
			return false
		}
		if l.Kind == Slow && from <= l.Last && l.First <= at {
			return true
		}
		if l.Kind != Status || l.At < from-most || l.At > at+most {
			return false
		}
		gap := l.At - before
		before = l.At
		return gap < l.At && gap > most
	})
}
