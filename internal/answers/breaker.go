package answers

// OpenAfter is how many failures in a row open a Breaker: a single failure may be chance.
const OpenAfter = 3

// A Breaker opens after OpenAfter failures in a row, and closes after some answers in a row. It has
// no mutex. The zero value is closed.
type Breaker struct {
	open     bool
	failures int // in a row
	answers  int // in a row
}

// Open reports whether it is open.
func (b *Breaker) Open() bool { return b.open }

// Count counts a failure, or an answer, and reports whether it has opened the breaker or closed it.
func (b *Breaker) Count(answered bool, closeAfter int) (opened, closed bool) {
	if answered {
		b.failures, b.answers = 0, b.answers+1
	} else {
		b.failures, b.answers = b.failures+1, 0
	}
	switch {
	case !b.open && b.failures >= OpenAfter:
		b.open, opened = true, true
	case b.open && b.answers >= closeAfter:
		b.open, closed = false, true
	}
	return opened, closed
}
