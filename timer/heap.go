package timer

import "time"

// An item of the heap is something to do at an instant. It is a value: a hundred thousand timers
// are one slice.
type item struct {
	when  int64    // µs since the epoch
	again *dueTick // a tick that is tried later than it was due; nil: the timer's next tick comes due
	e     *entry
}

// tryLater is a tick that is tried later than it was due.
func tryLater(when time.Time, e *entry, t dueTick) item {
	return item{when: when.UnixMicro(), again: &t, e: e}
}

// tickHeap is a four-ary min-heap of items by time: shallower than a binary heap, and half the
// cache misses. container/heap would allocate an interface per item.
type tickHeap []item

func (h *tickHeap) push(it item) {
	*h = append(*h, it)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if s[parent].when <= it.when {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = it
}

func (h *tickHeap) pop() item {
	s := *h
	top, last := s[0], s[len(s)-1]
	s[len(s)-1] = item{}
	s = s[:len(s)-1]
	*h = s
	if len(s) > 0 {
		s.sink(0, last)
	}
	return top
}

// sink puts it where i is, or below.
func (h tickHeap) sink(i int, it item) {
	for {
		child := 4*i + 1
		if child >= len(h) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(h)); c++ {
			if h[c].when < h[least].when {
				least = c
			}
		}
		if it.when <= h[least].when {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = it
}

// removeAll drops the items of one timer.
func (h *tickHeap) removeAll(e *entry) (again []dueTick) {
	s := (*h)[:0]
	for _, it := range *h {
		switch {
		case it.e != e:
			s = append(s, it)
		case it.again != nil:
			again = append(again, *it.again)
		}
	}
	clear((*h)[len(s):])
	*h = s
	s.order()
	return again
}

// order makes a heap of items in any order.
func (h tickHeap) order() {
	for i := (len(h) - 2) / 4; i >= 0 && len(h) > 1; i-- {
		h.sink(i, h[i])
	}
}
