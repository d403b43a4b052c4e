package timer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// A Status is what a Scheduler knows of itself at one moment. It comes from memory and costs the store nothing.
type Status struct {
	Phase  string // created, running, leaving, draining, stopped
	Holder dlock.Holder
	Store  StoreStatus
	Timers []TimerStatus // by name
}

// Timer returns the status of one timer. ok is false if there is none of that name.
func (s Status) Timer(name string) (t TimerStatus, ok bool) {
	for _, t := range s.Timers {
		if t.Name == name {
			return t, true
		}
	}
	return TimerStatus{}, false
}

// StoreStatus is the store as this host's last call found it.
type StoreStatus struct {
	Name  string    // "" without a store
	Up    bool      // false also before the first call
	Err   string    // of the last call
	Since time.Time // when it came to be so
}

// TimerStatus is one timer on this host. Ticks == Started + the sum of Skipped + those being tried at this moment.
type TimerStatus struct {
	Name           string
	Next           time.Time         // the next tick; zero: none
	Ticks          uint64            // that came due
	Started        uint64            // ticks that started a run
	Skipped        map[Reason]uint64 // ticks that did not
	Running        []RunStatus       // by start
	Last           *RunResult        // the run that ended last; nil: none
	Fallback       bool              // it runs, or would run, without the store
	MaxConcurrency int               // as it is in force, defaults filled in
	MaxPerTick     int
	MaxPerHost     int
	Declared       int    // MaxConcurrency of other hosts if they disagree, else 0
	Fault          string // why the schedule is no longer followed; "": it is
}

// RunStatus is a run that goes on.
type RunStatus struct {
	Tick     time.Time // zero: triggered
	Slot     int
	Fence    dlock.Fence
	Started  time.Time
	Degraded bool
	Valid    bool
	Overdue  bool // it is past MaxRunTime: its handler ignores its context
}

// RunResult is a run that has ended.
type RunResult struct {
	Tick    time.Time
	Started time.Time
	Took    time.Duration
	Outcome Outcome
	Err     error
}

// Status returns a snapshot.
func (s *Scheduler) Status() Status {
	s.lock()
	defer s.unlock()
	st := Status{Phase: s.phase.String(), Holder: s.config.Holder}
	if s.store != nil {
		st.Store = s.stores.status(s.store.label)
	}
	for _, e := range s.entries {
		st.Timers = append(st.Timers, e.status())
	}
	slices.SortFunc(st.Timers, func(a, b TimerStatus) int { return strings.Compare(a.Name, b.Name) })
	return st
}

func (e *entry) status() TimerStatus {
	t := TimerStatus{Name: e.timer.Name, MaxConcurrency: e.timer.MaxConcurrency, MaxPerTick: e.timer.MaxPerTick, MaxPerHost: e.timer.MaxPerHost}
	if e.next != 0 {
		t.Next = time.UnixMicro(e.next)
	}
	d := e.detail
	if d == nil {
		return t
	}
	t.Ticks, t.Started, t.Skipped = d.ticks, d.started, maps.Clone(d.skipped)
	t.Last, t.Declared, t.Fault = d.last, d.declared, d.fault
	t.Fallback = e.fallback()
	for r := range d.runs {
		t.Running = append(t.Running, RunStatus{
			Tick: r.tick, Slot: r.slot, Fence: r.Fence(), Started: r.started,
			Degraded: r.Degraded(), Valid: r.Valid(), Overdue: time.Since(r.started) > e.timer.MaxRunTime,
		})
	}
	slices.SortFunc(t.Running, func(a, b RunStatus) int { return a.Started.Compare(b.Started) })
	return t
}

func (e *entry) fallback() bool {
	d := e.detail
	return d != nil && e.timer.OnStoreDown == RunLocal && (d.storeDown || d.degraded > 0)
}

// showFallback is called with mu held after anything that changes fallback.
func (s *Scheduler) showFallback(e *entry) {
	if m := s.metricsOf(e); m != nil {
		m.fallback(e.timer.Name, e.fallback())
	}
}

// Live returns an error if the scheduling goroutine has stalled: a restart of the process is the only help. It has
// nothing to do with the store.
func (s *Scheduler) Live() error {
	planned := s.wakeBy.Load()
	if planned == 0 {
		return nil
	}
	if late := time.Since(s.born) - time.Duration(planned); late > stalled {
		return fmt.Errorf("the scheduler has stalled for %v", late.Round(time.Second))
	}
	return nil
}

// Ready returns an error unless Run goes on and its context has not ended. A store that is down does not make
// a host unready: all hosts would be so at once.
func (s *Scheduler) Ready() error {
	s.lock()
	defer s.unlock()
	switch s.phase {
	case running:
		return nil
	case created:
		return errors.New("the timers are not running yet")
	default:
		return fmt.Errorf("the timers are %s", map[phase]string{leaving: "draining", draining: "draining", stopped: "stopped"}[s.phase])
	}
}

// Degraded returns what is not as it should be though the host can serve: the store does not answer, timers go on
// without it, it is in quarantine after a restart, or hosts disagree about a limit.
func (s *Scheduler) Degraded() error {
	s.lock()
	defer s.unlock()
	var errs []error
	if s.store != nil && s.stores.down() {
		errs = append(errs, fmt.Errorf("the store (%s) does not answer since %s: %s", s.store.label, s.stores.since.UTC().Format(time.RFC3339), s.stores.err))
	}
	if left := time.Until(s.quarantine); left > 0 {
		errs = append(errs, fmt.Errorf("the store restarted and may have lost its leases: it grants nothing for another %v", left.Round(time.Second)))
	}
	var timers []string
	for name, e := range s.entries {
		if e.fallback() {
			timers = append(timers, fmt.Sprintf("timer %q runs without the store", name))
		}
		if e.detail != nil && e.detail.declared != 0 {
			timers = append(timers, fmt.Sprintf("timer %q has MaxConcurrency %d here and %d on other hosts", name, e.timer.slots(), e.detail.declared))
		}
	}
	slices.Sort(timers)
	for _, t := range timers {
		errs = append(errs, errors.New(t))
	}
	return errors.Join(errs...)
}
