package dlocktest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// A model knows which answers a correct store may give. The store acts at an unknown moment between
// a request and its answer, and after a fault it may not have acted at all. So for every attempt,
// the model tracks until when the lease is certainly held and until when it may be held. An answer
// is wrong only if neither case allows it. With a virtual clock and without faults, both times are
// equal and the model is exact.
type model struct {
	slack    time.Duration
	locks    map[lockKey]*modelLock
	attempts []*modelAttempt
}

type lockKey struct {
	name  string
	mutex bool
}

func keyOf(req driver.Request) lockKey { return lockKey{req.Name, req.Slots == 0} }

type modelLock struct {
	fences map[int]driver.Fence // highest fence seen per slot
	ticks  map[int64]*modelTick
	// The highest tick that was certainly claimed, and the highest that may have been.
	sureTick, maybeTick int64
}

type modelTick struct{ sure, maybe int } // numbers of starts

type modelAttempt struct {
	req       driver.Request
	firstSent time.Time
	grant     driver.Grant // zero if unknown
	known     bool
	wild      bool      // may have another grant, because the known one may have ended before a request arrived
	heldTo    time.Time // certainly held until then unless something ends it
	maybeTo   time.Time // certainly not held from then on, unless a request is still on its way
	starts    int       // number of requests that may have started its tick
	givenUp   bool      // a release was attempted

	// lateKeep and lateRelease mean that a request that extends or releases the lease may still
	// reach the store, at any time until the faults are healed.
	lateKeep, lateRelease bool
}

// applied says whether the store may have applied a request that returned an error.
type applied uint8

const (
	notApplied   applied = iota
	maybeApplied         // perhaps before the error
	lateApplied          // perhaps at any time until the faults are healed
)

func newModel(slack time.Duration) *model {
	return &model{slack: slack, locks: make(map[lockKey]*modelLock)}
}

func (m *model) lock(k lockKey) *modelLock {
	l := m.locks[k]
	if l == nil {
		l = &modelLock{fences: make(map[int]driver.Fence), ticks: make(map[int64]*modelTick)}
		m.locks[k] = l
	}
	return l
}

func (m *modelLock) tick(at int64) *modelTick {
	t := m.ticks[at]
	if t == nil {
		t = new(modelTick)
		m.ticks[at] = t
	}
	return t
}

// sure reports whether the lease was certainly held at every moment up to got.
func (m *modelAttempt) sure(got time.Time) bool { return !m.lateRelease && m.heldTo.After(got) }

// possible reports whether the lease may have been held at some moment from sent on.
func (m *modelAttempt) possible(sent time.Time) bool { return m.lateKeep || m.maybeTo.After(sent) }

// keep records that the lease may last until the given time.
func (m *modelAttempt) keep(until time.Time) {
	if until.After(m.maybeTo) {
		m.maybeTo = until
	}
}

// over records that the lease is not held now. A request that is still on its way may bring it
// back.
func (m *modelAttempt) over() {
	m.heldTo = time.Time{}
	if !m.wild {
		m.maybeTo = time.Time{}
	}
}

// attempt records a new attempt.
func (m *model) attempt(req driver.Request) *modelAttempt {
	a := &modelAttempt{req: req}
	m.attempts = append(m.attempts, a)
	return a
}

// acquired checks the answer to an acquire. It returns the fault, or "".
func (m *model) acquired(a *modelAttempt, did applied, ans attempt) string {
	lock := m.lock(keyOf(a.req))
	if a.firstSent.IsZero() {
		a.firstSent = ans.sent
	}
	var wrong string
	switch why := reason(ans.err); {
	case ans.err == nil:
		wrong = m.granted(lock, a, ans)
	case why != "":
		wrong = m.refused(lock, a, why, ans)
		if !a.wild && a.req.Tick != nil && a.firstSent.Add(a.req.TTL).After(ans.got) {
			lock.tick(a.req.Tick.At.UnixMicro()).maybe -= a.starts // it was never granted, or it would still be held
			a.starts = 0
		}
		a.over()
	case did != notApplied:
		if a.req.Tick != nil {
			at := a.req.Tick.At.UnixMicro()
			lock.tick(at).maybe++
			a.starts++
			lock.maybeTick = max(lock.maybeTick, at)
		}
		if did == lateApplied {
			a.lateKeep, a.wild = true, true
		} else {
			a.wild = a.wild || a.known && !a.sure(ans.got) // if its lease had ended, this may be another one
			a.keep(ans.got.Add(a.req.TTL + m.slack))
		}
	}
	return wrong
}

