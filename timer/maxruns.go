package timer

import (
	"context"
	"slices"
	"time"
)

// DefaultMaxWait is the default of Config.MaxWait.
const DefaultMaxWait = time.Hour

// A MaxRunsPolicy is what happens to a tick, or a Trigger, that finds Config.MaxRuns runs in
// progress.
type MaxRunsPolicy uint8

const (
	// MaxRunsWait lets it wait in line until a run ends, at most Config.MaxWait; then it is
	// skipped, or refused, as MaxRunsSkip does at once. At most one tick of each timer waits: a
	// later one takes the place of the earlier, which is skipped. A tick that waits here is not
	// claimed: another host may run it.
	MaxRunsWait MaxRunsPolicy = iota
	// MaxRunsSkip skips the tick, or refuses the Trigger (ReasonMaxRuns).
	MaxRunsSkip
)

func (p MaxRunsPolicy) String() string {
	switch p {
	case MaxRunsWait:
		return "wait"
	case MaxRunsSkip:
		return "skip"
	default:
		return "unknown"
	}
}

// A line has the ticks and the callers of Trigger that wait because MaxRuns places are taken. The
// registry's mutex guards it.
type line struct {
	maxPlaces int           // places that may be taken at once; 0: any number
	wait      time.Duration // how long something waits; 0: nothing waits
	queue     queue
	timer     *time.Timer // ends waits that have lasted too long; nil: nothing has waited yet
	endsAt    time.Time   // when it does; zero: nothing waits
	// How many places are reserved for ticks and triggers of a timer whose turn has come.
	reserved map[*entry]int

	// The gate's, set when the parts are connected. admit is called in a goroutine of its own for a
	// tick whose turn has come, for which a place is reserved: it is to call enterReserved or
	// giveUp. tooLate is called for a tick that has waited for too long.
	admit   func(tick)
	tooLate func(tick)
}

func newLine(config Config) line {
	l := line{maxPlaces: config.MaxRuns}
	if l.maxPlaces == NoLimit {
		l.maxPlaces = 0
	}
	if config.OnMaxRuns == MaxRunsWait {
		l.wait = config.MaxWait
	}
	return l
}

// isFull reports whether nothing may enter, because MaxRuns places are taken or others wait.
func (l *line) isFull(places int) bool {
	return l.maxPlaces > 0 && (places >= l.maxPlaces || l.len() > 0)
}

// len returns how many ticks and callers of Trigger wait.
func (l *line) len() int { return len(l.queue.ticks) + len(l.queue.triggers) }

// concerns reports whether something of a timer waits, or has a place reserved.
func (l *line) concerns(e *entry) bool {
	return l.reserved[e] > 0 || l.queue.has(e) ||
		slices.ContainsFunc(l.queue.triggers, func(w *waitingTrigger) bool { return w.s.entry == e })
}

func (l *line) reserve(e *entry) {
	if l.reserved == nil {
		l.reserved = make(map[*entry]int)
	}
	l.reserved[e]++
}

func (l *line) release(e *entry) {
	if l.reserved[e]--; l.reserved[e] == 0 {
		delete(l.reserved, e)
	}
}

// enterOrWait is enter for a tick, which waits in line if MaxRuns places are taken. earlier is a
// tick of the timer whose place in line it has taken; the zero tick: none.
func (g *registry) enterOrWait(t tick, limit int) (why Reason, waits bool, earlier tick) {
	s := t.s
	g.mu.Lock()
	defer g.mu.Unlock()
	why = g.tryEnter(s, limit)
	if why != ReasonMaxRuns {
		return why, false, earlier
	}
	w := g.line.waiting(t)
	if !time.Now().Before(w.until) { // as with MaxRunsSkip, at once
		return why, false, earlier
	}
	// One of the two has waited for a run to end until now (FullWait).
	if g.line.queue.ticks[s.entry].at > t.at {
		return why, false, earlier
	}
	earlier = g.line.queue.takeOut(s.entry)
	g.line.queue.enqueue(w)
	g.line.watch(w.until, g.endWaits)
	return "", true, earlier
}

