package timer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A registry has the timers of this host, the host's phase, and the number of places that are
// taken. An attempt to start a run takes a place, and the run keeps it; Run and Remove wait until
// the places are free. All parts use the registry, and it uses none of them.
type registry struct {
	phase atomic.Pointer[Phase] // written with mu held
	since atomic.Int64          // when the phase began, in nanoseconds; 0: Run was not called. Likewise
	ran   chan struct{}         // closed when Run has begun

	mu             sync.Mutex
	entries        map[string]*settings
	removedRunning map[string]*settings   // removed timers whose runs go on
	removals       map[*settings]*removal // callers of Remove that wait for their runs
	labels         labels
	places         int           // taken by all timers, or reserved
	line           line          // ticks and triggers that wait for a place
	active         int           // places and background calls, which Run waits for
	idle           chan struct{} // closed when active is 0; nil if nobody waits
}

// A Phase is what a Scheduler is doing.
type Phase string

const (
	PhaseCreated  Phase = "created"  // Run was not called
	PhaseRunning  Phase = "running"  // timers are due, and runs start
	PhasePreStop  Phase = "pre_stop" // for PreStopDelay runs still start, but Ready fails
	PhaseDraining Phase = "draining" // Run waits for the last runs
	PhaseStopped  Phase = "stopped"  // Run has returned, or is about to
)

// A removal waits for the runs of a removed timer.
type removal struct {
	callers int           // runs not waited for: 1 if a handler removes its own timer
	done    chan struct{} // closed when no other run is left
}

func newRegistry() *registry {
	g := &registry{entries: make(map[string]*settings), removedRunning: make(map[string]*settings),
		removals: make(map[*settings]*removal), ran: make(chan struct{})}
	g.phase.Store(new(PhaseCreated))
	return g
}

func (g *registry) current() Phase { return *g.phase.Load() }

// starting reports whether runs may start.
func (g *registry) starting() bool {
	p := g.current()
	return p == PhaseRunning || p == PhasePreStop
}

// mayStart reports whether ticks and triggers of an entry may be tried.
func (g *registry) mayStart(s *settings) bool { return g.starting() && !s.gone() }

func (g *registry) setPhase(p Phase) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.phase.Store(&p)
	g.since.Store(time.Now().UnixNano())
}

// begin enters PhaseRunning. It returns an error if Run was called before. prepare is called before
// anything may start.
func (g *registry) begin(prepare func()) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current() != PhaseCreated {
		return errRunAgain
	}
	prepare()
	g.phase.Store(new(PhaseRunning))
	g.since.Store(time.Now().UnixNano())
	close(g.ran)
	return nil
}

// add adds timers: all or, if a name is taken, none. A timer that takes the name of a removed one
// whose runs go on takes over its state, and is one of continuing.
func (g *registry) add(entries []*settings, names map[string]bool) (continuing []*settings, errs []error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.current(); p == PhaseDraining || p == PhaseStopped {
		errs = append(errs, errShuttingDown)
	}
	for name := range names {
		if g.entries[name] != nil {
			errs = append(errs,
				fmt.Errorf("timer %.60q: Name: it is registered already: Remove that one first, or choose another name",
					name))
		}
	}
	if len(errs) > 0 || entries == nil {
		return nil, errs
	}
	for _, s := range entries {
		if old := g.removedRunning[s.timer.Name]; old != nil {
			delete(g.removedRunning, s.timer.Name)
			s.entry = old.entry
			s.entry.knownAt.Store(0) // of what may have been another schedule
			continuing = append(continuing, s)
		} else {
			g.labels.join(&s.entry.record)
		}
		g.entries[s.timer.Name] = s
	}
	return continuing, nil
}

// get returns the timer of that name; nil: there is none.
func (g *registry) get(name string) *settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entries[name]
}

// named returns the timer of that name, or else the removed one whose runs go on; nil: there is
// neither.
func (g *registry) named(name string) *settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	return cmp.Or(g.entries[name], g.removedRunning[name])
}

// registered returns the timers of this host.
func (g *registry) registered() []*settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.entries))
}

// all returns the timers of this host and the removed ones whose runs go on.
func (g *registry) all() []*settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]*settings, 0, len(g.entries)+len(g.removedRunning))
	list = slices.AppendSeq(list, maps.Values(g.entries))
	return slices.AppendSeq(list, maps.Values(g.removedRunning))
}

// remove removes a timer, of which nothing starts any more; nil: there is none of that name. If
// mine is not nil, it has to be mine, or what has replaced that.
func (g *registry) remove(name string, mine *settings) *settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.entries[name]
	if s == nil || mine != nil && mine.latest() != s {
		return nil
	}
	delete(g.entries, name)
	s.successor.Store(s)
	if s.entry.places.Load() > 0 {
		g.removedRunning[name] = s
	} else {
		g.labels.part(&s.entry.record)
	}
	return s
}

// retire removes a timer of which nothing goes on or waits. It reports false if something does.
func (g *registry) retire(s *settings) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.entry.places.Load() > 0 || g.line.concerns(s) {
		return false
	}
	if g.entries[s.timer.Name] == s {
		delete(g.entries, s.timer.Name)
		g.labels.part(&s.entry.record)
	}
	s.successor.Store(s)
	return true
}

// await waits until a removed timer has at most callers places taken, or ctx ends.
func (g *registry) await(ctx context.Context, s *settings, callers int) error {
	g.mu.Lock()
	if s.places <= callers {
		g.mu.Unlock()
		return nil
	}
	r := &removal{callers: callers, done: make(chan struct{})}
	g.removals[s] = r
	g.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.removals, s)
		return context.Cause(ctx)
	}
}

// enter takes one of at most limit places of a timer; "" means that it did.
func (g *registry) enter(s *settings, limit int) Reason {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tryEnter(s, limit)
}

// tryEnter is called with mu held.
func (g *registry) tryEnter(s *settings, limit int) Reason {
	switch {
	case !g.mayStart(s):
		return ReasonDraining
	case int(s.entry.places.Load()) >= limit:
		return ReasonHostFull
	case g.line.isFull(g.places):
		return ReasonMaxRuns
	}
	s.places++
	s.entry.places.Add(1)
	g.places++
	g.active++
	return ""
}

// leave gives a place back.
func (g *registry) leave(s *settings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s = s.latest() // to which replace has moved the places
	s.places--
	g.places--
	if left := s.entry.places.Add(-1); left == 0 && len(g.removedRunning) > 0 {
		if p := g.removedRunning[s.timer.Name]; p != nil && p.entry == s.entry {
			delete(g.removedRunning, s.timer.Name)
			g.labels.part(&p.entry.record)
		}
	}
	if s.gone() {
		if r := g.removals[s]; r != nil && s.places <= r.callers {
			delete(g.removals, s)
			close(r.done)
		}
	}
	g.serveLine()
	g.inactive()
}

// join makes Run wait until done is called, for work that is not a run. It reports false if nothing
// may start any more.
func (g *registry) join() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.starting() {
		return false
	}
	g.active++
	return true
}

func (g *registry) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inactive()
}

// inactive is called with mu held.
func (g *registry) inactive() {
	g.active--
	if g.active == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// whenIdle returns a channel that is closed when Run need not wait any longer. It is called when
// nothing may start any more.
func (g *registry) whenIdle() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	idle := make(chan struct{})
	if g.active == 0 {
		close(idle)
	} else {
		g.idle = idle
	}
	return idle
}
