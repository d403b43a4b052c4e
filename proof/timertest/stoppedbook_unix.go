//go:build unix

package timertest

import (
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A book records the events that a host reports.
type book struct {
	mu     sync.Mutex
	events []event
}

func (b *book) add(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// all returns the events of a kind, of one timer or, for "", of all.
func (b *book) all(w what, name string) (list []event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.What == w && (name == "" || e.Timer == name) {
			list = append(list, e)
		}
	}
	return list
}

func (b *book) count(w what, name string) int { return len(b.all(w, name)) }

func (b *book) first(w what, name string) (e event) {
	if list := b.all(w, name); len(list) > 0 {
		return list[0]
	}
	return e
}

func (b *book) last(w what, name string) (e event) {
	if list := b.all(w, name); len(list) > 0 {
		return list[len(list)-1]
	}
	return e
}

// forget removes the events of a kind.
func (b *book) forget(w what) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = slices.DeleteFunc(b.events, func(e event) bool { return e.What == w })
}

// runs returns the runs of a timer.
func (b *book) runs(name string) (list []span) {
	type grant struct {
		slot  int
		fence dlock.Fence
	}
	ends := map[grant]time.Time{}
	for _, e := range b.all(returned, name) {
		if e.Valid {
			ends[grant{e.Slot, e.Fence}] = e.At
		}
	}
	for _, e := range b.all(began, name) {
		list = append(list, span{e.Fence, e.At, ends[grant{e.Slot, e.Fence}]})
	}
	return list
}

// A span is a run as reported by its host.
type span struct {
	fence      dlock.Fence
	began, end time.Time // end: zero while it is running, or if it was not valid until the end
}

// after returns the runs that were granted after a stamp.
func after(list []span, stamp dlock.Fence) []span {
	return slices.DeleteFunc(list, func(r span) bool { return r.fence <= stamp })
}

// together returns the largest number of concurrently valid runs at an instant when at least one of
// them had been granted after a stamp. A run reports its start after its slot was granted, and its
// return before the slot is released, so the number is never too high.
func together(list []span, stamp dlock.Fence) (most int) {
	for _, at := range list {
		n := 0
		newest := dlock.Fence(0)
		for _, r := range list {
			if !r.began.After(at.began) && r.end.After(at.began) {
				n++
				newest = max(newest, r.fence)
			}
		}
		if newest > stamp {
			most = max(most, n)
		}
	}
	return most
}
