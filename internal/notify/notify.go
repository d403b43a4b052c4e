// Package notify calls hooks in order, one at a time, on a separate goroutine, from a bounded
// queue. So a hook that is slow, hangs or panics does not affect its caller.
//
// Not every event is guaranteed to arrive. If hooks are slower than events occur, events are lost;
// if a hook never returns, all later ones are.
package notify

import (
	"runtime/debug"
	"sync"
	"time"
)

// MaxWaiting is the maximum number of waiting events; further ones are dropped. It is twenty times
// the number of events of a thousand timers that are due at the same time, and takes a few
// megabytes.
const MaxWaiting = 10_000

// A Queue holds the events that wait for their hooks. Its goroutine exists only while there are
// any. The zero value is ready for use.
type Queue struct {
	// Panicked is called on that goroutine after a hook has panicked. If nil, panics are ignored.
	Panicked func(hook string, value any, stack []byte)

	mu         sync.Mutex
	waiting    []event
	dropped    uint64
	closed     bool
	delivering bool          // the goroutine exists
	calling    string        // the hook in progress; "" if none
	calledAt   time.Time     // when the hook in progress began
	idle       chan struct{} // closed when the goroutine ends; nil if no caller waits for it
}

// An event is a call of a hook.
type event struct {
	hook string
	call func()
}

// Put queues the call of a hook and reports false if it was dropped. It does not block and does not
// call hooks, so the caller may hold any mutex.
func (q *Queue) Put(hook string, call func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.waiting) >= MaxWaiting {
		q.dropped++
		return false
	}
	q.waiting = append(q.waiting, event{hook, call})
	if !q.delivering {
		q.delivering = true
		go q.deliver()
	}
	return true
}

// Dropped returns the number of events dropped so far.
func (q *Queue) Dropped() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// deliver calls the hooks of the waiting events until none is left.
func (q *Queue) deliver() {
	over := false
	defer func() {
		if !over { // the hook called runtime.Goexit, as t.FailNow does
			go q.deliver()
		}
	}()
	for {
		e, ok := q.next()
		if !ok {
			over = true
			return
		}
		q.call(e)
	}
}

// next removes the oldest event from the queue. ok is false if none waits, and then the goroutine
// ends.
func (q *Queue) next() (e event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calling = ""
	if len(q.waiting) > 0 {
		e, q.waiting[0] = q.waiting[0], event{}
		q.waiting = q.waiting[1:]
		q.calling, q.calledAt = e.hook, time.Now()
		return e, true
	}
	q.waiting, q.delivering = nil, false
	if q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	return e, false
}

func (q *Queue) call(e event) {
	defer func() {
		if p := recover(); p != nil && q.Panicked != nil {
			q.Panicked(e.hook, p, debug.Stack())
		}
	}()
	e.call()
}

// Close waits up to timeout until the queued events are delivered. Then it drops the remaining
// ones, and waits for the call in progress until that has also lasted for timeout. It returns the
// hook that has still not returned, whose goroutine is abandoned, or "" if there is none. Later
// events are dropped.
func (q *Queue) Close(timeout time.Duration) (stuck string) {
	q.mu.Lock()
	q.closed = true
	if !q.delivering {
		q.mu.Unlock()
		return ""
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case <-idle:
			return ""
		case <-timer.C:
		}
		q.mu.Lock()
		q.dropped += uint64(len(q.waiting))
		q.waiting = nil
		hook, left := q.calling, timeout-time.Since(q.calledAt)
		q.mu.Unlock()
		if hook != "" && left <= 0 {
			return hook
		}
		timer.Reset(max(left, time.Millisecond)) // between two calls, when the goroutine is about to end
	}
}
