package outbox

import "sync"

// defaultWindow is how many IDs a Window remembers if nothing else is said.
const defaultWindow = 1024

// A Window remembers the last messages that a receiver has had, in memory, for one that keeps a log
// of its own (an aggregate, for example) and rebuilds the window from it. It forgets the one that
// came first. It has to be larger than the number of other messages that the receiver may have
// between two deliveries of the same one.
//
// The zero value has room for 1,024 IDs. Its methods may be called from any goroutine.
type Window struct {
	mu   sync.Mutex
	size int
	ring []ID // the oldest is at next once it is full
	next int
	has  map[ID]bool
}

// NewWindow returns a window with room for size IDs; 0: for 1,024.
func NewWindow(size int) *Window { return &Window{size: max(0, size)} }

// Add remembers an ID, and reports whether it was not there: then the message is new. Call it when
// the effect of the message is in the receiver's log.
func (w *Window) Add(id ID) (fresh bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add(id)
}

func (w *Window) add(id ID) bool {
	if w.has == nil {
		w.has = map[ID]bool{}
		orDefault(&w.size, defaultWindow)
	}
	if w.has[id] {
		return false
	}
	if len(w.ring) < w.size {
		w.ring = append(w.ring, id)
	} else {
		delete(w.has, w.ring[w.next])
		w.ring[w.next] = id
		w.next = (w.next + 1) % w.size
	}
	w.has[id] = true
	return true
}

// Has reports whether an ID is there.
func (w *Window) Has(id ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.has[id]
}

// Load empties the window and fills it with IDs from the receiver's own log, the oldest first.
func (w *Window) Load(ids []ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ring, w.next, w.has = nil, 0, nil
	for _, id := range ids {
		w.add(id)
	}
}
