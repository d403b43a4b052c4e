package cluster

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Limits for what a Store keeps about each timer in addition to its runs.
const (
	// OutcomesPerTimer is the maximum number of outcomes in a TimerRecord. They are from the runs
	// that were written last.
	OutcomesPerTimer = 30
	// FineBucket is the width of the buckets that are kept for FineRetention.
	FineBucket    = 5 * time.Minute
	FineRetention = 24 * time.Hour
	// CoarseBucket is the width of the buckets that are kept for CoarseRetention.
	CoarseBucket    = time.Hour
	CoarseRetention = 31 * 24 * time.Hour
)

// A TimerRecord summarizes the runs of a timer. A Batch contains one for each timer of its Runs,
// and the Store merges it into its record of all earlier runs: see Merge.
//
// Failures count if they ended after the last success, by EndedAgo and the store's clock. So runs
// of several hosts are ordered by the time at which they ended, even if they were written in
// another order. Every outcome other than success counts as a failure: see HistoryRun.Succeeded.
//
// The numbers may be inexact in two cases. If a success is written after failures that ended both
// before and after it, which happens because hosts write a few seconds apart, Failures is too low
// and FailingFor too short until the next success. If a batch got no answer, and the row of its
// host was deleted before the host could repeat the batch, its runs are not counted.
type TimerRecord struct {
	// Last is the run that ended last, as it was written, with its Timer. Its ID and its Stack are
	// not kept.
	Last Run
	// SucceededAgo is when the last success ended, or nil if none is known.
	SucceededAgo *time.Duration
	// Failures is the number of consecutive failures. If it is 0, so are FailingFor and FailedAgo.
	Failures   int
	FailingFor time.Duration // since the first of these failures ended
	FailedAgo  time.Duration // since the last of them ended
	// Outcomes has one letter for each of the runs that were written last, oldest first. Within a
	// batch, runs are ordered by the time at which they ended: see OutcomeOf.
	Outcomes string
}

// A Bucket sums up the runs of a timer that ended within an interval and belong to one bin: they
// took about equally long. A Batch has buckets of its Runs, which the Store adds to its own of the
// same Timer, Interval, instant and Bin.
//
// A Store keeps buckets of the widths FineBucket and CoarseBucket. They begin at multiples of their
// Interval since 1970, by the store's clock.
type Bucket struct {
	Timer    string // "" for all timers of the fleet together
	Interval time.Duration
	// Bin is 1 for runs of up to 1 ms. Each higher bin reaches twice as far as the one before it.
	// 0: runs of any length, as for the fleet.
	Bin int
	// Ago is an instant within the bucket. In a Batch it is how long ago the bucket's middle was,
	// negative if that has yet to come; in an answer, how long ago the bucket began.
	Ago         time.Duration
	Runs        int
	Failed      int           // of the Runs
	Took        time.Duration // total of all Runs
	LongestTook time.Duration // of a single run
}

// outcomes maps the outcomes of package timer to letters.
var outcomes = map[string]byte{"ok": 'o', "error": 'e', "panic": 'p', "timeout": 't', "lease_lost": 'l',
	"canceled": 'c', "draining": 'd'}

// OutcomeOf returns the outcome for a letter of TimerRecord.Outcomes, or "" if package timer has no
// such outcome in this version.
func OutcomeOf(letter byte) string {
	for outcome, l := range outcomes {
		if l == letter {
			return outcome
		}
	}
	return ""
}

func letterOf(outcome string) byte { return cmp.Or(outcomes[outcome], '?') }

// succeeded reports whether the handler succeeded.
func (r *Run) succeeded() bool { return r.Outcome == "ok" }

// recordsOf summarizes the runs of a batch by timer.
func recordsOf(runs []Run) []TimerRecord {
	byEnd := slices.Clone(runs)
	slices.SortStableFunc(byEnd, func(a, b Run) int {
		return cmp.Or(strings.Compare(a.Timer, b.Timer), cmp.Compare(b.EndedAgo, a.EndedAgo))
	})
	var records []TimerRecord
	for i := range byEnd {
		r := byEnd[i]
		r.Stack = ""
		one := TimerRecord{Last: r, Outcomes: string(letterOf(r.Outcome))}
		if r.succeeded() {
			one.SucceededAgo = &r.EndedAgo
		} else {
			one.Failures, one.FailingFor, one.FailedAgo = 1, r.EndedAgo, r.EndedAgo
		}
		if last := len(records) - 1; last >= 0 && records[last].Last.Timer == r.Timer {
			records[last] = Merge(records[last], one)
		} else {
			records = append(records, one)
		}
	}
	return records
}

