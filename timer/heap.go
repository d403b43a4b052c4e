package timer

import (
	"slices"
)

// An item is a task for a timer at an instant. Items are values, so that the heap of a hundred
// thousand timers is a single slice.
type item struct {
	when int64 // µs since the epoch
	e    *entry
}

// A tickHeap is a four-ary min-heap of items by time. It is shallower than a binary heap and causes
// half the cache misses. container/heap would allocate an interface value per item.
type tickHeap []item

func (t *tickHeap) push(it item) {
	*t = append(*t, it)
	s := *t
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

func (t *tickHeap) pop() item {
	s := *t
	top, last := s[0], s[len(s)-1]
	s[len(s)-1] = item{}
	s = s[:len(s)-1]
	*t = s
	if len(s) > 0 {
		s.sink(0, last)
	}
	return top
}

// sink places an item at i or below.
func (t tickHeap) sink(i int, it item) {
	for {
		child := 4*i + 1
		if child >= len(t) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(t)); c++ {
			if t[c].when < t[least].when {
				least = c
			}
		}
		if it.when <= t[least].when {
			break
		}
		t[i] = t[least]
		i = least
	}
	t[i] = it
}

// removeStale removes the items of ticks that are no longer the next tick of their timer.
func (t *tickHeap) removeStale() {
	*t = slices.DeleteFunc(*t, func(it item) bool {
		stale := it.when != it.e.planned
		if !stale {
			it.e.planned = -it.when // marks a second item for the same instant as stale
		}
		return stale
	})
	for _, it := range *t {
		it.e.planned = it.when
	}
	t.order()
}

// order restores the heap property of a slice in any order.
func (t tickHeap) order() {
	for i := (len(t) - 2) / 4; i >= 0 && len(t) > 1; i-- {
		t.sink(i, t[i])
	}
}
