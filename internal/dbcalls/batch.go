package dbcalls

import "time"

// A Batch says how many rows a call is for. A call that was too large for the link, or for the
// database, in its time would be so again, and one that the database refuses because of one row
// would be refused again: after each that fails late, or was refused, the next one is for half of
// its rows, down to one. The batch doubles again only after a call that left three quarters
// of its time, so that twice as many rows fit, too. It belongs to one goroutine.
type Batch struct {
	most    int
	timeout time.Duration
	refused func(error) bool
	limit   int
}

// NewBatch returns a Batch of at most so many rows, at least one, for calls that have so much time.
// refused reports whether an error is the database's answer, and not that there was none.
func NewBatch(most int, timeout time.Duration, refused func(error) bool) *Batch {
	return &Batch{most: max(1, most), timeout: timeout, refused: refused, limit: max(1, most)}
}

// Limit returns how many rows the next call is for, at most.
func (b *Batch) Limit() int { return b.limit }

// Ended takes for how many rows a call was, how long it took, and its error. Whether the time was
// used up is judged by how long it took: drivers and servers name the end of a deadline in a dozen
// ways, and a server that knows the deadline ends a statement before it.
func (b *Batch) Ended(rows int, took time.Duration, err error) {
	switch {
	case err != nil && (took >= b.timeout/2 || b.refused(err)):
		b.limit = max(1, min(rows, b.limit)/2)
	case err == nil && took < b.timeout/4:
		b.limit = min(b.most, 2*b.limit)
	}
}