// Merge returns the result of merging the record of a batch into a Store's record. Stores written
// in Go call it, and it documents what the statements of the others compute.
//
//   - Last is the run that ended last. If both ended at the same time, it is the batch's.
//   - SucceededAgo is taken from the later success.
//   - All failures of a record count if the first of them ended after that success. If only the
//     last failure ended after it, only that one counts.
//   - The outcomes of the batch come last.
func Merge(old, batch TimerRecord) TimerRecord {
	m := TimerRecord{Last: old.Last, SucceededAgo: old.SucceededAgo, Outcomes: old.Outcomes + batch.Outcomes}
	if batch.Last.EndedAgo <= old.Last.EndedAgo {
		m.Last = batch.Last
	}
	if s := batch.SucceededAgo; s != nil && (m.SucceededAgo == nil || *s < *m.SucceededAgo) {
		m.SucceededAgo = s
	}
	for _, r := range []TimerRecord{old, batch} {
		failures, since := r.Failures, r.FailingFor
		if s := m.SucceededAgo; failures > 0 && s != nil && since >= *s {
			failures, since = 1, r.FailedAgo
			if since >= *s {
				failures = 0
			}
		}
		switch {
		case failures == 0:
		case m.Failures == 0:
			m.Failures, m.FailingFor, m.FailedAgo = failures, since, r.FailedAgo
		default:
			m.Failures += failures
			m.FailingFor, m.FailedAgo = max(m.FailingFor, since), min(m.FailedAgo, r.FailedAgo)
		}
	}
	m.Outcomes = m.Outcomes[max(0, len(m.Outcomes)-OutcomesPerTimer):]
	return m
}

// binOf returns the bin of runs that take so long.
func binOf(took time.Duration) int {
	return 1 + bits.Len64(uint64(max(took-1, 0)/time.Millisecond))
}

// binAbove returns the duration that all runs of a bin exceed, or 0.
func binAbove(bin int) time.Duration {
	if bin < 2 || bin > 44 { // above 44 no time.Duration is long enough
		return 0
	}
	return time.Millisecond << (bin - 2)
}

// bucketsOf sums up the runs of a batch by bucket, for each timer and for all. now is the time of
// the store as this host knows it. If it is wrong, a run may be counted in the bucket before or
// after its own.
func bucketsOf(runs []Run, now time.Time) []Bucket {
	type key struct {
		timer string
		width time.Duration
		ago   time.Duration
		bin   int
	}
	at := map[key]int{}
	var buckets []Bucket
	for _, r := range runs {
		for _, width := range []time.Duration{FineBucket, CoarseBucket} {
			start := now.Add(-r.EndedAgo).UnixMicro() / width.Microseconds() * width.Microseconds()
			ago := now.Sub(time.UnixMicro(start).Add(width / 2))
			for i, timer := range []string{"", r.Timer} {
				bin := 0
				if i > 0 {
					bin = binOf(r.Took)
				}
				if i > 0 && timer == "" { // a run without a timer
					continue
				}
				k := key{timer, width, ago, bin}
				n, ok := at[k]
				if !ok {
					n = len(buckets)
					at[k] = n
					buckets = append(buckets, Bucket{Timer: timer, Interval: width, Ago: ago, Bin: bin})
				}
				b := &buckets[n]
				b.Runs++
				if !r.succeeded() {
					b.Failed++
				}
				b.Took += r.Took
				b.LongestTook = max(b.LongestTook, r.Took)
			}
		}
	}
	return buckets
}

// A TimerHistory is a TimerRecord with its instants.
type TimerHistory struct {
	Timer        string
	Last         HistoryRun // the run that ended last; without an ID
	SucceededAt  time.Time  // end of the last success; zero if none is known
	Failures     int        // consecutive failures; 0 if the last run succeeded
	FailingSince time.Time  // end of the first of these failures; zero without failures
	Outcomes     []string   // of the runs that were written last, oldest first; "" if unknown
}

