package outbox

import "sync"

// defaultWindow is how many IDs a Window remembers by default.
const defaultWindow = 1024

// A Window remembers, in memory, the latest messages that a receiver has processed. It is for a
// receiver, for example an aggregate, that keeps its own log and rebuilds the window from that log.
// When the window is full, it forgets the oldest message. It must be larger than the number of
// other messages that may arrive between two deliveries of the same message.
//
// The zero value has room for 1,024 IDs. Its methods may be called from any goroutine.
type Window struct {
	mu   sync.Mutex
	size int
	ring []ID // the oldest is at next once it is full
	next int
	has  map[ID]bool
}

// NewWindow returns a Window with room for size IDs, or for 1,024 if size is 0.
func NewWindow(size int) *Window { return &Window{size: max(0, size)} }

// Add adds an ID and reports whether it is new to the window. Call it when the effect of the
// message is in the receiver's log.
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

// Has reports whether the window has an ID.
func (w *Window) Has(id ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.has[id]
}

// Load empties the window and fills it with IDs from the receiver's own log, oldest first.
func (w *Window) Load(ids []ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ring, w.next, w.has = nil, 0, nil
	for _, id := range ids {
		w.add(id)
	}
}
