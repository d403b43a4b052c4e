package timer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// A storeWatch monitors the store. It is not on the path of a tick. Every part may call it, and it
// calls none of them. It passes what the store's answers say about single timers to views.
type storeWatch struct {
	label     string
	timeout   time.Duration // for each call
	ttl       time.Duration
	caps      driver.Capabilities
	names     shardNames
	log       *lineLog
	events    *events
	registry  *registry
	views     *views
	overrides *overrides
	base      context.Context // the context of all calls; set when Run begins, before anything starts
	wake      chan struct{}   // wakes the prober, because the store is back or there is something new to read

	metrics *storeMetrics // nil if there are none

	// mu guards the fields below. docs/architecture.md defines the lock order.
	mu               sync.Mutex
	breakers         breakers
	quarantinedUntil time.Time // until when the store grants nothing; zero if it grants
	ownFault         error     // the fault that the store finds in fleet.HostsLock or in a probe's lock, or nil
	auditing         bool
	warned           map[string]time.Time // when each warning of an audit was last logged
	awaitingFirst    bool                 // Run is waiting for the store's first answer
	wasCalled        bool                 // the prober has called the store, whatever it answered
	hosts            int                  // hosts on the store when last counted, including this one; 0 if not known
	ranWithout       int                  // runs that have started without the store since it last answered
}

func newStoreWatch(config Config, log *lineLog, v *events, g *registry, l *ledger) *storeWatch {
	w := &storeWatch{
		label: storeLabel(config.Store), timeout: config.StoreTimeout, ttl: config.TTL,
		caps: driver.CapabilitiesOf(config.Store), log: log, events: v, registry: g,
		wake: make(chan struct{}, 1),
	}
	w.names = shardNames{w.caps.Sharder}
	w.views = &views{log: log, ledger: l}
	w.overrides = &overrides{log: log, registry: g, wake: w.wakeProber}
	return w
}

func storeLabel(store dlock.DistributedLock) string {
	if s, ok := store.(fmt.Stringer); ok {
		return strings.ToValidUTF8(fmt.Sprintf("%v", s), "?") // fmt recovers if String panics
	}
	return "custom"
}

// begin is called when Run begins, before anything calls the store. It needs no mutex at that
// point, and must not lock one, because the caller holds the registry's mutex.
func (s *storeWatch) begin(base context.Context) {
	s.base, s.awaitingFirst = base, true
}

// wakeProber makes the prober call the store now.
func (s *storeWatch) wakeProber() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// called is the session's hook.
func (s *storeWatch) called(c dlock.StoreCall) {
	failure := c.Err
	if c.Refused() {
		failure = nil // a refusal counts as an answer
	}
	s.metrics.called(c.Op, c.Took, failure != nil && !c.Canceled)
	if c.Op != dlock.StoreOpExtend { // an acquire may take two calls, so its result is recorded elsewhere
		return
	}
	defer s.log.flush()
	s.heartbeats(c)
	if c.Canceled { // the result says nothing about the store
		return
	}
	if guard.Is(failure, dlock.ErrFault) {
		failure = nil
	}
	s.saw(s.resultOf(c.Name, failure, true))
}

// heartbeats counts renewals by result. It also reads the version of the overrides from them.
func (s *storeWatch) heartbeats(c dlock.StoreCall) {
	for i, g := range c.Grants {
		outcome := driver.GrantUnknown
		if c.Err == nil {
			outcome = c.Results[i].Outcome
		}
		if outcome == driver.GrantOK && g.Name == fleet.HostsLock {
			s.overrides.noteVersion(c.Results[i].Info.Version)
		}
		if fleet.IsTimer(g.Name) {
			s.metrics.renewed(outcome)
		}
	}
}

// recordAnswer records the store's answer to an acquire of a timer's slot, and reports whether the
// timer continues without the store.
func (s *storeWatch) recordAnswer(t tick, lease *dlock.Lease, err error) (degraded bool) {
	set := t.s
	_, failed := errors.AsType[*dlock.StoreError](err)
	switch no := refusal(err); {
	case failed:
		return s.views.recordDown(set, reasonOf(err), err)
	case lease != nil:
		s.overrides.applyAnswer(set, lease.Info(), nil)
		s.views.granted(set, lease.Info())
		s.endQuarantine()
	case no != nil:
		if t.missedAt == 0 { // the refusal of a missed tick may be due to a pause that has ended
			s.overrides.applyAnswer(set, no.Info, no)
		}
		s.views.refused(t, no)
		if no.Reason == dlock.ReasonQuarantine {
			s.beginQuarantine(no.ExpiresIn)
		}
	}
	return false
}

