package answers

import "time"

// A Batch limits the number of rows in a call. A call that was too large to complete in its time
// would fail again with the same size, so each call that fails late halves the next one, down to
// one row. The size doubles only after a call that used less than a quarter of its time, so that
// twice as many rows also fit. A Batch is for one goroutine.
type Batch struct {
	most    int
	timeout time.Duration
	limit   int
	failed  bool // the last call that wrote rows failed
}

// NewBatch returns a Batch of at most the given number of rows, but at least one, for calls with
// the given timeout.
func NewBatch(most int, timeout time.Duration) *Batch {
	return &Batch{most: max(1, most), timeout: timeout, limit: max(1, most)}
}

// Limit returns the maximum number of rows in the next call.
func (b *Batch) Limit() int { return b.limit }

// Ended records the duration of a call and its error. The duration tells whether the call used up
// its time, because drivers and servers report an exceeded deadline in a dozen ways, and a server
// that knows the deadline ends the statement earlier.
func (b *Batch) Ended(took time.Duration, err error) {
	switch {
	case err != nil && took >= b.timeout/2:
		b.limit = max(1, b.limit/2)
	case err == nil && took < b.timeout/4:
		b.limit = min(b.most, 2*b.limit)
	}
}

// Wrote is like Ended, for a call that writes rows. The database may reject the call each time
// because of one row, for example because a trigger fails, and its error need not say so. So after
// two consecutive failures, the second one and each later one halve the next call, and the row is
// soon alone.
func (b *Batch) Wrote(rows int, took time.Duration, err error) {
	again := b.failed
	b.failed = err != nil
	if err != nil && (again || took >= b.timeout/2) {
		b.limit = max(1, min(rows, b.limit)/2)
		return
	}
	b.Ended(took, err)
}
