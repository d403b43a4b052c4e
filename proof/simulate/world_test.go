package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// A world is the store, and a record of what all hosts did with it. It relies on its own record
// instead of the library's.
type world struct {
	storeTimeout time.Duration

	mu         sync.Mutex
	store      *memlock.Store
	quarantine time.Time // the store grants nothing until then
	lost       time.Time // when it last lost its data
	down       outage    // an outage for all hosts
	timers     map[string]*books
	leases     map[string]*lease // by token
	fences     map[string]dlock.Fence
	grid       time.Time // a tick of the timer "busy"
	report     *report
}

type outage uint8

const (
	up      outage = iota
	refuses        // an error at once
	hangs          // no answer until the caller's deadline
)

// books record the state of one timer.
type books struct {
	*kind
	runs     map[*visit]struct{}  // whose handlers have not returned
	starts   map[time.Time]*claim // by tick
	progress time.Time            // when a run last started, or none could start for a reason
}

type claim struct {
	starts int
	first  time.Time
}

// A visit is one run as seen by its handler.
type visit struct {
	*timer.Run
	host  *host
	ctx   context.Context
	limit int // MaxConcurrency on its host
}

// A lease is one grant by the store.
type lease struct {
	name  string
	slot  int
	fence dlock.Fence
	ends  time.Time
	host  *host
	timer *time.Timer // fires when the slot can be granted to another host
}

func newWorld(r *report, storeTimeout time.Duration, kinds []*kind) *world {
	w := &world{
		storeTimeout: storeTimeout, store: memlock.New(), report: r,
		timers: map[string]*books{}, leases: map[string]*lease{}, fences: map[string]dlock.Fence{},
	}
	for _, k := range kinds {
		w.timers[k.name] = &books{kind: k, runs: map[*visit]struct{}{}, starts: map[time.Time]*claim{},
			progress: time.Now()}
	}
	return w
}

// broken reports a broken promise. The caller holds mu.
func (w *world) broken(count *int, format string, args ...any) {
	*count++
	if len(w.report.Examples) < 10 {
		w.report.Examples = append(w.report.Examples, fmt.Sprintf("seed %d, %s: ", w.report.seed,
			time.Now().UTC().Format(time.DateTime+".000"))+fmt.Sprintf(format, args...))
	}
}

// ---- the store

func (w *world) acquire(h *host, req driver.Request) (driver.Grant, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if left := w.quarantine.Sub(now); left > 0 {
		w.report.Faults.count("quarantine_refusals")
		return driver.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Slots: req.Slots, Reason: dlock.ReasonQuarantine,
			ExpiresIn: left}
	}
	g, err := w.store.TryAcquire(context.Background(), req)
	if err != nil {
		return g, err
	}
	if w.timers[timerName(g.Name)] == nil {
		return g, nil // not a timer's lock
	}
	slot := fmt.Sprintf("%s:slot:%d", g.Name, g.Slot)
	if l := w.leases[g.Token]; l != nil && l.fence == g.Fence { // a repeated request
		w.report.AskedAgain++
		w.renewed(l, now)
		return g, nil
	}
	if g.Fence <= w.fences[slot] {
		w.broken(&w.report.FenceRegressions, "%s: fence %d after %d", slot, g.Fence, w.fences[slot])
	}
	w.fences[slot] = g.Fence
	for _, l := range w.leases {
		if l.name == g.Name && l.slot == g.Slot && now.Before(l.ends) {
			w.broken(&w.report.EarlyEnds, "%s: granted, though its last lease ends in %v only", slot, l.ends.Sub(now))
		}
	}
	w.mayBeGranted(g.Name, g.Slot, g.Fence, "it was granted to "+h.name)
	l := &lease{name: g.Name, slot: g.Slot, fence: g.Fence, host: h}
	w.leases[g.Token] = l
	l.timer = time.AfterFunc(ttl-blink, func() { w.expires(g.Token, l) })
	l.ends = now.Add(ttl)
	if req.Tick != nil {
		w.claimed(req, now)
	}
	return g, nil
}

// claimed counts the starts of a tick (I3). The caller holds mu.
func (w *world) claimed(req driver.Request, now time.Time) {
	b := w.timers[timerName(req.Name)]
	if b == nil {
		return
	}
	c := b.starts[req.Tick.At]
	if c == nil {
		for at := range b.starts {
			if now.Sub(at) > 2*b.every {
				delete(b.starts, at)
			}
		}
		c = &claim{first: now}
		b.starts[req.Tick.At] = c
	}
	c.starts++
	if b.perTick != timer.NoLimit && c.starts > b.perTick && w.lost.Before(c.first) {
		w.broken(&w.report.OverTick, "%s: %d starts of the tick at %v", req.Name, c.starts, req.Tick.At)
	}
}

func (w *world) renewed(l *lease, now time.Time) {
	l.ends = now.Add(ttl)
	l.timer.Reset(ttl - blink)
}

// blink is how long before its end a lease is checked, to see that it has not ended early.
const blink = time.Millisecond

// expires checks a lease just before and just after its end.
func (w *world) expires(token string, l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leases[token] != l || time.Until(l.ends) > blink {
		return
	}
	if !w.holds(l) {
		w.broken(&w.report.EarlyEnds, "%s: slot %d is free %v before its lease ends", l.name, l.slot, blink)
	}
	time.AfterFunc(blink, func() { w.expired(token, l) })
}

func (w *world) holds(l *lease) bool {
	held, err := w.store.List(context.Background(), l.name, l.slot+1)
	return err != nil || slices.ContainsFunc(held, func(h driver.LeaseInfo) bool {
		return h.Slot == l.slot && h.Fence == l.fence
	})
}