// saw records the result of a call. It returns the setup error of the server that was called, or
// nil if none is known.
func (s *storeWatch) saw(r result) (setupErr error) {
	s.mu.Lock()
	server, store := s.record(r)
	setupErr = s.breakers.at(r.shard).setupErr
	s.mu.Unlock()
	if store.opened {
		local, skip := s.policies()
		s.log.later(slog.LevelWarn, "timer: the store fails or does not answer: timers follow their OnStoreDown policy",
			"store", s.label, "timers_run_local", local, "timers_skip", skip, "err", r.failure)
	}
	if store.back {
		s.audit()
		if s.views.degradedRuns() > 0 {
			s.wakeProber()
		}
	}
	if server.back || store.back && r.shard == "" {
		s.storeIsBack(r.shard)
	}
	return setupErr
}

// An effect describes what a call has changed.
type effect struct {
	back   bool // the server or store answers, and its breaker is closed
	opened bool // the breaker of the whole store has opened, and the caller has to log that
}

// record records a call to the store, or to one of its servers. It returns what has changed for
// that server, and for the whole store. The caller holds mu.
func (s *storeWatch) record(r result) (server, store effect) {
	if r.shard != "" {
		if server = s.note(r, r.shard); !s.ofAll(r) {
			return server, store
		}
	}
	return server, s.note(r, "")
}

// note records what a call says about a server, or about the whole store if shard is "". The caller
// holds mu.
func (s *storeWatch) note(r result, shard string) (e effect) {
	b := s.breakers.at(shard)
	c := b.saw(r.failure, r.notSetUp, r.renewal)
	s.events.storeChanged(c, s.label, shard, b)
	if c.recovered = c.answered && !b.Open() && !c.closed && s.ranWithout > 0; c.recovered {
		c.log = b.startLogging(&b.loggedAt, time.Now())
		b.logging = false
	}
	if c.log {
		e.opened = s.logChange(c, r, shard)
	}
	e.back = c.answered && !b.Open() || c.closed
	if e.back && (shard == "" || len(s.breakers.down()) == 0) {
		s.ranWithout = 0
	}
	return e
}

// logChange logs what has changed for a server, or for the whole store if shard is "". It returns
// true if the breaker of the store has opened. The caller logs that change, because the line has
// the numbers of affected timers, which cannot be counted with mu held. The caller holds mu.
func (s *storeWatch) logChange(c change, r result, shard string) (opened bool) {
	what, whose, args := "the store", "timers that share it", []any{"store", s.label}
	if shard != "" {
		what, whose, args = "a server of the store", "timers on it", append(args, "server", shard)
	}
	switch {
	case c.notSetUp:
		s.log.later(slog.LevelWarn, "timer: "+what+" is not set up right: until it is fixed, "+whose+
			" skip their ticks, whatever their OnStoreDown", append(args, "err", r.failure)...)
	case c.opened && shard == "":
		return true
	case c.opened:
		s.log.later(slog.LevelWarn, "timer: "+what+" fails or does not answer; "+whose+
			" follow their OnStoreDown policy", append(args, "err", r.failure)...)
	case c.closed:
		s.log.later(slog.LevelInfo, "timer: "+what+" answers again",
			append(args, "down_for", c.lasted.Round(time.Millisecond), "runs_without_it", s.ranWithout)...)
	case c.recovered:
		s.log.later(slog.LevelWarn, "timer: "+what+" did not answer for a moment, and runs started without it",
			append(args, "runs_without_it", s.ranWithout)...)
	}
	return false
}

// recordAcquire records what the result of an acquire says about the store, and returns the error.
// If the store's last answer was that it is not set up correctly, the returned error includes that.
func (s *storeWatch) recordAcquire(name string, err error) error {
	failed, ok := errors.AsType[*dlock.StoreError](err)
	if !ok {
		if err == nil || errors.Is(err, dlock.ErrNotAcquired) {
			s.saw(s.resultOf(name, nil, false))
		}
		return err
	}
	why := reasonOf(failed)
	if why == ReasonStoreFault { // a key is faulty, but the store answers
		s.saw(s.resultOf(name, nil, false))
		return err
	}
	setupErr := s.saw(s.resultOf(name, failed.Err, false))
	if setupErr != nil && why != ReasonStoreSetup {
		return fmt.Errorf("%w; its last answer was: %w", err, setupErr)
	}
	return err
}