func (m *model) granted(lock *modelLock, a *modelAttempt, ans attempt) string {
	g := ans.grant
	same := a.known && g.Slot == a.grant.Slot && g.Fence == a.grant.Fence
	if a.sure(ans.got) && !same && !(a.wild && g.Slot == a.grant.Slot && g.Fence > a.grant.Fence) {
		return fmt.Sprintf("asked again for slot %d fence %d, was granted slot %d fence %d", a.grant.Slot,
			a.grant.Fence, g.Slot, g.Fence)
	}
	if same && !a.possible(ans.sent) {
		return fmt.Sprintf("granted once more with fence %d, though the lease had ended", g.Fence)
	}
	for _, other := range m.attempts {
		if other != a && keyOf(other.req) == keyOf(a.req) && other.known && other.grant.Slot == g.Slot &&
			other.sure(ans.got) {
			return fmt.Sprintf("slot %d was granted, though it is held by %s", g.Slot, other.req.Token)
		}
	}
	if !same {
		if last := lock.fences[g.Slot]; g.Fence != 0 && g.Fence <= last {
			return fmt.Sprintf("slot %d has fence %d after %d", g.Slot, g.Fence, last)
		}
		lock.fences[g.Slot] = g.Fence
		if a.req.Tick != nil {
			if wrong := m.started(lock, a, ans); wrong != "" {
				return wrong
			}
		}
	}
	a.grant, a.known = g, true
	a.heldTo = ans.sent.Add(a.req.TTL)
	a.keep(ans.got.Add(a.req.TTL + m.slack))
	return ""
}

func (m *model) started(lock *modelLock, a *modelAttempt, ans attempt) string {
	at := a.req.Tick.At.UnixMicro()
	tick := lock.tick(at)
	// If an earlier answer was lost, that request may be the one that was granted, and its tick may
	// be outdated by now.
	earlier := a.starts > 0
	if !earlier && at < lock.sureTick {
		return "the tick was started, though a later one has been claimed"
	}
	if !earlier && tick.sure >= a.req.Tick.Max {
		return fmt.Sprintf("start %d of a tick: at most %d", tick.sure+1, a.req.Tick.Max)
	}
	if a.starts == 1 && !a.wild && a.firstSent.Add(a.req.TTL).After(ans.got) {
		tick.maybe-- // certainly that one
		a.starts = 0
	}
	tick.sure++
	if tick.sure > a.req.Tick.Max {
		return fmt.Sprintf("%d starts of a tick: at most %d", tick.sure, a.req.Tick.Max)
	}
	lock.sureTick = max(lock.sureTick, at)
	lock.maybeTick = max(lock.maybeTick, at)
	return ""
}

func (m *model) refused(lock *modelLock, a *modelAttempt, why driver.Reason, ans attempt) string {
	if a.sure(ans.got) {
		return fmt.Sprintf("refused (%s), though its own token holds slot %d", why, a.grant.Slot)
	}
	if why == driver.ReasonFull {
		return m.full(a, ans)
	}
	if a.req.Tick != nil {
		at := a.req.Tick.At.UnixMicro()
		tick := lock.tick(at)
		switch {
		case why == driver.ReasonTickLate && lock.maybeTick > at:
			return ""
		case why == driver.ReasonTickTaken && lock.maybeTick >= at && lock.sureTick <= at &&
			tick.sure+tick.maybe >= a.req.Tick.Max:
			return ""
		}
	}
	return fmt.Sprintf("refused (%s), for no reason", why)
}