// A HistoryBucket sums up the runs of a timer that ended within an interval.
type HistoryBucket struct {
	StartedAt   time.Time // in UTC, a multiple of Interval
	Interval    time.Duration
	Runs        int
	Failed      int           // of the Runs
	Took        time.Duration // all Runs together
	LongestTook time.Duration // of the Runs
	bins        []bin         // of the Runs, the shortest first
}

// A bin sums up runs of a HistoryBucket that took about equally long.
type bin struct {
	number        int // see Bucket.Bin
	runs          int
	took, longest time.Duration
}

// Add adds the runs of another bucket.
func (h *HistoryBucket) Add(b HistoryBucket) {
	h.Runs, h.Failed, h.Took = h.Runs+b.Runs, h.Failed+b.Failed, h.Took+b.Took
	h.LongestTook = max(h.LongestTook, b.LongestTook)
	h.bins = slices.Clone(h.bins) // copies of the bucket share them
	for _, added := range b.bins {
		i, found := slices.BinarySearchFunc(h.bins, added.number, func(b bin, n int) int { return b.number - n })
		if !found {
			h.bins = slices.Insert(h.bins, i, bin{number: added.number})
		}
		old := &h.bins[i]
		old.runs, old.took, old.longest = old.runs+added.runs, old.took+added.took, max(old.longest, added.longest)
	}
}

// TookPercentile returns how long so many per cent of the Runs took at most, for percentages from 1
// to 100. It is 0 if that is not known: the buckets of all timers together do not say.
//
// It is exact if no two Runs took similarly long. Otherwise it is estimated, as if the runs between
// one power of two of milliseconds and the next were evenly spread about their mean.
func (h HistoryBucket) TookPercentile(percent int) time.Duration {
	runs := 0
	for _, b := range h.bins {
		runs += b.runs
	}
	rank := (runs*percent + 99) / 100 // of the run to return: 1 is the shortest
	for _, b := range h.bins {
		if rank > b.runs {
			rank -= b.runs
			continue
		}
		return b.nth(max(rank, 1))
	}
	return 0
}

// nth returns how long the nth run of a bin took, from 1 on, if all are evenly spread about their
// mean and the last one is the longest.
func (b bin) nth(n int) time.Duration {
	if b.runs <= 1 {
		return b.longest
	}
	shortest := min(max(2*b.took/time.Duration(b.runs)-b.longest, binAbove(b.number)), b.longest)
	part := float64(n-1) / float64(b.runs-1)
	return shortest + time.Duration(part*float64(b.longest-shortest))
}

func timerHistoryOf(r TimerRecord, now time.Time) TimerHistory {
	h := TimerHistory{Timer: r.Last.Timer, Last: runsOf([]Run{r.Last}, now)[0], Failures: r.Failures,
		Outcomes: make([]string, len(r.Outcomes))}
	if r.SucceededAgo != nil {
		h.SucceededAt = now.Add(-*r.SucceededAgo)
	}
	if r.Failures > 0 {
		h.FailingSince = now.Add(-r.FailingFor)
	}
	for i := range h.Outcomes {
		h.Outcomes[i] = OutcomeOf(r.Outcomes[i])
	}
	return h
}

func historyBucketsOf(buckets []Bucket, now time.Time) []HistoryBucket {
	type key struct {
		at    time.Time
		width time.Duration
	}
	list, at := make([]HistoryBucket, 0, len(buckets)), map[key]int{}
	for _, b := range buckets {
		// Rounded, because this host's clock may be a little off the store's.
		added := HistoryBucket{now.Add(-b.Ago).UTC().Round(b.Interval), b.Interval, b.Runs, b.Failed, b.Took,
			b.LongestTook, nil}
		if b.Bin > 0 {
			added.bins = []bin{{b.Bin, b.Runs, b.Took, b.LongestTook}}
		}
		k := key{added.StartedAt, added.Interval}
		if i, ok := at[k]; ok {
			list[i].Add(added)
			continue
		}
		at[k] = len(list)
		list = append(list, added)
	}
	slices.SortFunc(list, func(a, b HistoryBucket) int {
		return cmp.Or(cmp.Compare(a.Interval, b.Interval), a.StartedAt.Compare(b.StartedAt))
	})
	return list
}
