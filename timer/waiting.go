package timer

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// waiting has the due ticks that wait, at most one for each timer: the latest. Its pending says
// what the tick waits for. When a tick is to be tried again, the scheduling goroutine takes it out
// and passes it to the gate like any due tick. A tick that waits for a call has already passed the
// gate, so the acquirer takes it out.
type waiting struct {
	registry           *registry
	clock              *clock
	bell               bell
	maxPlaces          int // how many places may be taken; 0 if unlimited
	onMaxRuns          MaxRunsPolicy
	maxWait            time.Duration // how long a tick may wait for a run to end or for a place
	minPause, maxPause time.Duration // between two attempts while a tick waits for a run to end

	// The registry's mutex guards the remaining fields and entry.pending, because other data that
	// it guards determines whether a tick may wait and whether its wait is over.
	byTime     tickHeap            // by pending.until; may have timers whose tick no longer waits until then
	timed      int                 // how many ticks wait until a time, at the latest
	forRun     map[*entry]*pending // ticks that wait for a run to end
	asking     map[*entry]*pending // ticks whose blackouts are being called, see planner.askAside
	placeQueue queue               // ticks and triggers that wait for a place
	callQueue  queue               // ticks and triggers that wait for a call to the store
	inFlight   int                 // calls to the store in progress
	moves      []move              // moves of next ticks, see moveNext
}

func newWaiting(config Config, g *registry) *waiting {
	return &waiting{registry: g, clock: new(clock), bell: make(bell, 1),
		maxPlaces: max(0, config.MaxRuns), onMaxRuns: config.OnMaxRuns, maxWait: config.MaxWait,
		minPause: config.StoreTimeout / 4, maxPause: config.TTL / 3,
		forRun: make(map[*entry]*pending), asking: make(map[*entry]*pending)}
}

// later makes a tick wait for the given time, while other hosts or triggers go first. It returns
// false if the tick may not wait.
func (w *waiting) later(t tick, wait time.Duration) bool {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	return w.delay(t, wait)
}

// delay is later for a caller that holds the registry's mutex.
func (w *waiting) delay(t tick, wait time.Duration) bool {
	if !w.mayWait(t) {
		return false
	}
	w.put(&pending{tick: t, on: forTime, why: ReasonMissed}, w.clock.now().Add(wait))
	return true
}

// refuse handles a tick that may not start now. If decide lets the tick wait, refuse frees its
// place, if it has one. It reports whether the tick waits. If not, the caller must skip the tick
// and free its place.
func (w *waiting) refuse(t tick, why Reason, err error, placed bool) (waits bool) {
	no := refusal(err) // without a mutex, because refusal may call methods of the store's error
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	now, since := w.clock.now(), t.waitsSince
	if since.IsZero() {
		since = time.Now()
	}
	r := refused{why: why, latest: w.mayWait(t), present: t.s.current(), onFull: t.s.timer.OnFull,
		queues: w.onMaxRuns == MaxRunsWait, waited: time.Since(since), maxWait: w.maxWait, next: math.MaxInt64}
	_, r.fixed = t.s.delay()
	if next, _ := t.s.entry.ticks.read(); next != 0 {
		r.next = time.UnixMicro(next).Sub(now)
	}
	if why == ReasonQuarantine && no != nil {
		r.quarantine = min(max(no.ExpiresIn, unknownQuarantine), math.MaxInt64/2) + time.Millisecond
	}
	if r.pause = w.pause(t.s, why, r.waited); why == ReasonLimitRate {
		if again, ok := rateAgain(no, err); ok {
			r.pause = again
		}
	}
	on, in := decide(r)
	if on == forNothing {
		return false
	}
	p := &pending{tick: t.anew(), on: on, why: why, err: err}
	if on == forRun || on == forPlace {
		p.waitsSince = since
	}
	if on == forTime && why != ReasonQuarantine {
		p.why, p.err = ReasonMissed, nil // the settings that forbade the start are gone
	}
	w.put(p, now.Add(in))
	if on == forPlace {
		w.givePlaces() // a place may have become free in the meantime
	}
	if placed {
		w.registry.leaveLocked(t.s)
	}
	return true
}