// full checks whether every slot may have had a holder.
func (m *model) full(a *modelAttempt, ans attempt) string {
	taken := make(map[int]bool)
	anywhere := 0
	for _, other := range m.attempts {
		if other == a || keyOf(other.req) != keyOf(a.req) || !other.possible(ans.sent) {
			continue
		}
		if other.known {
			taken[other.grant.Slot] = true
		}
		if !other.known || other.wild {
			anywhere++
		}
	}
	var free []int
	for slot := range max(1, a.req.Slots) {
		if !taken[slot] {
			free = append(free, slot)
		}
	}
	if len(free) > anywhere {
		return fmt.Sprintf("refused as full, though of slots %v only %d may be taken", free, anywhere)
	}
	return ""
}

// extended checks the answer to an extend. It returns the fault, or "".
func (m *model) extended(a *modelAttempt, did applied, r driver.Result, err error, sent, got time.Time) string {
	ttl := a.req.TTL
	switch {
	case err != nil && did == notApplied:
	case err != nil && !a.possible(sent): // no lease could be extended
	case err != nil && did == lateApplied:
		a.lateKeep = true
	case err != nil:
		a.keep(got.Add(ttl + m.slack))
	case r.Outcome == driver.GrantOK:
		if !a.possible(sent) {
			return fmt.Sprintf("%s was extended after its end", a.req.Token)
		}
		a.heldTo = sent.Add(ttl)
		a.keep(got.Add(ttl + m.slack))
	case r.Outcome == driver.GrantLost:
		if a.sure(got) {
			return fmt.Sprintf("%s was lost, though it was to last %v longer", a.req.Token, a.heldTo.Sub(got))
		}
		a.over()
	default:
		return "an outcome that is unknown"
	}
	return ""
}

// released checks the answer to a release. It returns the fault, or "".
func (m *model) released(a *modelAttempt, did applied, r driver.Result, err error, sent, got time.Time) string {
	a.givenUp = true
	switch {
	case err != nil && did == notApplied:
	case err != nil && did == lateApplied:
		a.lateRelease = true
	case err != nil:
		a.heldTo = time.Time{}
	case r.Outcome == driver.GrantOK:
		if !a.possible(sent) {
			return fmt.Sprintf("%s was released after its end", a.req.Token)
		}
		a.over()
	case r.Outcome == driver.GrantLost:
		if a.sure(got) {
			return fmt.Sprintf("%s was lost, though it was to last %v longer", a.req.Token, a.heldTo.Sub(got))
		}
		a.over()
	default:
		return "an outcome that is unknown"
	}
	return ""
}

// healed records that every request on its way has arrived.
func (m *model) healed(now time.Time) {
	for _, a := range m.attempts {
		if a.lateKeep {
			a.lateKeep = false
			a.keep(now.Add(a.req.TTL + m.slack))
		}
		if a.lateRelease {
			a.lateRelease = false
			a.heldTo = time.Time{}
		}
	}
}

// forget drops old attempts that hold nothing. It keeps some of them to test that the store has
// forgotten them.
func (m *model) forget(now time.Time) {
	const some = 30
	excess := len(m.attempts) - some
	m.attempts = slices.DeleteFunc(m.attempts, func(a *modelAttempt) bool {
		if excess <= 0 || a.possible(now) || a.lateRelease {
			return false
		}
		excess--
		return true
	})
}

// A journal holds the last operations, for the report of a failure.
type journal []string

func (j *journal) add(format string, args ...any) {
	const last = 25
	*j = append(*j, fmt.Sprintf(format, args...))
	if len(*j) > last {
		*j = (*j)[1:]
	}
}

func (j journal) String() string { return "\n\t" + strings.Join(j, "\n\t") }
