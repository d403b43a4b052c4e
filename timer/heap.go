package timer

import (
	"slices"
	"time"
)

// An item is something to do at an instant. Items are values, so the heap of a hundred thousand
// timers is one slice.
type item struct {
	when  int64 // µs since the epoch
	again *tick // a tick that is tried again; nil: the timer's next tick, see entry.planned
	e     *entry
}

// tryLater returns the item of a tick that is tried again.
func tryLater(when time.Time, t tick) item {
	return item{when: when.UnixMicro(), again: &t, e: t.s.entry}
}

// A tickHeap is a four-ary min-heap of items by time: it is shallower than a binary heap, and has
// half the cache misses. container/heap would allocate an interface per item.
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

// sink puts an item at i or below.
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

// removeAll removes the items of one timer, and returns its ticks that were to be tried again.
func (h *tickHeap) removeAll(e *entry) (again []tick) {
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

// removeStale removes the items of next ticks that no longer count.
func (h *tickHeap) removeStale() {
	*h = slices.DeleteFunc(*h, func(it item) bool {
		if it.again != nil {
			return false
		}
		stale := it.when != it.e.planned
		if !stale {
			it.e.planned = -it.when // a second one of the same instant is stale
		}
		return stale
	})
	for _, it := range *h {
		if it.again == nil {
			it.e.planned = it.when
		}
	}
	h.order()
}

// order restores the heap property from any order.
func (h tickHeap) order() {
	for i := (len(h) - 2) / 4; i >= 0 && len(h) > 1; i-- {
		h.sink(i, h[i])
	}
}
