package torture

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A Span is a stretch of time.
type Span struct{ First, Last int64 }

// A Wellness has the parameters of Well.
type Wellness struct {
	// Recovers is how long a process needs to recover after a fault, and Begins how long it needs
	// after its start.
	Recovers, Begins time.Duration
	// Registers says that a process logs a line of the kind Registered when it starts to work. It
	// is not well before that.
	Registers bool
	// OfAll reports whether a fault of a target affects all: the store, or the fleet.
	OfAll func(target string) bool
}

// Well returns when each process that reports its status was well: it was not paused, no fault
// acted on it or its connection to the database, and the database was well, too. The lines must be
// in order of time.
func Well(lines []Line, w Wellness) map[string][]Span {
	awake := map[string][]Span{}
	ill := map[string][]Span{}
	var allIll []Span
	registered := map[string]int64{}
	recovers := int64(w.Recovers)
	for _, l := range lines {
		switch l.Kind {
		case Status:
			all := awake[l.Host]
			if n := len(all); n > 0 && l.At-all[n-1].Last <= maxStatusGap {
				all[n-1].Last = l.At
			} else { // it is new, or was paused
				awake[l.Host] = append(all, Span{l.At, l.At})
			}
		case Registered:
			registered[l.Host] = l.At
		case Fault:
			s := Span{l.First, l.Last + recovers}
			if w.OfAll(l.Target) {
				allIll = append(allIll, s)
			} else {
				ill[l.Target] = append(ill[l.Target], s)
			}
		case Looked:
			if l.unanswered() {
				allIll = append(allIll, Span{l.First, l.Last + recovers})
			}
		}
	}
	well := map[string][]Span{}
	for host, all := range awake {
		since := all[0].First + int64(w.Begins)
		if w.Registers {
			at, ok := registered[host]
			if !ok { // it could not reach the database in its whole life
				continue
			}
			since = at
		}
		for _, s := range all {
			s.First = max(s.First+recovers, since)
			well[host] = append(well[host], without(s, slices.Concat(ill[Place(host)], allIll))...)
		}
	}
	return well
}

// unanswered reports whether a look found that the database does not answer properly.
func (l Line) unanswered() bool { return l.Failed || l.Last-l.First > maxStatusGap }

// Excused returns the share of time in which no process counts as well only because a look was not
// answered. The time is that between the first look and the last, without what faults excuse. If
// the share is large, processes that keep the database from answering may have excused themselves.
func Excused(lines []Line, w Wellness) float64 {
	var faults, looks []Span
	var watched Span
	for _, l := range lines {
		switch {
		case l.Kind == Fault && w.OfAll(l.Target):
			faults = append(faults, Span{l.First, l.Last + int64(w.Recovers)})
		case l.Kind == Looked:
			if watched == (Span{}) {
				watched = Span{l.First, l.Last}
			}
			watched = Span{min(watched.First, l.First), max(watched.Last, l.Last)}
			if l.unanswered() {
				looks = append(looks, Span{l.First, l.Last + int64(w.Recovers)})
			}
		}
	}
	calm := length(without(watched, faults))
	if calm == 0 {
		return 0
	}
	return 1 - float64(length(without(watched, slices.Concat(faults, looks))))/float64(calm)
}

func length(spans []Span) (sum int64) {
	for _, s := range spans {
		sum += s.Last - s.First
	}
	return sum
}

// Place returns the part of a process's name that all its lives share: "host-3" of "host-3.17".
func Place(host string) string { name, _, _ := strings.Cut(host, "."); return name }

// without returns the remaining parts of a stretch.
func without(s Span, out []Span) (left []Span) {
	slices.SortFunc(out, func(a, b Span) int { return cmp.Compare(a.First, b.First) })
	for _, o := range out {
		if o.Last <= s.First {
			continue
		}
		if o.First >= s.Last {
			break
		}
		if o.First > s.First {
			left = append(left, Span{s.First, o.First})
		}
		s.First = o.Last
	}
	if s.First < s.Last {
		left = append(left, s)
	}
	return left
}
