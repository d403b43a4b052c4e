// Package flow counts how many entries came into a queue and left it, by interval, from rows that
// a database has counted.
package flow

import (
	"cmp"
	"slices"
	"time"
)

// What is counted.
const (
	Interval = 5 * time.Minute
	Span     = 6 * time.Hour // until now
	// Most is how many entries a store reads for each Part at most: the latest ones.
	Most = 30_000
)

// In is the Part of entries that came. All other parts are entries that left.
const In = "in"

// A Row is how many entries of a part and a name there are within an interval, among the Most
// latest of the part.
type Row struct {
	Part, Name string
	N          int64 // the interval: it began N times Interval after 1970
	Count      int64
}

// A Flow is what came and left.
type Flow struct {
	From   time.Time // all is counted since then
	Until  time.Time // by the database's clock
	Counts []Count   // the oldest first; intervals without any are left out
}

// A Count is what came and left within an interval.
type Count struct {
	Name    string
	At      time.Time // the interval began
	In, Out int64
}

// Of assembles rows. An interval that may have more entries than were read is left out, and so are
// those before it.
func Of(rows []Row, now time.Time) Flow {
	f := Flow{From: now.UTC().Truncate(Interval).Add(Interval - Span), Until: now.UTC()}
	sums, oldest := map[string]int64{}, map[string]int64{}
	for _, r := range rows {
		if n, ok := oldest[r.Part]; !ok || r.N < n {
			oldest[r.Part] = r.N
		}
		sums[r.Part] += r.Count
	}
	for part, sum := range sums {
		if complete := startOf(oldest[part] + 1); sum >= Most && complete.After(f.From) {
			f.From = complete
		}
	}
	type key struct {
		name string
		n    int64
	}
	at := map[key]int{}
	for _, r := range rows {
		if startOf(r.N).Before(f.From) {
			continue
		}
		i, ok := at[key{r.Name, r.N}]
		if !ok {
			i = len(f.Counts)
			at[key{r.Name, r.N}] = i
			f.Counts = append(f.Counts, Count{Name: r.Name, At: startOf(r.N)})
		}
		if r.Part == In {
			f.Counts[i].In += r.Count
		} else {
			f.Counts[i].Out += r.Count
		}
	}
	slices.SortFunc(f.Counts, func(a, b Count) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Name, b.Name))
	})
	return f
}

func startOf(n int64) time.Time { return time.UnixMicro(n * Interval.Microseconds()).UTC() }

// NumberOf returns the interval of an instant.
func NumberOf(t time.Time) int64 { return t.UnixMicro() / Interval.Microseconds() }
