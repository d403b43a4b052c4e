package cluster

import (
	"encoding/json"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
)

// The JSON of a Snapshot is for programs in other languages, like that of timer.Status: unknown or
// absent fields are omitted, instants are in UTC, durations are in seconds, errors are texts, and a
// holder is host/pid/id. It cannot be decoded into a Snapshot.

type jsonSeconds time.Duration

// MarshalJSON implements json.Marshaler.
func (j jsonSeconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(j).Seconds()) }

// some returns list, or an empty slice instead of nil, so that JSON shows [] and not null.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func holderText(h dlock.Holder) string {
	if h == (dlock.Holder{}) {
		return ""
	}
	return h.String()
}

// maxErrorLen is the maximum length in bytes of an error in the JSON of a Snapshot.
const maxErrorLen = 4096

// MarshalJSON implements json.Marshaler: see Snapshot.
func (s *Snapshot) MarshalJSON() ([]byte, error) {
	text := guard.Text(s.Err, maxErrorLen) // the error may be the store's, and its methods may panic
	return json.Marshal(struct {
		Self       Self           `json:"self"`
		Runners    []RunnerDetail `json:"runners"`
		ReadAt     time.Time      `json:"read_at,omitzero"`
		ReadAge    jsonSeconds    `json:"read_age"`
		Err        string         `json:"err,omitempty"`
		Stale      bool           `json:"stale,omitempty"`
		Hosts      []Host         `json:"hosts"`
		Leases     []Lease        `json:"leases"`
		MoreLeases bool           `json:"more_leases,omitempty"`
		Events     []HistoryEvent `json:"events"`
		Runs       []HistoryRun   `json:"runs"`
		History    []TimerHistory `json:"history"`

		OtherEnvironments []string `json:"other_environments,omitempty"`
	}{s.Self, some(s.Runners), s.ReadAt.UTC(), jsonSeconds(s.ReadAge), text, s.Stale, some(s.Hosts), some(s.Leases),
		s.MoreLeases, some(s.Events), some(s.Runs), some(s.History), s.OtherEnvironments})
}

// MarshalJSON implements json.Marshaler: see Snapshot.
func (s Self) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Holder      string      `json:"holder"`
		Host        string      `json:"host"`
		PID         int         `json:"pid"`
		Environment string      `json:"environment,omitempty"`
		AppVersion  string      `json:"app_version,omitempty"`
		Version     string      `json:"version"`
		GoVersion   string      `json:"go_version"`
		StartedAt   time.Time   `json:"started_at"`
		UpFor       jsonSeconds `json:"up_for"`
	}{s.Holder.String(), s.Holder.Host, s.Holder.PID, s.Environment, s.AppVersion, s.Version, s.GoVersion,
		s.StartedAt.UTC(), jsonSeconds(s.UpFor)})
}

// MarshalJSON implements json.Marshaler: see Snapshot.
func (h Host) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Holder      string         `json:"holder"`
		Host        string         `json:"host"`
		PID         int            `json:"pid"`
		Own         bool           `json:"own"`
		State       HostState      `json:"state"`
		Left        bool           `json:"left,omitempty"`
		Environment string         `json:"environment,omitempty"`
		AppVersion  string         `json:"app_version,omitempty"`
		Version     string         `json:"version,omitempty"`
		StartedAt   time.Time      `json:"started_at"`
		SeenAt      time.Time      `json:"seen_at"`
		ClockOffset jsonSeconds    `json:"clock_offset"`
		TTL         jsonSeconds    `json:"ttl"`
		Timers      []TimerDetail  `json:"timers"`
		Runners     []RunnerDetail `json:"runners"`
	}{h.Holder.String(), h.Holder.Host, h.Holder.PID, h.Own, h.State, h.Left, h.Environment, h.AppVersion, h.Version,
		h.StartedAt.UTC(), h.SeenAt.UTC(), jsonSeconds(h.ClockOffset), jsonSeconds(h.TTL), some(h.Timers),
		some(h.Runners)})
}