// waiting returns a tick that is to wait in line. What it has waited before counts.
func (l *line) waiting(t tick) queuedTick {
	t.yielded = false // this wait may be long, so the blackouts have to be asked again
	if t.waitsSince.IsZero() {
		t.waitsSince = time.Now()
	}
	return queuedTick{tick: t, until: t.waitsSince.Add(l.wait)}
}

// watch has endWaits called when a wait has lasted too long.
func (l *line) watch(until time.Time, endWaits func()) {
	switch {
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(until), endWaits)
	case l.endsAt.IsZero() || until.Before(l.endsAt):
		l.timer.Reset(time.Until(until))
	default:
		return
	}
	l.endsAt = until
}

// endWaits takes ticks out of the line that have waited for too long.
func (g *registry) endWaits() {
	var late []tick
	g.mu.Lock()
	now, next := time.Now(), time.Time{}
	for e, w := range g.line.queue.ticks {
		switch {
		case !now.Before(w.until):
			late = append(late, g.line.queue.takeOut(e))
		case next.IsZero() || w.until.Before(next):
			next = w.until
		}
	}
	if g.line.endsAt = next; !next.IsZero() {
		g.line.timer.Reset(next.Sub(now))
	}
	g.mu.Unlock()
	for _, l := range late {
		g.line.tooLate(l)
	}
}

// overtake replaces an earlier tick of the timer that waits in line, and returns that.
func (g *registry) overtake(t tick) (earlier tick, waited bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w, waited := g.line.queue.ticks[t.s.entry]
	if waited = waited && t.s.current(); waited {
		g.line.queue.ticks[t.s.entry] = g.line.waiting(t)
	}
	return w.tick, waited
}

// awaitPlace waits in line until a place is reserved for a Trigger. It reports false when ctx has
// ended, the wait has lasted too long, the timer was removed, or the host drains.
func (g *registry) awaitPlace(ctx context.Context, s *settings) bool {
	g.mu.Lock()
	switch {
	case g.line.wait == 0 || !g.mayStart(s):
		g.mu.Unlock()
		return false
	case !g.line.isFull(g.places):
		g.places++
		g.active.n++ // Run waits for what follows
		g.line.reserve(s.entry)
		g.mu.Unlock()
		return true
	}
	w := &waitingTrigger{s: s, ready: make(chan struct{})}
	g.line.queue.triggers = append(g.line.queue.triggers, w)
	g.mu.Unlock()
	tooLong := time.NewTimer(g.line.wait)
	defer tooLong.Stop()
	select {
	case <-w.ready:
	case <-ctx.Done():
	case <-tooLong.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !w.hasTurn {
		g.line.queue.triggers = slices.DeleteFunc(g.line.queue.triggers,
			func(other *waitingTrigger) bool { return other == w })
	}
	return w.hasTurn
}

// enterReserved is enter for a tick or a Trigger that has a place reserved. Otherwise the caller
// calls giveUp.
func (g *registry) enterReserved(s *settings, limit int) Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.mayStart(s):
		return ReasonDraining
	case s.placesTaken() >= limit:
		return ReasonHostFull
	}
	g.line.release(s.entry)
	s.registration.places++
	s.entry.places.Add(1)
	return ""
}

// giveUp gives the place back that was reserved for something of a timer.
func (g *registry) giveUp(s *settings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.line.release(s.entry)
	g.places--
	g.serveLine()
	g.active.end()
}

// serveLine gives free places to those that wait. Called with mu held.
func (g *registry) serveLine() {
	for g.line.maxPlaces > 0 && g.places < g.line.maxPlaces && g.starting() {
		next, trigger := g.line.queue.serve()
		if next.s == nil {
			return
		}
		g.places++
		g.active.n++ // Run waits for what follows
		g.line.reserve(next.s.entry)
		if !trigger {
			go g.line.admit(next)
		}
	}
}

// withdraw takes the tick of a timer that was removed or updated out of the line, and dismisses its
// triggers; the zero tick: none waits.
func (g *registry) withdraw(e *entry) tick {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.line.queue.withdraw(e)
}

// closeLine empties the line, when the host drains.
func (g *registry) closeLine() []tick {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.line.timer != nil {
		g.line.timer.Stop()
	}
	return g.line.queue.close()
}

// inLine returns how many ticks and callers of Trigger wait, and whether one more would have to.
func (g *registry) inLine() (waiting int, full bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.line.len(), g.line.isFull(g.places)
}
