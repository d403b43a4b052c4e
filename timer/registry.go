package timer

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tickslot/tickslot/internal/lifecycle"
)

// A registry has the timers of this host, the phase of the host, and the number of places that are
// taken. An attempt to start a run takes a place, and the run keeps it. Run and Remove wait until
// the places are free. All parts use the registry, and it uses none of them. The planner and the
// waiting ticks and triggers share its mutex.
type registry struct {
	life lifecycle.Life // phases change with mu held, except the last one if Run was refused
	ran  chan struct{}  // closed when Run has begun

	notSetUp atomic.Pointer[error] // the error that Run returns because the store is not set up correctly, or nil

	mu       sync.Mutex
	entries  entries
	labels   labels
	places   int            // taken or reserved by all timers
	reserved map[*entry]int // of these: the reservations for ticks and triggers at the head of the placeQueue, by timer
	waiting  *waiting
	active   activity
}

// A Phase says what a Scheduler is doing.
type Phase = lifecycle.Phase

const (
	PhaseCreated  = lifecycle.Created  // Run was not called, or is checking whether it may begin
	PhaseRunning  = lifecycle.Running  // ticks are due, and runs start
	PhasePreStop  = lifecycle.PreStop  // runs still start for PreStopDelay, but Ready fails
	PhaseDraining = lifecycle.Draining // Run waits for the last runs
	PhaseStopped  = lifecycle.Stopped  // Run has returned, or is about to
)

func newRegistry(config Config) *registry {
	g := &registry{entries: make(entries), ran: make(chan struct{}), reserved: make(map[*entry]int),
		life: lifecycle.Life{Prefix: "timer", Type: "Scheduler", Is: "timers are"}}
	g.waiting = newWaiting(config, g)
	return g
}

func (r *registry) current() Phase { return r.life.Phase() }

// starting reports whether runs may start.
func (r *registry) starting() bool {
	p := r.current()
	return p == PhaseRunning || p == PhasePreStop
}

// mayStart reports whether ticks and triggers may be tried with these settings.
func (r *registry) mayStart(s *settings) bool { return r.starting() && s.current() }

func (r *registry) setPhase(p Phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life.Enter(p)
}

// begin enters PhaseRunning. It calls prepare before anything may start, with mu held.
func (r *registry) begin(prepare func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	prepare()
	r.life.Enter(PhaseRunning)
	close(r.ran)
}

// add adds all timers or, if a name is taken, none. If a timer takes the name of a removed timer
// whose runs are in progress, it shares the entry of that timer, and add returns it in continuing.
// The caller holds mu.
func (r *registry) add(list []*settings, names map[string]bool) (continuing []*settings, errs []error) {
	if p := r.current(); p == PhaseDraining || p == PhaseStopped {
		errs = append(errs, errShuttingDown)
	}
	for name := range names {
		if r.entries.find(name) != nil {
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
		if e := r.entries[s.timer.Name]; e != nil {
			s.entry, s.nth = e, e.settings.Load().nth+1
			e.knownAt.Store(0) // it may refer to another schedule
			continuing = append(continuing, s)
		} else {
			r.entries[s.timer.Name] = s.entry
			r.labels.join(&s.entry.record)
		}
		s.entry.settings.Store(s)
	}
	return continuing, nil
}

// update replaces the settings of the timer with that name, and returns the old ones. The caller
// holds mu.
func (r *registry) update(s *settings) (old *settings, err error) {
	if p := r.current(); p == PhaseDraining || p == PhaseStopped {
		return nil, errShuttingDown
	}
	old = r.entries.find(s.timer.Name)
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

// get returns the settings of the timer with that name, or nil if there is none.
func (r *registry) get(name string) *settings {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entries.find(name)
}

// named returns the settings of the timer with that name, which may be a removed timer whose runs
// are in progress. It returns nil if there is neither.
func (r *registry) named(name string) *settings {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[name]; e != nil {
		return e.settings.Load()
	}
	return nil
}

// registered returns the settings of the timers of this host.
func (r *registry) registered() []*settings {
	return slices.DeleteFunc(r.all(), (*settings).removed)
}

// all returns the settings of the timers of this host, including removed timers whose runs are in
// progress.
func (r *registry) all() []*settings {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list()
}

// list is all for a caller that holds mu.
func (r *registry) list() []*settings {
	list := make([]*settings, 0, len(r.entries))
	for _, e := range r.entries {
		list = append(list, e.settings.Load())
	}
	return list
}

// remove removes a timer, so that no run of it starts any more. It returns nil if there is no timer
// with that name. The caller holds mu.
func (r *registry) remove(name string) *settings {
	s := r.entries.find(name)
	if s == nil {
		return nil
	}
	s.registration.removed.Store(true)
	r.entries.forget(s.entry, r.labels)
	return s
}

// retire removes a timer if it has no run in progress and nothing waits. Otherwise it returns
// false. The caller holds mu.
func (r *registry) retire(e *entry) bool {
	s := e.settings.Load()
	if e.places.Load() > 0 || r.reserved[e] > 0 || e.pending != nil || r.waiting.placeQueue.hasTriggerOf(e) {
		return false
	}
	if !s.removed() {
		s.registration.removed.Store(true)
		r.entries.forget(e, r.labels)
	}
	return true
}

// entries are the timers of a registry by name, including removed timers whose runs are in
// progress. registry.mu guards them.
type entries map[string]*entry

// find returns the settings of the timer with that name, or nil if there is none.
func (e entries) find(name string) *settings {
	if known := e[name]; known != nil && !known.settings.Load().removed() {
		return known.settings.Load()
	}
	return nil
}

// forget drops a removed timer and its label, unless runs of the timer are in progress.
func (e entries) forget(gone *entry, l labels) {
	if s := gone.settings.Load(); s.removed() && gone.places.Load() == 0 {
		delete(e, s.timer.Name)
		l.part(&gone.record)
	}
}