// mayWait reports whether a tick may wait. It may if it is the latest tick of its timer, the timer
// still has the same schedule, and ticks may start. The caller holds the registry's mutex.
func (w *waiting) mayWait(t tick) bool {
	_, due := t.s.entry.ticks.read()
	return w.registry.starting() && t.s.stillScheduled() && due == t.at && t.s.entry.pending == nil
}

// put makes a tick wait. The caller holds the registry's mutex.
func (w *waiting) put(p *pending, until time.Time) {
	e := p.s.entry
	e.pending = p
	w.timed++
	switch p.on {
	case forRun:
		w.forRun[e] = p
	case forPlace:
		w.placeQueue.add(p)
	}
	w.at(p, until)
}

// at sets the latest time at which a tick is tried again. The caller holds the registry's mutex.
func (w *waiting) at(p *pending, until time.Time) {
	p.until = schedule.RoundUp(until).UnixMicro()
	if len(w.byTime) == 0 || p.until < w.byTime[0].when {
		w.bell.ring()
	}
	w.byTime.push(item{when: p.until, e: p.s.entry})
	if len(w.byTime) > 2*w.timed+maxInFlight {
		w.byTime = slices.DeleteFunc(w.byTime, func(it item) bool { return waitsUntil(it) == nil })
		w.byTime.order()
	}
}

// waitsUntil returns the tick of an item of byTime, or nil if the tick no longer waits until that
// time.
func waitsUntil(it item) *pending {
	if p := it.e.pending; p != nil && p.until == it.when {
		return p
	}
	return nil
}

// takeOut ends the wait of a tick. The caller holds the registry's mutex.
func (w *waiting) takeOut(p *pending) {
	p.s.entry.pending = nil
	if p.on != forCall {
		w.timed--
	}
	delete(w.forRun, p.s.entry)
	delete(w.asking, p.s.entry)
	if p.queue != nil {
		p.queue.remove(p)
	}
}

// overtake ends the wait of a tick because a later tick of its timer is due. It returns nil if no
// tick waits, or if the timer no longer has the schedule of the later tick. In a queue the later
// tick replaces the earlier one and waits.
func (w *waiting) overtake(t tick) (earlier *pending, waits bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	p := t.s.entry.pending
	if p == nil || !t.s.stillScheduled() {
		return nil, false
	}
	if p.queue == nil && !p.turn || p.s.registration != t.s.registration {
		w.takeOut(p)
		w.release(p)
		return p, false
	}
	was := *p
	p.tick = t
	if p.on == forPlace && !p.turn {
		p.waitsSince = time.Now()
		w.at(p, w.clock.now().Add(w.maxWait))
	}
	return &was, true
}

// due takes out up to most ticks that have to be tried now. next is the time of the next one in µs,
// or 0 if there is none. The caller holds the registry's mutex.
func (w *waiting) due(now int64, most int) (list []*pending, next int64) {
	for len(w.byTime) > 0 && len(list) < most {
		if w.byTime[0].when > now {
			return list, w.byTime[0].when
		}
		if p := waitsUntil(w.byTime.pop()); p != nil {
			w.takeOut(p)
			list = append(list, p)
		}
	}
	return list, 0
}

// ask marks a tick that was taken out as waiting for its blackouts. The caller holds the registry's
// mutex.
func (w *waiting) ask(p *pending) {
	p.s.entry.pending, p.until = p, 0
	w.timed++
	w.asking[p.s.entry] = p
}

// asked records the result of the blackouts. Unless the tick no longer waits, it is then tried
// immediately. The caller holds the registry's mutex.
func (w *waiting) asked(p *pending, blackout error) {
	if w.asking[p.s.entry] != p {
		return
	}
	delete(w.asking, p.s.entry)
	p.blackoutsAsked, p.blackout = true, blackout
	w.at(p, w.clock.now())
}

// putBack returns a tick that was taken out, but not tried, to the waiting ticks. It returns false
// if the tick may not wait. The caller holds the registry's mutex.
func (w *waiting) putBack(p pending) bool {
	if !w.mayWait(p.tick) {
		return false
	}
	p.s.entry.pending = &p
	w.timed++
	w.at(&p, w.clock.now())
	return true
}

