package torture

import (
	"cmp"
	"slices"
	"time"
)

// A rate is the number of starts that a limit allows within a time.
type rate struct {
	n   int
	per int64
}

func (e *examiner) isRated(timer string) bool {
	return slices.ContainsFunc(e.lives, func(l life) bool { return l.limits[timer].Rated != "" })
}

// rates checks the limits with a rate. The logs show between which instants the store counted a
// start. A window has too many if more starts than the rate are certainly in it.
func (e *examiner) rates() {
	starts := map[string][]Line{}
	for _, l := range e.lines {
		if l.Kind == Granted {
			starts[l.Target] = append(starts[l.Target], l)
			e.Rated++
		}
	}
	e.RateUsed = 1
	for limit, r := range e.rated {
		e.windowsOf(limit, r, starts[limit])
		used, windows := e.used(r, starts[limit])
		e.RateUsed = min(e.RateUsed, used)
		e.RateWindows += windows
	}
	if len(e.rated) == 0 {
		e.RateUsed = 0
	}
}

// windowsOf checks the windows that begin with a start.
func (e *examiner) windowsOf(limit string, r rate, starts []Line) {
	slices.SortFunc(starts, func(a, b Line) int { return cmp.Compare(a.First, b.First) })
	for i, s := range starts {
		n := 0
		for _, other := range starts[i:] {
			if other.First >= s.First+r.per {
				break
			}
			if other.Last < s.First+r.per {
				n++
			}
		}
		switch {
		case n <= r.n:
		case slices.ContainsFunc(e.windows, func(w Line) bool {
			return w.First <= s.First+r.per && s.First <= w.Last+2*int64(e.rules.TTL)
		}):
			e.Declared.OverRate++
		default:
			e.OverRate++
			e.example("%s: %d starts within %v, allowed %d: from %s at %d on", limit, n, time.Duration(r.per), r.n,
				s.Host, s.First)
		}
	}
}

// used returns the used share of a rate while all was well, and in how many windows that was
// measured. The share is the minimum time for this many starts divided by the actual time. It
// begins one window after the end of the faults, because a store that may have lost starts grants
// none until then.
func (e *examiner) used(r rate, starts []Line) (share float64, windows int) {
	var at []int64
	for _, s := range starts {
		if s.Last >= e.rules.Settled+r.per && s.Last <= e.rules.CalmUntil {
			at = append(at, s.Last)
		}
	}
	slices.Sort(at)
	took, may := int64(0), int64(0)
	for i := r.n; i < len(at); i++ {
		took += at[i] - at[i-r.n]
		may += r.per
		windows++
	}
	if took == 0 {
		return 0, 0
	}
	return float64(may) / float64(took), windows
}
