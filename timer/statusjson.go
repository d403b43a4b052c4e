package timer

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer/control"
)

// Programs in other languages read the JSON of a Status, so it has no sentinel values. NoLimit is
// null, unknown or absent values are omitted, times are in UTC, durations are numbers of seconds,
// and errors are texts. A Status cannot be unmarshaled from it.

// A jsonLimit is a number, or null for NoLimit.
type jsonLimit int

// MarshalJSON implements json.Marshaler.
func (j jsonLimit) MarshalJSON() ([]byte, error) {
	if j == NoLimit {
		return []byte("null"), nil
	}
	return json.Marshal(int(j))
}

// A jsonSeconds is a number of seconds, or null for NoLimit.
type jsonSeconds time.Duration

// MarshalJSON implements json.Marshaler.
func (j jsonSeconds) MarshalJSON() ([]byte, error) {
	if j == NoLimit {
		return []byte("null"), nil
	}
	return json.Marshal(time.Duration(j).Seconds())
}

// some returns list, or an empty slice if list is nil. JSON shows an empty slice as [], but nil as
// null.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func originOf(o driver.Cause) *driver.Cause {
	if o == (driver.Cause{}) {
		return nil
	}
	return &o
}

// MarshalJSON implements json.Marshaler. NoLimit is null, unknown values are omitted, times are in
// UTC, durations are numbers of seconds, and errors are texts.
func (s Status) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Phase  Phase         `json:"phase"`
		Holder string        `json:"holder"`
		Store  *StoreStatus  `json:"store,omitempty"`
		Hosts  int           `json:"hosts,omitempty"`
		Timers []TimerStatus `json:"timers"`
		Limits []LimitStatus `json:"limits"`

		Waiting       int    `json:"waiting"`
		DroppedEvents uint64 `json:"dropped_events"`
	}{s.Phase, s.Holder.String(), s.storeOrNil(), s.Hosts, some(s.Timers), some(s.Limits), s.Waiting, s.DroppedEvents})
}

// MarshalJSON implements json.Marshaler, as Status does.
func (l LimitStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name          string `json:"name"`
		Size          int    `json:"size"`
		SizeElsewhere int    `json:"size_elsewhere,omitempty"`
		Runs          int    `json:"runs"`

		Rate int     `json:"rate,omitempty"`
		Per  float64 `json:"per,omitempty"`
	}{l.Name, l.Size, l.SizeElsewhere, l.Runs, l.Rate, l.Per.Seconds()})
}

func (s Status) storeOrNil() *StoreStatus {
	if s.Store.Name == "" {
		return nil
	}
	return &s.Store
}

// MarshalJSON implements json.Marshaler, as Status does.
func (s StoreStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name        string    `json:"name"`
		Up          bool      `json:"up"`
		NotSetUp    bool      `json:"not_set_up"`
		BreakerOpen bool      `json:"breaker_open"`
		Err         string    `json:"err,omitempty"`
		ChangedAt   time.Time `json:"changed_at,omitzero"`
		ServersDown []string  `json:"servers_down,omitempty"`
	}{s.Name, s.Up, s.NotSetUp, s.BreakerOpen, s.Err, s.ChangedAt.UTC(), s.ServersDown})
}