// tryAll causes all waiting ticks to be tried immediately, because their times were computed before
// the clock was set back. The caller holds the registry's mutex.
func (w *waiting) tryAll() {
	was := w.byTime
	w.byTime = nil
	for _, it := range was {
		if p := waitsUntil(it); p != nil {
			w.at(p, w.clock.now())
		}
	}
}

// withdraw ends the waits of a timer that was removed or updated. If an updated timer has the same
// schedule, its tick stays and is tried with the current settings. Otherwise withdraw returns the
// tick for the caller to skip, or nil if there is none. Triggers with the current settings are not
// affected. The caller holds the registry's mutex.
func (w *waiting) withdraw(e *entry) *pending {
	for _, q := range [...]*queue{&w.placeQueue, &w.callQueue} {
		q.dismiss(func(s *settings) bool { return s.entry == e && !s.current() })
	}
	p := e.pending
	switch {
	case p == nil:
		return nil
	case !p.s.stillScheduled() || !w.registry.starting():
		w.takeOut(p)
		return p
	}
	w.takeOut(p)
	w.put(&pending{tick: p.anew(), on: forTime, why: ReasonMissed}, w.clock.now())
	w.release(p)
	return nil
}

// close ends all waits when the host drains.
func (w *waiting) close() (left []*pending) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	for _, q := range [...]*queue{&w.placeQueue, &w.callQueue} {
		q.dismiss(func(*settings) bool { return true })
	}
	for _, it := range w.byTime {
		if p := waitsUntil(it); p != nil {
			w.takeOut(p)
			left = append(left, p)
		}
	}
	w.byTime = nil
	for _, p := range w.asking {
		w.takeOut(p)
		left = append(left, p)
	}
	for p := w.callQueue.oldest(); p != nil; p = w.callQueue.oldest() {
		w.takeOut(p)
		left = append(left, p)
	}
	return left
}

// leave frees the place of a tick that was skipped while it waited, if it has one.
func (w *waiting) leave(p *pending) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	w.release(p)
}

// release is leave for a caller that holds the registry's mutex.
func (w *waiting) release(p *pending) {
	switch {
	case p.on == forCall:
		w.registry.leaveLocked(p.s)
	case p.turn:
		w.registry.giveUpTurn(p.s.entry)
	}
}

// waitsForRun returns the tick of a timer that waits for a run to end, or the zero time if none
// does. The caller holds the registry's mutex.
func (e *entry) waitsForRun() time.Time {
	if p := e.pending; p != nil && p.on == forRun {
		return time.UnixMicro(p.at).UTC()
	}
	return time.Time{}
}

// maxInFlight is the maximum number of calls for ticks and triggers that a host has in flight.
// Further ones wait for their turn.
const maxInFlight = 64

// call reports whether a tick may call the store now. If so, the call counts as in flight until
// nextCall. Otherwise the tick waits for its turn, unless call returns a reason why it may not
// wait. The tick already has a place and keeps it.
func (w *waiting) call(t tick) (now bool, why Reason) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	switch {
	case !w.registry.mayStart(t.s):
		return false, ReasonDraining
	case w.inFlight < maxInFlight:
		w.inFlight++
		return true, ""
	case !w.mayWait(t): // a later tick is due
		return false, ReasonStoreBusy
	}
	p := &pending{tick: t, on: forCall, why: ReasonStoreBusy}
	t.s.entry.pending = p
	w.callQueue.add(p)
	return false, ""
}

// awaitCall waits until a Trigger may call the store. The call then counts as in flight until
// nextCall. It returns false if ctx has ended, the timer was removed, or the host drains.
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
	t := w.callQueue.enqueue(s)
	g.mu.Unlock()
	select {
	case <-t.ready:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return w.callQueue.leave(t)
}

// nextCall passes the right to call the store to the tick whose turn has come. It returns false if
// a Trigger has the turn instead. If nothing waits, it also returns false, and one call fewer is in
// flight.
func (w *waiting) nextCall() (t tick, ok bool) {
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	p, trigger := w.callQueue.serve()
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
	for p := w.callQueue.oldest(); p != nil; p = w.callQueue.oldest() {
		w.takeOut(p)
		list = append(list, p.tick)
	}
	return list
}
