package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
)

// storeWatch notices how the store is: metrics, health, one log line per change.
type storeWatch struct {
	scheduler *Scheduler
	label     string
	caps      dlock.Capabilities

	acquireTime prometheus.Observer // nil: there are no metrics
	ops         map[dlock.StoreOp]opMetrics
}

func newStoreWatch(s *Scheduler, store dlock.DistributedLock) *storeWatch {
	return &storeWatch{scheduler: s, label: storeLabel(store), caps: dlock.CapabilitiesOf(store)}
}

func storeLabel(store dlock.DistributedLock) string {
	if s, ok := store.(fmt.Stringer); ok {
		return fmt.Sprintf("%v", s) // fmt survives a String that panics
	}
	return "custom"
}

// called is the session's hook.
func (w *storeWatch) called(c dlock.StoreCall) {
	failure := c.Err
	if c.Refused() {
		failure = nil // an answer
	}
	if m, ok := w.ops[c.Op]; ok {
		m.took.Observe(c.Took.Seconds())
		if failure != nil {
			m.failed.Inc()
		}
	}
	if c.Op != dlock.OpExtend { // an acquire is judged as a whole, when it has been asked twice
		return
	}
	s := w.scheduler
	s.lock()
	defer s.unlock()
	w.heartbeats(c)
	if c.Canceled { // that says nothing of the store
		return
	}
	if matches(failure, dlock.ErrFault) {
		failure = nil
	}
	w.saw(c.Name, failure, true)
}

// heartbeats counts the leases that were renewed, or not, and hears of overrides. Called with mu
// held.
func (w *storeWatch) heartbeats(c dlock.StoreCall) {
	s := w.scheduler
	for i, g := range c.Grants {
		outcome := dlock.GrantUnknown
		if c.Err == nil {
			outcome = c.Results[i].Outcome
		}
		if outcome == dlock.GrantOK && g.Name == hostsLock {
			s.hearUpdate(c.Results[i].Info.Version)
		}
		name, ours := strings.CutPrefix(g.Name, "timer:")
		if e := s.registry.named(name); ours && e != nil {
			s.ledger.count(&e.state.record, func(t *tally) { t.ofStore().beats[min(outcome, dlock.GrantLost)]++ })
		}
	}
}

// saw takes in whether the store answered for a name. Called with mu held.
func (w *storeWatch) saw(name string, failure error, renewal bool) {
	s := w.scheduler
	shard := w.shardOf(name)
	if shard != "" && !w.sawServer(shard, failure, renewal) {
		return
	}
	c := s.breaker.saw(failure, renewal)
	if c.mended = c.answered && !s.breaker.open && !c.closed && s.without > 0; c.mended {
		c.tell = s.breaker.mayTell(&s.breaker.told, time.Now())
		s.breaker.telling = false
	}
	switch {
	case !c.tell:
	case c.setup:
		s.log.later(slog.LevelWarn, "timer: the store is not set up right: until somebody mends it, timers that share it skip their ticks, whatever their OnStoreDown", "store", w.label, "err", failure)
	case c.opened:
		local, skip := s.policies()
		s.log.later(slog.LevelWarn, "timer: the store fails or does not answer; timers go on as their OnStoreDown says", "store", w.label,
			"timers_run_local", local, "timers_skip", skip, "err", failure)
	case c.closed:
		s.log.later(slog.LevelInfo, "timer: the store answers again", "store", w.label, "after", c.lasted.Round(time.Millisecond), "runs_without_it", s.without)
	case c.mended:
		s.log.later(slog.LevelWarn, "timer: the store did not answer for a moment, and runs started without it", "store", w.label, "runs_without_it", s.without)
	}
	if c.answered && !s.breaker.open || c.closed {
		s.without = 0
		if shard == "" {
			s.storeIsBack(shard)
		}
		s.audit()
		if s.degraded > 0 {
			s.prod()
		}
	}
}

// heard takes in what an acquire of a name told of the store itself. It returns the error, or, of a
// store that was not set up right when it last said anything, one that says so, too. Called with mu
// held.
func (w *storeWatch) heard(name string, err error) error {
	failed, ok := errors.AsType[*dlock.StoreError](err)
	if !ok {
		if err == nil || errors.Is(err, dlock.ErrNotAcquired) {
			w.saw(name, nil, false)
		}
		return err
	}
	switch reasonOf(failed) {
	case ReasonStoreFault: // one bad key, found by a store that answers
		w.saw(name, nil, false)
	case ReasonStoreSetup:
		w.saw(name, failed.Err, false)
	default:
		w.saw(name, failed.Err, false)
		if setup := w.scheduler.breakerOf(name).setup; setup != nil {
			return fmt.Errorf("%w; before it fell silent it said: %w", err, setup)
		}
	}
	return err
}

// policies counts the timers that share the store by what they do while it is down. Called with mu
// held.
func (s *Scheduler) policies() (local, skip int) {
	for _, e := range s.registry.registered() {
		switch {
		case !s.shared(e):
		case e.timer.OnStoreDown == StoreDownRunLocal:
			local++
		default:
			skip++
		}
	}
	return local, skip
}

// audit has the store look at its server, when it first answers and when it answers again: that may
// be another server. Called with mu held.
func (s *Scheduler) audit() {
	auditor := s.store.caps.Auditor
	if auditor == nil || s.auditing || !s.registry.join() {
		return
	}
	s.auditing = true
	go func() {
		ctx, cancel := context.WithTimeout(s.base, s.config.StoreTimeout)
		defer cancel()
		var warnings []string
		err := guard(func() (err error) { warnings, err = auditor.Audit(ctx); return err })
		s.lock()
		defer s.unlock()
		for _, w := range warnings {
			if s.newWarning(w) {
				s.log.later(slog.LevelWarn, "timer: the store is not set up for leases", "store", s.store.label, "warning", w)
			}
		}
		if err != nil && s.newWarning("could not be looked at") {
			s.log.later(slog.LevelInfo, "timer: the store could not be looked at", "store", s.store.label, "err", err)
		}
		s.auditing = false
		s.registry.done()
	}()
}

// warnEvery is how often a warning of an audit is logged: a store of which a server comes and goes
// is audited each time.
const warnEvery = time.Hour

// measured are the amounts in a warning, which are different each time.
var measured = regexp.MustCompile(`\b([0-9.]+(ns|µs|ms|s|m|h))+\b|\b[0-9]+ (bytes|old versions|rows)`)

// newWarning reports whether a warning was not logged for a while, and notes that it is now. Called
// with mu held.
func (s *Scheduler) newWarning(text string) bool {
	text = measured.ReplaceAllString(text, "")
	now := time.Now()
	maps.DeleteFunc(s.warned, func(_ string, at time.Time) bool { return now.Sub(at) >= warnEvery })
	if _, told := s.warned[text]; told {
		return false
	}
	if s.warned == nil {
		s.warned = make(map[string]time.Time)
	}
	s.warned[text] = now
	return true
}

// guard turns a panic of a store into an error.
func guard(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return call()
}

// storeIsBack ends the fallback of timers that have not asked the store, or that server of it,
// since. Called with mu held.
func (s *Scheduler) storeIsBack(shard string) {
	for _, e := range s.registry.all() {
		if shard == "" || s.store.shardOf(e.lockName) == shard {
			e.state.storeDown = false
		}
	}
}
