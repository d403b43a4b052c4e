package timer

import "context"

// maxInFlight is how many calls for ticks and triggers a host has in flight at most; further ones
// wait for their turn.
const maxInFlight = 64

// call reports whether a tick may call the store now, which counts until nextCall; if not, it waits
// for its turn, unless there is a reason why it may not. It has a place, and keeps it.
func (w *waiting) call(t tick) (now bool, why Reason) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	switch {
	case !w.registry.mayStart(t.s):
		return false, ReasonDraining
	case w.inFlight < maxInFlight:
		w.inFlight++
		return true, ""
	case !w.mayWait(t): // a later one has come due
		return false, ReasonStoreBusy
	}
	p := &pending{tick: t, on: forCall, why: ReasonStoreBusy}
	t.s.entry.pending = p
	w.calls.add(p)
	return false, ""
}

// awaitCall waits until a Trigger may call the store, which counts until nextCall. It reports false
// when ctx has ended, the timer was removed, or the host drains.
func (w *waiting) awaitCall(ctx context.Context, s *settings) bool {
	g := w.registry
	g.mu.Lock()
	switch {
	case !g.mayStart(s):
		g.mu.Unlock()
		return false
	case w.inFlight < maxInFlight:
		w.inFlight++
		g.mu.Unlock()
		return true
	}
	t := w.calls.enqueue(s)
	g.mu.Unlock()
	select {
	case <-t.ready:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return w.calls.leave(t)
}

// nextCall passes a call that has ended on to the tick whose turn has come. It returns false if
// that of a Trigger has, or if nothing waits: then one call less is in flight.
func (w *waiting) nextCall() (t tick, ok bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	p, trigger := w.calls.serve()
	switch {
	case trigger != nil:
		return t, false
	case p == nil:
		w.inFlight--
		return t, false
	}
	w.takeOut(p)
	return p.tick, true
}

// allCalls takes out all ticks that wait for a call.
func (w *waiting) allCalls() (list []tick) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	for p := w.calls.oldest(); p != nil; p = w.calls.oldest() {
		w.takeOut(p)
		list = append(list, p.tick)
	}
	return list
}
