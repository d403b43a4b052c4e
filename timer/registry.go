package timer

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tickslot/tickslot/internal/lifecycle"
)

// A registry has the timers of this host, the host's phase, and the number of places that are
// taken. An attempt to start a run takes a place, and the run keeps it; Run and Remove wait until
// the places are free. All parts use the registry, and it uses none of them. The planner, and what
// waits, share its mutex.
type registry struct {
	life lifecycle.Life // phases are entered with mu held, except the last one if Run was refused
	ran  chan struct{}  // closed when Run has begun

	notSetUp atomic.Pointer[error] // what Run returns because the store is not set up right; nil: it does not

	mu       sync.Mutex
	entries  entries
	labels   labels
	places   int            // taken by all timers, or reserved
	reserved map[*entry]int // of these: for ticks and triggers of a timer whose turn in the placeQueue has come
	waiting  *waiting
	active   activity
}

// A Phase is what a Scheduler is doing.
type Phase = lifecycle.Phase

const (
	PhaseCreated  = lifecycle.Created  // Run was not called, or asks whether it may begin
	PhaseRunning  = lifecycle.Running  // timers are due, and runs start
	PhasePreStop  = lifecycle.PreStop  // for PreStopDelay runs still start, but Ready fails
	PhaseDraining = lifecycle.Draining // Run waits for the last runs
	PhaseStopped  = lifecycle.Stopped  // Run has returned, or is about to
)

func newRegistry(config Config) *registry {
	g := &registry{entries: make(entries), ran: make(chan struct{}), reserved: make(map[*entry]int),
		life: lifecycle.Life{Prefix: "timer", Type: "Scheduler", Is: "timers are"}}
	g.waiting = newWaiting(config, g)
	return g
}

func (g *registry) current() Phase { return g.life.Phase() }

// starting reports whether runs may start.
func (g *registry) starting() bool {
	p := g.current()
	return p == PhaseRunning || p == PhasePreStop
}

// mayStart reports whether ticks and triggers may be tried with these settings.
func (g *registry) mayStart(s *settings) bool { return g.starting() && s.current() }

func (g *registry) setPhase(p Phase) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.life.Enter(p)
}

// begin enters PhaseRunning. prepare is called before anything may start, with mu held.
func (g *registry) begin(prepare func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	prepare()
	g.life.Enter(PhaseRunning)
	close(g.ran)
}

// add adds timers: all or, if a name is taken, none. A timer that takes the name of a removed one
// whose runs go on shares its entry, and is one of continuing. Called with mu held.
func (g *registry) add(list []*settings, names map[string]bool) (continuing []*settings, errs []error) {
	if p := g.current(); p == PhaseDraining || p == PhaseStopped {
		errs = append(errs, errShuttingDown)
	}
	for name := range names {
		if g.entries.find(name) != nil {
			errs = append(errs,
				fmt.Errorf("timer %.60q: Name: it is registered already: Remove that one first, or choose another name",
					name))
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	for _, s := range list {
		s.registration = new(registration)
		if e := g.entries[s.timer.Name]; e != nil {
			s.entry, s.nth = e, e.settings.Load().nth+1
			e.knownAt.Store(0) // of what may have been another schedule
			continuing = append(continuing, s)
		} else {
			g.entries[s.timer.Name] = s.entry
			g.labels.join(&s.entry.record)
		}
		s.entry.settings.Store(s)
	}
	return continuing, nil
}

// update swaps the settings of the timer of that name, and returns the old ones. Called with mu
// held.
func (g *registry) update(s *settings) (old *settings, err error) {
	if p := g.current(); p == PhaseDraining || p == PhaseStopped {
		return nil, errShuttingDown
	}
	old = g.entries.find(s.timer.Name)
	if old == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoTimer, s.timer.Name)
	}
	s.entry, s.registration, s.nth = old.entry, old.registration, old.nth
	if s.id != old.id {
		s.nth++
		s.entry.knownAt.Store(0)
	}
	s.entry.settings.Store(s)
	return old, nil
}

// get returns the settings of the timer of that name; nil: there is none.
func (g *registry) get(name string) *settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entries.find(name)
}

// named returns the settings of the timer of that name, which may be a removed one whose runs go
// on; nil: there is neither.
func (g *registry) named(name string) *settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.entries[name]; e != nil {
		return e.settings.Load()
	}
	return nil
}

// registered returns the settings of the timers of this host.
func (g *registry) registered() []*settings {
	return slices.DeleteFunc(g.all(), (*settings).removed)
}

// all returns the settings of the timers of this host, and of the removed ones whose runs go on.
func (g *registry) all() []*settings {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.list()
}

// list is all, with mu held.
func (g *registry) list() []*settings {
	list := make([]*settings, 0, len(g.entries))
	for _, e := range g.entries {
		list = append(list, e.settings.Load())
	}
	return list
}

// remove removes a timer, of which nothing starts any more; nil: there is none of that name. Called
// with mu held.
func (g *registry) remove(name string) *settings {
	s := g.entries.find(name)
	if s == nil {
		return nil
	}
	s.registration.removed.Store(true)
	g.entries.forget(s.entry, g.labels)
	return s
}

// retire removes a timer of which nothing goes on or waits. It reports false if something does.
// Called with mu held.
func (g *registry) retire(e *entry) bool {
	s := e.settings.Load()
	if e.places.Load() > 0 || g.reserved[e] > 0 || e.pending != nil || g.waiting.placeQueue.hasTriggerOf(e) {
		return false
	}
	if !s.removed() {
		s.registration.removed.Store(true)
		g.entries.forget(e, g.labels)
	}
	return true
}

// entries are the timers of a registry by name, also removed ones whose runs go on. Guarded by
// registry.mu.
type entries map[string]*entry

// find returns the settings of the timer of that name; nil: there is none.
func (m entries) find(name string) *settings {
	if e := m[name]; e != nil && !e.settings.Load().removed() {
		return e.settings.Load()
	}
	return nil
}

// forget drops a timer that was removed, and its label, unless runs of it go on.
func (m entries) forget(e *entry, l labels) {
	if s := e.settings.Load(); s.removed() && e.places.Load() == 0 {
		delete(m, s.timer.Name)
		l.part(&e.record)
	}
}
