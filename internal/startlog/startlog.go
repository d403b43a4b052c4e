// Package startlog enforces a rate: a log of the starts under a limit determines when the next
// start is allowed. In any window of length Per, wherever it begins, there are at most Rate starts.
//
// The log has at most 64 records at any rate. A record stands for one or more starts and holds the
// time of the last one, or a later time. A start recorded with a later time counts for longer than
// necessary, never for less, so no window has too many starts. Up to a rate of 60 each start has
// its own record, and the limit is fully used. At a higher rate, all starts within a sixtieth of
// Per share a record, so a burst may have to wait for up to Per/60 longer.
//
// The oldest record stands for all starts before it. A caller with a longer Per than others
// therefore counts all starts that it cannot tell apart, and waits.
//
// The stores in other languages (acquire.lua and the procedures of sqllock) apply the same rules to
// the text that String returns. Times are in microseconds of the store's clock.
package startlog

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// exact is the largest rate at which every start has its own record. At larger rates it is the
	// number of records within Per.
	exact = 60
	// maxRecords is more than the number of records that overlap a window of Per: exact records,
	// and those at its ends.
	maxRecords = 64
	// width is the length of a record as text: 16 digits for End and 10 for Count.
	width = 26
	// maxCount is the largest Count. No rate is that large.
	maxCount = 9_999_999_999
)

// A Log holds the latest starts, oldest first.
type Log []Record

// A Record stands for Count starts, none of which was after End.
type Record struct{ End, Count int64 }

// Parse parses the text that String returns.
func Parse(text string) (Log, error) {
	if len(text)%width != 0 || len(text) > width*maxRecords || strings.Trim(text, "0123456789") != "" {
		return nil, fmt.Errorf("a log of starts of %d bytes is malformed", len(text))
	}
	log := make(Log, 0, len(text)/width)
	for ; text != ""; text = text[width:] {
		end, _ := strconv.ParseInt(text[:16], 10, 64)
		count, _ := strconv.ParseInt(text[16:width], 10, 64)
		log = append(log, Record{end, count})
	}
	return log, nil
}

func (l Log) String() string {
	var b strings.Builder
	for _, r := range l {
		fmt.Fprintf(&b, "%016d%010d", r.End, r.Count)
	}
	return b.String()
}

// Wait returns the time until another start is allowed, or 0 if one is allowed now.
func (l Log) Wait(now int64, rate int, per int64) int64 {
	sum := int64(0)
	for i := len(l) - 1; i >= 0 && l[i].End > now-per; i-- {
		if sum += l[i].Count; sum >= int64(rate) {
			return l[i].End + per - now
		}
	}
	return 0
}

// Left returns how many more starts are allowed now.
func (l Log) Left(now int64, rate int, per int64) int {
	sum := int64(0)
	for i := len(l) - 1; i >= 0 && l[i].End > now-per; i-- {
		sum += l[i].Count
	}
	return int(max(0, int64(rate)-sum))
}

// Micros returns a duration in microseconds, rounded up.
func Micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// Add returns the log with an additional start at now, which must be allowed. grain is the
// resolution of now.
func (l Log) Add(now int64, rate int, per, grain int64) Log {
	bucket := grain
	if rate > exact {
		bucket = ((per+exact-1)/exact + grain - 1) / grain * grain
	}
	end := now - now%bucket + bucket
	if n := len(l); n > 0 && l[n-1].End >= end {
		l[n-1].Count++ // the clock may have been set back: the later time counts
		return l
	}
	if l = append(l, Record{end, 1}); len(l) > maxRecords {
		l[1].Count = min(l[0].Count+l[1].Count, maxCount)
		l = append(l[:0], l[1:]...)
	}
	return l
}

// Disbelieve replaces starts that were recorded while the clock was more than ahead in the future.
// They happened before now, so they count as starts at now. It reports whether there were any.
func (l Log) Disbelieve(now, per, ahead int64) (Log, bool) {
	if n := len(l); n == 0 || l[n-1].End <= now+ahead+per/exact {
		return l, false
	}
	sum := int64(0)
	for len(l) > 0 && l[len(l)-1].End > now {
		sum += l[len(l)-1].Count
		l = l[:len(l)-1]
	}
	return append(l, Record{now, min(sum, maxCount)}), true
}
