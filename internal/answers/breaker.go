package answers

// OpenAfter is the number of consecutive failures that opens a Breaker. A single failure may be
// chance.
const OpenAfter = 3

// A Breaker opens after OpenAfter consecutive failures and closes after a number of consecutive
// answers. It has no mutex. The zero value is closed.
type Breaker struct {
	open     bool
	failures int // consecutive
	answers  int // consecutive
}

// Open reports whether the breaker is open.
func (b *Breaker) Open() bool { return b.open }

// Count counts a failure or an answer and reports whether it opened or closed the breaker.
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
