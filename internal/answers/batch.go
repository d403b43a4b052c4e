package answers

import "time"

// A Batch limits how many rows a call has. If a call was too large for the link, or for the
// database, in its time, the next one would be so again: each that fails late halves the next one,
// down to one row. The batch doubles again only after a call that left three quarters of its time,
// so that twice as many rows fit, too. It belongs to one goroutine.
type Batch struct {
	most    int
	timeout time.Duration
	limit   int
	failed  bool // the latest call that wrote rows
}

// NewBatch returns a Batch of at most that many rows, at least one, for calls with that time-out.
func NewBatch(most int, timeout time.Duration) *Batch {
	return &Batch{most: max(1, most), timeout: timeout, limit: max(1, most)}
}

// Limit returns how many rows the next call may have.
func (b *Batch) Limit() int { return b.limit }

// Ended records how long a call took, and its error. Whether the time was used up is judged by how
// long the call took: drivers and servers name the end of a deadline in a dozen ways, and a server
// that knows the deadline ends a statement before it.
func (b *Batch) Ended(took time.Duration, err error) {
	switch {
	case err != nil && took >= b.timeout/2:
		b.limit = max(1, b.limit/2)
	case err == nil && took < b.timeout/4:
		b.limit = min(b.most, 2*b.limit)
	}
}

// Wrote is like Ended, for a call that writes rows. The database may refuse the call because of one
// row, for instance because a trigger fails, and then refuses it each time. The error does not say
// so: it may be anything. So if two calls in a row fail, the second one and each after it halve the
// next one, and the row is soon alone.
func (b *Batch) Wrote(rows int, took time.Duration, err error) {
	again := b.failed
	b.failed = err != nil
	if err != nil && (again || took >= b.timeout/2) {
		b.limit = max(1, min(rows, b.limit)/2)
		return
	}
	b.Ended(took, err)
}