// MarshalJSON implements json.Marshaler: see Snapshot.
func (l Lease) MarshalJSON() ([]byte, error) {
	var slot *int
	if !l.Mutex {
		slot = &l.Slot
	}
	return json.Marshal(struct {
		Name       string      `json:"name"`
		Slot       *int        `json:"slot,omitempty"` // nil for a mutex
		Kind       string      `json:"kind,omitempty"`
		State      LeaseState  `json:"state"`
		Holder     string      `json:"holder,omitempty"`
		Own        bool        `json:"own"`
		HostState  HostState   `json:"host_state,omitempty"`
		Fence      dlock.Fence `json:"fence,omitempty"`
		AcquiredAt time.Time   `json:"acquired_at"`
		RenewedAt  time.Time   `json:"renewed_at,omitzero"`
		ExpiresAt  time.Time   `json:"expires_at,omitzero"`
		ReleasedAt time.Time   `json:"released_at,omitzero"`
		Recorded   bool        `json:"recorded,omitempty"`
	}{l.Name, slot, l.Kind, l.State, holderText(l.Holder), l.Own, l.HostState, l.Fence, l.AcquiredAt.UTC(),
		l.RenewedAt.UTC(), l.ExpiresAt.UTC(), l.ReleasedAt.UTC(), l.Recorded})
}

// MarshalJSON implements json.Marshaler: see Snapshot.
func (h HistoryEvent) MarshalJSON() ([]byte, error) {
	var slot *int
	if h.Name != "" && h.Slot >= 0 {
		slot = &h.Slot
	}
	return json.Marshal(struct {
		ID     string      `json:"id"`
		At     time.Time   `json:"at"`
		Kind   EventKind   `json:"kind"`
		Name   string      `json:"name,omitempty"`
		Slot   *int        `json:"slot,omitempty"`
		Fence  dlock.Fence `json:"fence,omitempty"`
		Holder string      `json:"holder,omitempty"`
		Text   string      `json:"text,omitempty"`
	}{h.ID, h.At.UTC(), h.Kind, h.Name, slot, h.Fence, holderText(h.Holder), h.Text})
}

// MarshalJSON implements json.Marshaler: see Snapshot.
func (h HistoryRun) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID        string      `json:"id"`
		Timer     string      `json:"timer"`
		Holder    string      `json:"holder,omitempty"`
		Tick      time.Time   `json:"tick,omitzero"`
		Slot      int         `json:"slot"`
		Fence     dlock.Fence `json:"fence,omitempty"`
		StartedAt time.Time   `json:"started_at"`
		EndedAt   time.Time   `json:"ended_at"`
		Took      jsonSeconds `json:"took"`
		Outcome   string      `json:"outcome"`
		Err       string      `json:"err,omitempty"`
		Stack     string      `json:"stack,omitempty"`
		Attempts  int         `json:"attempts"`
		By        string      `json:"by,omitempty"`
	}{h.ID, h.Timer, holderText(h.Holder), h.Tick.UTC(), h.Slot, h.Fence, h.StartedAt.UTC(), h.EndedAt.UTC(),
		jsonSeconds(h.Took), h.Outcome, h.Err, h.Stack, h.Attempts, h.By})
}

// MarshalJSON implements json.Marshaler: see Snapshot.
func (t TimerHistory) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Timer        string     `json:"timer"`
		Last         HistoryRun `json:"last_run"`
		SucceededAt  time.Time  `json:"succeeded_at,omitzero"`
		Failures     int        `json:"failed_in_a_row"`
		FailingSince time.Time  `json:"failing_since,omitzero"`
		Outcomes     []string   `json:"outcomes"`
	}{t.Timer, t.Last, t.SucceededAt.UTC(), t.Failures, t.FailingSince.UTC(), some(t.Outcomes)})
}

// MarshalJSON implements json.Marshaler: see Snapshot.
func (h HistoryBucket) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		StartedAt   time.Time   `json:"started_at"`
		Interval    jsonSeconds `json:"interval"`
		Runs        int         `json:"runs"`
		Failed      int         `json:"failed"`
		Took        jsonSeconds `json:"took"`
		LongestTook jsonSeconds `json:"longest_took"`
		P50Took     jsonSeconds `json:"p50_took,omitzero"`
		P95Took     jsonSeconds `json:"p95_took,omitzero"`
	}{h.StartedAt.UTC(), jsonSeconds(h.Interval), h.Runs, h.Failed, jsonSeconds(h.Took), jsonSeconds(h.LongestTook),
		jsonSeconds(h.TookPercentile(50)), jsonSeconds(h.TookPercentile(95))})
}