// MarshalJSON implements json.Marshaler, as Status does.
func (t TimerStatus) MarshalJSON() ([]byte, error) {
	type catchUp struct {
		Policy string      `json:"policy"`
		Window jsonSeconds `json:"window_seconds"`
	}
	skipped := t.Skipped
	if skipped == nil {
		skipped = map[Reason]uint64{}
	}
	var effective *jsonLimit // omitted if not known
	if t.EffectiveLimit != 0 {
		effective = (*jsonLimit)(&t.EffectiveLimit)
	}
	var running []jsonRun
	for _, r := range t.Running {
		running = append(running, jsonRun(r))
	}
	return json.Marshal(struct {
		Name              string                   `json:"name"`
		Schedule          string                   `json:"schedule,omitempty"`
		Next              time.Time                `json:"next,omitzero"`
		Ticks             uint64                   `json:"ticks"`
		Started           uint64                   `json:"started"`
		Skipped           map[Reason]uint64        `json:"skipped"`
		Running           []jsonRun                `json:"running"`
		Last              *jsonResult              `json:"last,omitempty"`
		WaitingTick       time.Time                `json:"waiting_tick,omitzero"`
		LastRunAt         time.Time                `json:"last_run_at,omitzero"`
		LastSuccessAt     time.Time                `json:"last_success_at,omitzero"`
		TicksSinceSuccess int                      `json:"ticks_since_success"`
		Fallback          bool                     `json:"fallback"`
		MaxConcurrency    jsonLimit                `json:"max_concurrency"`
		MaxPerTick        jsonLimit                `json:"max_per_tick"`
		MaxPerHost        jsonLimit                `json:"max_per_host"`
		Limits            []string                 `json:"limits,omitempty"`
		EffectiveLimit    *jsonLimit               `json:"effective_limit,omitempty"`
		LimitElsewhere    int                      `json:"limit_elsewhere,omitempty"`
		LimitOverride     int                      `json:"limit_override,omitempty"`
		MaxRunTime        jsonSeconds              `json:"max_run_time_seconds"`
		CatchUp           catchUp                  `json:"catch_up"`
		RunOnStart        string                   `json:"run_on_start"`
		OnFull            string                   `json:"on_full"`
		OnStoreDown       string                   `json:"on_store_down"`
		LocalOnly         bool                     `json:"local_only"`
		MaxAttempts       int                      `json:"max_attempts"`
		AlarmAfter        jsonLimit                `json:"alarm_after"`
		Paused            *PauseStatus             `json:"paused,omitempty"`
		Triggers          []control.PendingTrigger `json:"triggers,omitempty"`
		ExpiredTriggers   int                      `json:"expired_triggers,omitempty"`
		StoreFault        string                   `json:"store_fault,omitempty"`
		Removed           bool                     `json:"removed"`
		ScheduleError     string                   `json:"schedule_error,omitempty"`
	}{
		Name: t.Name, Schedule: t.Schedule, Next: t.Next.UTC(), Ticks: t.Ticks, Started: t.Started, Skipped: skipped,
		Running: some(running), Last: (*jsonResult)(t.Last), WaitingTick: t.WaitingTick.UTC(),
		LastRunAt: t.LastRunAt.UTC(), LastSuccessAt: t.LastSuccessAt.UTC(),
		TicksSinceSuccess: t.TicksSinceSuccess, Fallback: t.Fallback, MaxConcurrency: jsonLimit(t.MaxConcurrency),
		MaxPerTick: jsonLimit(t.MaxPerTick), MaxPerHost: jsonLimit(t.MaxPerHost), Limits: t.Limits,
		EffectiveLimit: effective, LimitElsewhere: t.LimitElsewhere, LimitOverride: t.LimitOverride,
		MaxRunTime: jsonSeconds(t.MaxRunTime),
		CatchUp:    catchUp{t.CatchUp.Policy.String(), jsonSeconds(t.CatchUp.Window)},
		RunOnStart: t.RunOnStart.String(), OnFull: t.OnFull.String(),
		OnStoreDown: t.OnStoreDown.String(), LocalOnly: t.LocalOnly, MaxAttempts: t.MaxAttempts,
		AlarmAfter: jsonLimit(t.AlarmAfter), Paused: t.Paused, Triggers: t.Triggers,
		ExpiredTriggers: t.ExpiredTriggers, StoreFault: t.StoreFault, Removed: t.Removed,
		ScheduleError: t.ScheduleError,
	})
}

// MarshalJSON implements json.Marshaler, as Status does.
func (p PauseStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		driver.Cause
		Until time.Time `json:"until,omitzero"`
	}{p.Cause, p.Until.UTC()})
}

// A jsonRun is a run in a TimerStatus.
type jsonRun RunInfo

// MarshalJSON implements json.Marshaler.
func (j jsonRun) MarshalJSON() ([]byte, error) {
	var slot *int // omitted if the run has none
	if j.Slot >= 0 {
		slot = &j.Slot
	}
	return json.Marshal(struct {
		ID          string        `json:"id"`
		Tick        time.Time     `json:"tick,omitzero"`
		CaughtUp    bool          `json:"caught_up,omitempty"`
		OnStart     bool          `json:"on_start,omitempty"`
		TriggeredBy *driver.Cause `json:"triggered_by,omitempty"`
		PayloadLen  int           `json:"payload_bytes,omitempty"`
		Slot        *int          `json:"slot,omitempty"`
		Fence       dlock.Fence   `json:"fence,omitempty"`
		StartedAt   time.Time     `json:"started_at"`
		Attempt     int           `json:"attempt"`
		Degraded    bool          `json:"degraded"`
		Valid       bool          `json:"valid"`
		Overdue     bool          `json:"overdue"`
	}{j.ID, j.Tick.UTC(), j.CaughtUp, j.OnStart, originOf(j.TriggeredBy), j.PayloadLen, slot, j.Fence,
		j.StartedAt.UTC(), j.Attempt, j.Degraded, j.Valid, j.Overdue})
}

// A jsonResult is the result of a run in a TimerStatus.
type jsonResult RunResult

// MarshalJSON implements json.Marshaler.
func (j jsonResult) MarshalJSON() ([]byte, error) {
	text := ""
	if j.Err != nil {
		text = mask.Text(fmt.Sprint(j.Err)) // fmt recovers if Error panics
	}
	return json.Marshal(struct {
		Tick      time.Time   `json:"tick,omitzero"`
		OnStart   bool        `json:"on_start,omitempty"`
		StartedAt time.Time   `json:"started_at"`
		Took      jsonSeconds `json:"took_seconds"`
		Outcome   Outcome     `json:"outcome"`
		Attempts  int         `json:"attempts"`
		Err       string      `json:"err,omitempty"`
	}{j.Tick.UTC(), j.OnStart, j.StartedAt.UTC(), jsonSeconds(j.Took), j.Outcome, j.Attempt, text})
}