// policies counts the timers that share the store, by their OnStoreDown.
func (s *storeWatch) policies() (local, skip int) {
	for _, set := range s.registry.registered() {
		switch {
		case !set.shared():
		case set.timer.OnStoreDown == StoreDownRunLocal:
			local++
		default:
			skip++
		}
	}
	return local, skip
}

// bypass reports whether the breaker is open for a timer, so that the store must not be called. If
// it is open, bypass also returns the problem of the store (nil if the store has just answered
// again). It records and returns whether the timer continues without the store.
func (s *storeWatch) bypass(set *settings) (open bool, why error, degraded bool) {
	shard := s.names.of(set.entry.lockName)
	s.mu.Lock()
	b := s.breakers.at(shard)
	open = b.Open()
	var reason Reason
	if open {
		why, reason = b.why(), b.reason()
	}
	s.mu.Unlock()
	if !open {
		return false, nil, false
	}
	degraded = s.views.recordDown(set, reason, why)
	if !s.isOpen(set) { // storeIsBack may have run before recordDown
		s.views.upAgain(set)
	}
	return true, why, degraded
}

// isOpen reports whether the breaker is open for a timer.
func (s *storeWatch) isOpen(set *settings) bool {
	shard := s.names.of(set.entry.lockName)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.breakers.at(shard).Open()
}

// serves reports whether the server of a timer answered the last call and its breaker is closed.
func (s *storeWatch) serves(set *settings) bool {
	shard := s.names.of(set.entry.lockName)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.breakers.at(shard).well()
}

// allOpen reports whether the breaker is open for all timers.
func (s *storeWatch) allOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.breakers.whole.Open()
}

// notSetUp reports whether the last answer of a timer's server was that it is not set up correctly.
func (s *storeWatch) notSetUp(set *settings) bool {
	shard := s.names.of(set.entry.lockName)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.breakers.at(shard).setupErr != nil
}

// isWell reports whether the store answered the last call and the breaker is closed.
func (s *storeWatch) isWell() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.breakers.whole.well()
}

// startedWithout counts a run that started without the store.
func (s *storeWatch) startedWithout() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ranWithout++
}

// hostsSeen returns how many hosts shared the store when last counted, including this one, or 0 if
// not known.
func (s *storeWatch) hostsSeen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts
}

// unknownQuarantine is the pause before the next call if the store does not say when its quarantine
// ends.
const unknownQuarantine = time.Second

// beginQuarantine records how long a store that restarted grants nothing, and logs that once.
func (s *storeWatch) beginQuarantine(endsIn time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	endsIn = max(endsIn, unknownQuarantine)
	if !now.Before(s.quarantinedUntil) {
		s.log.later(slog.LevelWarn,
			"timer: the store has (re)started and may have lost its leases: it grants nothing until the old ones "+
				"must have ended",
			"store", s.label, "for", endsIn)
	}
	if until := now.Add(endsIn); until.After(s.quarantinedUntil) {
		s.quarantinedUntil = until
	}
}

// endQuarantine records that the store grants leases, and logs that once after a quarantine.
func (s *storeWatch) endQuarantine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.quarantinedUntil.IsZero() && !time.Now().Before(s.quarantinedUntil) {
		s.quarantinedUntil = time.Time{}
		s.log.later(slog.LevelInfo, "timer: the store grants again", "store", s.label)
	}
}

