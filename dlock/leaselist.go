package dlock

import "time"

// A leaseList is a doubly linked list of leases in ascending order of key. The links are part of
// the leases, so that a removal takes the same time at any position. Most leases are inserted at
// the end.
type leaseList struct {
	node   func(*Lease) *listNode // returns a lease's links in this list
	key    func(*Lease) time.Time
	first  *Lease
	last   *Lease
	len    int // number of leases
	grants int // number of their grants; a lease may have several
}

// A listNode holds the links of a lease in one list.
type listNode struct {
	in         bool
	prev, next *Lease
}

func (l *leaseList) has(lease *Lease) bool { return l.node(lease).in }

// all iterates over the leases from first to last. The loop may remove the current lease.
func (l *leaseList) all(yield func(*Lease) bool) {
	for lease := l.first; lease != nil; {
		next := l.node(lease).next
		if !yield(lease) {
			return
		}
		lease = next
	}
}

// insert inserts leases that all have the same key. They follow earlier leases with this key.
func (l *leaseList) insert(leases ...*Lease) {
	if len(leases) == 0 {
		return
	}
	key, before := l.key(leases[0]), l.last
	for before != nil && l.key(before).After(key) {
		before = l.node(before).prev
	}
	for _, lease := range leases {
		after := l.first
		if before != nil {
			after = l.node(before).next
		}
		*l.node(lease) = listNode{in: true, prev: before, next: after}
		*l.nextOf(before), *l.prevOf(after) = lease, lease
		l.len++
		l.grants += lease.grants()
		before = lease
	}
}

// remove removes leases. It ignores leases that are not in the list.
func (l *leaseList) remove(leases ...*Lease) {
	for _, lease := range leases {
		p := l.node(lease)
		if !p.in {
			continue
		}
		*l.nextOf(p.prev), *l.prevOf(p.next) = p.next, p.prev
		*p = listNode{}
		l.len--
		l.grants -= lease.grants()
	}
}

// nextOf and prevOf return the links of a lease. For nil they return the ends of the list.
func (l *leaseList) nextOf(lease *Lease) **Lease {
	if lease == nil {
		return &l.first
	}
	return &l.node(lease).next
}

func (l *leaseList) prevOf(lease *Lease) **Lease {
	if lease == nil {
		return &l.last
	}
	return &l.node(lease).prev
}
