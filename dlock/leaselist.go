package dlock

import "time"

// A line keeps leases in an order, by an instant that each has. One may leave from wherever it
// stands, and most enter at the end.
type line struct {
	place func(*Lease) *place
	key   func(*Lease) time.Time
	first *Lease
	last  *Lease
	len   int
}

// A place is where a lease stands in a line.
type place struct {
	taken      bool
	prev, next *Lease
}

func (q *line) has(l *Lease) bool { return q.place(l).taken }

// all are the leases, first to last. The one that is given may leave meanwhile.
func (q *line) all(yield func(*Lease) bool) {
	for l := q.first; l != nil; {
		next := q.place(l).next
		if !yield(l) {
			return
		}
		l = next
	}
}

// enter lets leases in that all have the same key, behind those that have it already.
func (q *line) enter(leases ...*Lease) {
	if len(leases) == 0 {
		return
	}
	key, before := q.key(leases[0]), q.last
	for before != nil && q.key(before).After(key) {
		before = q.place(before).prev
	}
	for _, l := range leases {
		after := q.first
		if before != nil {
			after = q.place(before).next
		}
		*q.place(l) = place{taken: true, prev: before, next: after}
		*q.nextOf(before), *q.prevOf(after) = l, l
		q.len++
		before = l
	}
}

// leave does nothing to those that are not in the line.
func (q *line) leave(leases ...*Lease) {
	for _, l := range leases {
		p := q.place(l)
		if !p.taken {
			continue
		}
		*q.nextOf(p.prev), *q.prevOf(p.next) = p.next, p.prev
		*p = place{}
		q.len--
	}
}

// nextOf and prevOf are the links of a lease; of none, the ends of the line.
func (q *line) nextOf(l *Lease) **Lease {
	if l == nil {
		return &q.first
	}
	return &q.place(l).next
}

func (q *line) prevOf(l *Lease) **Lease {
	if l == nil {
		return &q.last
	}
	return &q.place(l).prev
}
