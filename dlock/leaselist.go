package dlock

import "time"

// A leaseList is a doubly linked list of leases in ascending order of key. The links are in the
// leases, so that removing one costs the same wherever it stands. Most are inserted at the end.
type leaseList struct {
	node   func(*Lease) *listNode // its links in this list
	key    func(*Lease) time.Time
	first  *Lease
	last   *Lease
	len    int // leases
	grants int // of these leases: one may have several
}

// A listNode is the links of a lease in one list.
type listNode struct {
	in         bool
	prev, next *Lease
}

func (q *leaseList) has(l *Lease) bool { return q.node(l).in }

// all iterates over the leases from first to last. The loop may remove the one that it is given.
func (q *leaseList) all(yield func(*Lease) bool) {
	for l := q.first; l != nil; {
		next := q.node(l).next
		if !yield(l) {
			return
		}
		l = next
	}
}

// insert adds leases that all have the same key, after those that have it already.
func (q *leaseList) insert(leases ...*Lease) {
	if len(leases) == 0 {
		return
	}
	key, before := q.key(leases[0]), q.last
	for before != nil && q.key(before).After(key) {
		before = q.node(before).prev
	}
	for _, l := range leases {
		after := q.first
		if before != nil {
			after = q.node(before).next
		}
		*q.node(l) = listNode{in: true, prev: before, next: after}
		*q.nextOf(before), *q.prevOf(after) = l, l
		q.len++
		q.grants += l.grants()
		before = l
	}
}

// remove removes leases; those that are not in the list are left alone.
func (q *leaseList) remove(leases ...*Lease) {
	for _, l := range leases {
		p := q.node(l)
		if !p.in {
			continue
		}
		*q.nextOf(p.prev), *q.prevOf(p.next) = p.next, p.prev
		*p = listNode{}
		q.len--
		q.grants -= l.grants()
	}
}

// nextOf and prevOf return the links of a lease, or, for nil, the ends of the list.
func (q *leaseList) nextOf(l *Lease) **Lease {
	if l == nil {
		return &q.first
	}
	return &q.node(l).next
}

func (q *leaseList) prevOf(l *Lease) **Lease {
	if l == nil {
		return &q.last
	}
	return &q.node(l).prev
}
