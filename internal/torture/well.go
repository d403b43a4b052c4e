package torture

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A Span is a stretch of time.
type Span struct{ First, Last int64 }

// Wellness says what Well has to know.
type Wellness struct {
	// Recovers is how long a process needs to be well again after a fault has ended, and Begins how
	// long it needs when it has just been started.
	Recovers, Begins time.Duration
	// Registers says that a process writes a line of the kind Registered when it begins to work. It
	// is not well before.
	Registers bool
	// OfAll reports whether what is done to a target is done to all: the store, or the fleet.
	OfAll func(target string) bool
}

// Well returns when each process was well that says that it is awake: it was not stopped, nothing
// was done to it or its way to the database, and the database was well, too. The lines are in the
// order of time.
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
			} else { // it is new, or was stopped
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
			if l.Failed || l.Last-l.First > maxStatusGap {
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

// Place returns the part of a process's name that all its lives share: "host-3" of "host-3.17".
func Place(host string) string { name, _, _ := strings.Cut(host, "."); return name }

// without returns what is left of a stretch.
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
