package leader

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
)

// A State is what an Elector is doing.
type State string

const (
	// StateStopped: Run is not running.
	StateStopped State = "stopped"
	// StateStandby: this host waits for its turn. The store last reported Status.Leader as the
	// leader.
	StateStandby State = "standby"
	// StateLeading: the function is running.
	StateLeading State = "leading"
	// StateEnding: the function's context has ended, and the function has not returned yet.
	StateEnding State = "ending"
	// StateBackingOff: the function has returned or failed, and this host gives other hosts a try.
	StateBackingOff State = "backing_off"
	// StateStoreDown: the store does not answer, or is not set up correctly.
	StateStoreDown State = "store_down"
)

// A Status is what an Elector knows.
type Status struct {
	Role      string
	Max       int
	State     State
	ChangedAt time.Time // when the state began; zero: Run was not called

	// Who leads, as far as this host knows: this host itself, or the holder that the store named
	// last (of several, the one whose lease ends first). Zero: no host, or not known.
	Leader    dlock.Holder
	ElectedAt time.Time
	// When a host was last known to lead; zero: never since Run was called.
	LeaderSeenAt time.Time

	// Of the term (StateLeading and StateEnding).
	Slot  int
	Fence dlock.Fence

	// Why this host does not lead: the function's error (StateBackingOff; nil: it returned nil),
	// the store's error (StateStoreDown), Run's error (StateStopped), how the term was lost
	// (StateEnding), or why the store refused if not because others lead (StateStandby).
	Err error
	// When this host next asks the store; zero: it does not (StateLeading, StateEnding,
	// StateStopped).
	RetryAt time.Time

	Terms map[Outcome]uint64 // how many terms of this host have ended with each outcome
}

// maxErrorLen is how many bytes of an error a Status shows as JSON.
const maxErrorLen = 4096

// MarshalJSON implements json.Marshaler: unknown fields are left out, instants are in UTC, and
// errors are texts.
func (s Status) MarshalJSON() ([]byte, error) {
	text := guard.Text(s.Err, maxErrorLen) // it may be the function's error, whose methods may panic
	holder := ""
	if s.Leader != (dlock.Holder{}) {
		holder = s.Leader.String()
	}
	var slot *int
	if s.State == StateLeading || s.State == StateEnding {
		slot = &s.Slot
	}
	return json.Marshal(struct {
		Role         string             `json:"role"`
		Max          int                `json:"max"`
		State        State              `json:"state"`
		ChangedAt    time.Time          `json:"changed_at,omitzero"`
		Leader       string             `json:"leader,omitempty"`
		ElectedAt    time.Time          `json:"elected_at,omitzero"`
		LeaderSeenAt time.Time          `json:"leader_seen_at,omitzero"`
		Slot         *int               `json:"slot,omitempty"`
		Fence        dlock.Fence        `json:"fence,omitempty"`
		Err          string             `json:"err,omitempty"`
		RetryAt      time.Time          `json:"retry_at,omitzero"`
		Terms        map[Outcome]uint64 `json:"terms"`
	}{s.Role, s.Max, s.State, s.ChangedAt.UTC(), holder, s.ElectedAt.UTC(), s.LeaderSeenAt.UTC(), slot, s.Fence, text,
		s.RetryAt.UTC(), s.Terms})
}

// Status returns what this host knows. It does not call the store.
func (e *Elector) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := &e.view
	s := Status{Role: e.role.Name, Max: e.role.Max, State: v.state, ChangedAt: v.changedAt, Leader: v.leader,
		ElectedAt: v.electedAt, LeaderSeenAt: v.lastSeen(), Err: v.err, RetryAt: v.retryAt,
		Terms: make(map[Outcome]uint64, len(outcomes))}
	if v.term != nil {
		s.Slot, s.Fence = v.term.Slot(), v.term.Fence()
	}
	for i, o := range outcomes {
		s.Terms[o] = v.terms[i]
	}
	return s
}

// Healthy returns an error in these three cases:
//
//   - No host is known to have led for three TTLs and a RetryInterval.
//   - The function of this host has failed five times in a row over more than that time, each time
//     within MaxBackOff, and no other host was known to lead in between. So this is the only host
//     that takes part, or the function fails on the others as well.
//   - The function has ignored the end of its context for longer than StopTimeout.
//
// A host that stands by is healthy; so are a role that an operator has paused and an Elector that
// is not running. While a host waits after a term so that others can try, it does not ask who
// leads; the time counts from when it asks again (Status.RetryAt).
//
// After failures, a host is healthy again when another host is known to lead, or when a term ends
// well or lasts for MaxBackOff. With a Role.Max over 1, a store that grants a slot does not say
// whether the other slots are taken, so a host whose function always fails is not healthy even if
// other hosts lead.
//
// Healthy reads memory only, so a probe may call it:
//
//	health.New(timers, health.Check{Name: "relay", Func: elector.Healthy})
func (e *Elector) Healthy() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := &e.view
	lasts := time.Since(v.changedAt)
	timeout := 3*e.session.TTL() + e.role.RetryInterval
	switch {
	case v.state == StateStopped || v.paused:
		return nil
	case v.state == StateEnding && lasts > e.role.StopTimeout:
		return fmt.Errorf("role %q: the function has ignored the end of its context for %v", e.role.Name,
			lasts.Round(time.Second))
	}
	from := v.lastSeen()
	for _, at := range []time.Time{v.startedAt, v.backOffUntil} {
		if from.Before(at) {
			from = at
		}
	}
	var err error
	if nobody := time.Since(from); nobody > timeout {
		err = fmt.Errorf("role %q: no host is known to have led for %v", e.role.Name, nobody.Round(time.Second))
	} else if v.failing(timeout) {
		err = fmt.Errorf("role %q: the function has failed %d times in a row, and no other host is known to lead",
			e.role.Name, v.failures)
	}
	if err != nil && v.err != nil {
		err = fmt.Errorf("%w: %w", err, v.err)
	}
	return err
}
