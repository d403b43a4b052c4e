package timer

import (
	"slices"
)

// An item is something to do about a timer at an instant. Items are values, so the heap of a
// hundred thousand timers is one slice.
type item struct {
	when int64 // µs since the epoch
	e    *entry
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

// removeStale removes the items of next ticks that no longer count.
func (h *tickHeap) removeStale() {
	*h = slices.DeleteFunc(*h, func(it item) bool {
		stale := it.when != it.e.planned
		if !stale {
			it.e.planned = -it.when // a second one of the same instant is stale
		}
		return stale
	})
	for _, it := range *h {
		it.e.planned = it.when
	}
	h.order()
}

// order restores the heap property from any order.
func (h tickHeap) order() {
	for i := (len(h) - 2) / 4; i >= 0 && len(h) > 1; i-- {
		h.sink(i, h[i])
	}
}