// expired runs at the end of a lease. From then on, its slot must be free (I6), and no run may
// consider it its own (I2).
func (w *world) expired(token string, l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leases[token] != l || time.Now().Before(l.ends) {
		return
	}
	w.report.Expired++
	delete(w.leases, token)
	w.mayBeGranted(l.name, l.slot, l.fence+1, "its lease has ended in the store")
	if w.holds(l) {
		w.broken(&w.report.LateRecoveries, "%s: slot %d is still held, a TTL after its last renewal", l.name, l.slot)
	}
}

// mayBeGranted checks that no run with a lower fence considers the slot its own (I2). The caller
// holds mu.
func (w *world) mayBeGranted(name string, slot int, fence dlock.Fence, why string) {
	b := w.timers[timerName(name)]
	if b == nil {
		return
	}
	for v := range b.runs {
		if v.Slot() != slot || v.Fence() >= fence || v.Fence() == 0 {
			continue
		}
		if v.Valid() {
			w.broken(&w.report.StillValid, "%s: slot %d of %s is valid though %s", name, slot, v.host.name, why)
		}
		if v.ctx.Err() == nil && !(v.Degraded() && b.down == timer.StoreDownRunLocal) {
			w.broken(&w.report.NotCancelled, "%s: the run in slot %d of %s goes on though %s", name, slot, v.host.name,
				why)
		}
	}
}

func (w *world) extend(ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	results, err := w.store.Extend(context.Background(), ttl, grants...)
	for i, r := range results {
		if l := w.leases[grants[i].Token]; r.Outcome == driver.GrantOK && l != nil {
			w.renewed(l, time.Now())
		}
	}
	return results, err
}

func (w *world) release(grants []driver.Grant) ([]driver.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	results, err := w.store.Release(context.Background(), grants...)
	for i, r := range results {
		if l := w.leases[grants[i].Token]; r.Outcome == driver.GrantOK && l != nil {
			l.timer.Stop()
			delete(w.leases, grants[i].Token)
			w.mayBeGranted(l.name, l.slot, l.fence+1, "it was released")
		}
	}
	return results, err
}

// loseData restarts the store without its data. It grants nothing until every lease must have
// ended.
func (w *world) loseData() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store = memlock.New()
	w.lost = time.Now()
	w.quarantine = w.lost.Add(ttl)
	for token, l := range w.leases {
		l.timer.Stop()
		delete(w.leases, token)
		// These slots can be granted when the quarantine ends.
		time.AfterFunc(ttl, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.mayBeGranted(l.name, l.slot, l.fence+1, "the quarantine is over")
		})
	}
}

func (w *world) setDown(o outage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = o
}

// ---- the runs

var errPlanned = errors.New("planned")

func (w *world) started(v *visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.host.isDead() {
		return
	}
	b := w.timers[v.Timer()]
	b.runs[v] = struct{}{}
	b.progress = time.Now()
	w.report.Runs++
	if v.Degraded() {
		w.report.Degraded++
	}
	w.check(b)
}

func (w *world) ended(v *visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.timers[v.Timer()]
	w.check(b)
	delete(b.runs, v)
}

func (w *world) leaseLost(v *visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.host.isDead() {
		return
	}
	w.report.Lost++
	if v.Valid() {
		w.broken(&w.report.StillValid, "%s: valid after its lease was lost", v.Timer())
	}
	w.check(w.timers[v.Timer()])
}

// check counts the runs of a timer (for I1, and for MaxPerHost, also outside the store). The caller
// holds mu.
func (w *world) check(b *books) (valid int) {
	limit := 0
	slots := map[int]bool{}
	hosts := map[*host]int{}
	for v := range b.runs {
		if hosts[v.host]++; hosts[v.host] > b.perHost {
			w.broken(&w.report.OverHost, "%s: %d runs on %s", b.name, hosts[v.host], v.host.name)
		}
		if !v.Valid() {
			continue
		}
		valid++
		limit = max(limit, v.limit)
		if slots[v.Slot()] || v.Slot() < 0 || v.Slot() >= v.limit {
			w.broken(&w.report.SameSlot, "%s: two valid runs in slot %d of %d", b.name, v.Slot(), v.limit)
		}
		slots[v.Slot()] = true
	}
	if valid > limit {
		w.broken(&w.report.OverLimit, "%s: %d valid runs, limit %d", b.name, valid, limit)
	}
	return valid
}

// sample checks everything once a minute.
func (w *world) sample() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, b := range w.timers {
		valid := w.check(b)
		if b.limitNow > 1 && valid > 0 {
			w.report.Samples++
			if valid >= b.limitNow {
				w.report.Reached++
			}
		}
		// Liveness: a dead host's slots may stay taken for up to a TTL, and a tick just before that
		// does not come again.
		held, _ := w.store.List(context.Background(), "timer:"+b.name, b.limitNow)
		if w.down != up || now.Before(w.quarantine) || len(held) >= b.limitNow || b.stuck() {
			b.progress = now
		}
		if now.Sub(b.progress) > 2*b.every+ttl {
			w.broken(&w.report.Starved, "%s: no run for %v though slots were free", b.name, now.Sub(b.progress))
			b.progress = now
		}
	}
}

// stuck reports whether every host may have MaxPerHost runs that are no longer valid. Then free
// slots are no sign of starvation.
func (b *books) stuck() bool { return len(b.runs) >= b.perHost*minHosts }

// final reports leases and runs that remain after every host has ended.
func (w *world) final() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.leases {
		w.broken(&w.report.LateRecoveries, "%s: slot %d is held at the end", l.name, l.slot)
	}
	for _, b := range w.timers {
		if len(b.runs) > 0 {
			w.broken(&w.report.Stuck, "%s: %d runs are left at the end", b.name, len(b.runs))
		}
	}
}