// audit makes the store check the settings of its server. It is called when the store first
// answers, and whenever it answers again, because it may then be another server.
func (s *storeWatch) audit() {
	auditor := s.caps.Auditor
	if auditor == nil || !s.registry.join() {
		return
	}
	s.mu.Lock()
	busy := s.auditing
	s.auditing = true
	s.mu.Unlock()
	if busy {
		s.registry.done()
		return
	}
	go func() {
		defer s.registry.done()
		defer s.log.flush()
		ctx, cancel := context.WithTimeout(s.base, s.timeout)
		defer cancel()
		var warnings []string
		err := guard.Call("store", func() (err error) { warnings, err = auditor.Audit(ctx); return err })
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, text := range warnings {
			if !s.newWarning(text) {
				continue
			}
			if note, ok := strings.CutPrefix(text, driver.AuditNote); ok {
				s.log.later(slog.LevelInfo, "timer: note on the settings of the store", "store", s.label, "note",
					note)
				continue
			}
			s.log.later(slog.LevelWarn, "timer: the settings of the store are unsafe for leases",
				"store", s.label, "warning", text)
		}
		if err != nil && s.newWarning("settings could not be checked") {
			s.log.later(slog.LevelInfo, "timer: the store's settings could not be checked",
				"store", s.label, "err", err)
		}
		s.auditing = false
	}()
}

// warnEvery is the minimum time between two logs of the same warning. Without it, every audit would
// log the warning again while a server is flapping.
const warnEvery = time.Hour

// measured matches the amounts in a warning, which differ from audit to audit.
var measured = regexp.MustCompile(`\b([0-9.]+(ns|µs|ms|s|m|h))+\b|\b[0-9]+ (bytes|old versions|rows)`)

// newWarning reports whether a warning was not logged within warnEvery, and records that it is
// logged now. The caller holds mu.
func (s *storeWatch) newWarning(text string) bool {
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

// storeIsBack ends the fallback of all timers of the store, or of one of its servers.
func (s *storeWatch) storeIsBack(shard string) {
	list := s.registry.all()
	if shard != "" {
		list = slices.DeleteFunc(list, func(set *settings) bool { return s.names.of(set.entry.lockName) != shard })
	}
	s.views.upAgain(list...)
}

// noteOwnFault records a fault that the store finds in fleet.HostsLock or in a probe's lock. It
// does not affect timers, but the hosts are not counted, and other keys may be damaged, too. why is
// the reason of the error. The caller holds mu.
func (s *storeWatch) noteOwnFault(why Reason, err error) {
	_, failed := errors.AsType[*dlock.StoreError](err)
	switch {
	case !failed:
		s.ownFault = nil
	case why == ReasonStoreFault:
		if s.ownFault == nil {
			s.log.later(slog.LevelWarn,
				"timer: the store found something wrong with tickslot's own keys: timers continue",
				"store", s.label, "err", err)
		}
		s.ownFault = err
	}
}

// calledOnce reports whether the prober has called the store, whatever it answered.
func (s *storeWatch) calledOnce() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wasCalled
}

// serversDown lists the servers whose breakers are open.
func (s *storeWatch) serversDown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.breakers.down()
}

// gauges returns the store's metrics.
func (s *storeWatch) gauges() (called, up, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &s.breakers.whole
	return b.called, b.why() == nil && s.ownFault == nil, b.Open()
}

// status returns the part of Status that describes the store.
func (s *storeWatch) status() StoreStatus {
	s.mu.Lock()
	b, down, fault := s.breakers.whole, s.breakers.down(), s.ownFault
	s.mu.Unlock()
	st := b.status(s.label)
	st.ServersDown = down
	if fault != nil {
		st.Up, st.Err = false, mask.Text(fmt.Sprint(fault))
	}
	return st
}

// reachable returns what prevents the store from serving, or nil.
func (s *storeWatch) reachable() error {
	s.mu.Lock()
	b, fault, quarantine := s.breakers.whole, s.ownFault, s.quarantinedUntil
	s.mu.Unlock()
	since := b.changedAt.UTC().Format(time.RFC3339)
	switch {
	case b.Open() && b.setupErr != nil:
		return fmt.Errorf("the store (%s) has been unable to serve timers since %s: %w", s.label, since, b.setupErr)
	case fault != nil:
		return fmt.Errorf("the store (%s) found something wrong with tickslot's own keys: %w", s.label, fault)
	case b.Open():
		return fmt.Errorf("the store (%s) has not answered since %s: %w", s.label, since, cmp.Or(b.err, errOnlyJust))
	}
	if left := time.Until(quarantine); left > 0 {
		return fmt.Errorf("the store restarted and may have lost its leases: it grants nothing for another %v",
			left.Round(time.Second))
	}
	return nil
}

var errOnlyJust = errors.New("it answered again only a moment ago")
