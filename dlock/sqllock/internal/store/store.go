// Package store defines what sqllock needs from a database: see Database. The folders beside it
// implement it, one database each, in Go and SQL. It links no driver.
package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// A Database implements the operations of a store. All times are in microseconds.
type Database interface {
	// String is "postgres", "mysql" …
	String() string
	// Acquire takes a slot, a start of a tick if params have one, and a slot of each of
	// params.Shared, in one transaction.
	Acquire(ctx context.Context, params AcquireParams) (AcquireResult, error)
	// TakesShared reports whether params.Shared may have semaphores.
	TakesShared() bool
	// KeepsDelay reports whether Acquire keeps params.Delay.
	KeepsDelay() bool
	// Extend and Release take a JSON list of Grant and return a JSON list of Answer.
	Extend(ctx context.Context, ttl int64, grants string) (answers string, err error)
	Release(ctx context.Context, grants string) (answers string, err error)
	// List returns the leases that have not ended, as a JSON list of Lease.
	List(ctx context.Context, resource string) (held string, err error)
	// Enumerate looks at the params.Limit rows that follow params.After, in the order of the
	// primary key, and returns those of leases that are held or were released a short time ago. It
	// does not wait for locked rows.
	Enumerate(ctx context.Context, params EnumerateParams) (LeasePage, error)

	// Update changes the overrides of a name in one transaction. It returns false, and changes
	// nothing, if the name's version is not Update.IfVersion.
	Update(ctx context.Context, u Update) (done bool, err error)
	// Inspect takes a JSON list of resources, and returns a JSON list of Control for those it
	// knows, with their values if values is true.
	Inspect(ctx context.Context, resources string, values bool) (answers string, err error)
	// Revoke marks the lease of a slot, unless it is marked already. It returns false if no lease
	// with that fence is held.
	Revoke(ctx context.Context, resource string, slot int, fence int64, by string) (held bool, err error)

	// Tables are the tables that Migrate creates and Verify compares. The store adds Wrong and
	// Explain.
	Tables() sqlmigrate.Tables
	// Audit warns of settings that endanger leases. now is this host's clock.
	Audit(ctx context.Context, now func() time.Time) (warnings []string, err error)
	// Cleanup looks at limit rows that follow the row after, and deletes those that have been idle
	// for longer than retention.
	Cleanup(ctx context.Context, retention int64, after Row, limit int) (Page, error)
	// Close closes the connections that the database opened itself.
	Close() error
}

// AcquireParams is a driver.Request as a database takes it.
type AcquireParams struct {
	Resource string
	Slots    int // as requested; 0: mutex
	Token    string
	TTL      int64
	Tick     *int64
	Max      int
	MissedAt *int64 // when the tick came due, if it was missed
	Schedule int64  // of the tick
	Delay    int64  // since the last lease ended: see driver.Tick.Delay. Tick is nil then; 0: none
	Holder   driver.Holder
	Wait     int64 // milliseconds: the longest wait for a lock in the database, see LockWait
	Shared   []SemaphoreSpec
}

// SemaphoreSpec is a further semaphore of an acquire.
type SemaphoreSpec struct {
	Resource string
	Slots    int
	Rate     int   // starts within Per; 0: any number
	Per      int64 // µs
}

// AcquireResult is the database's answer to an acquire.
type AcquireResult struct {
	Reason     string // "ok", or a driver.Reason, or ReasonEnded
	Slot       int    // ok
	Fence      int64  // ok
	Declared   int    // slots, as declared by the latest grant
	SuccessAge int64  // µs since a grant was last released as succeeded; 0: unknown
	// full: the holder of the lease that ends first. tick_taken: who claimed the tick last
	Holder    driver.Holder
	HeldFor   int64 // µs: how long the holder has had it
	ExpiresIn int64 // µs: how long until it ends; paused: until the pause is over; 0: it has no end
	// ok: the previous lease of the slot ended without a release
	PreviousExpired bool
	Version         int64  // of the overrides; 0: there never were any
	Limit           int    // slots, of the override; 0: there is none
	Origin          string // paused: who paused it, and why, as JSON
	// ok: the grants of AcquireParams.Shared, as a JSON list of Part. limit_full: one Part, about
	// the one that refused; its holder, pause and times are in the fields above
	Shared string
}

// ReasonEnded is the answer if some of the leases that a repeated request was granted have ended.
// The others must be released before it is granted anything.
const ReasonEnded = "ended"

// Part is the answer of an acquire about a further semaphore: [slot, fence, slots declared, 1 if
// the previous lease expired, version of the overrides, limit of the override]. In a refusal slot
// is its index.
type Part struct {
	Slot, Fence, Declared, Expired, Version, Limit int64
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Part) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&p.Slot, &p.Fence, &p.Declared, &p.Expired, &p.Version, &p.Limit})
}

// MarshalJSON implements json.Marshaler.
func (p Part) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{p.Slot, p.Fence, p.Declared, p.Expired, p.Version, p.Limit})
}

// Part returns the result as the Part of a further semaphore.
func (a *AcquireResult) Part() Part {
	p := Part{Slot: int64(a.Slot), Fence: a.Fence, Declared: int64(a.Declared), Version: a.Version,
		Limit: int64(a.Limit)}
	if a.PreviousExpired {
		p.Expired = 1
	}
	return p
}

// ColumnsOfAll returns where to scan the columns of a database that TakesShared.
func (a *AcquireResult) ColumnsOfAll() []any { return append(a.Columns(), &a.Shared) }

// Columns returns where to scan the fourteen columns of the result.
func (a *AcquireResult) Columns() []any {
	return []any{
		&a.Reason, &a.Slot, &a.Fence, &a.Declared, &a.SuccessAge, &a.Holder.Host, &a.Holder.PID, &a.Holder.ID,
		&a.HeldFor, &a.ExpiresIn, &a.PreviousExpired, &a.Version, &a.Limit, &a.Origin,
	}
}

// Grant is a driver.Grant as Extend and Release take it.
type Grant struct {
	Index     int    `json:"i"`
	Resource  string `json:"n"`
	Slot      int    `json:"s"` // -1: any
	Token     string `json:"t"`
	Succeeded int    `json:"w"` // Release: 1 if the grant Succeeded
}

// Answer is what Extend and Release answer about one grant: [index, 1 if it is held, slots
// declared, version of the overrides, who revoked it]. Release leaves out the last two. Held is -1
// if another session has the row locked, so that nothing was done.
type Answer struct {
	Index, Held, Declared int
	Version               int64
	Revoked               *string // who revoked it, and why, as JSON
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *Answer) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&a.Index, &a.Held, &a.Declared, &a.Version, &a.Revoked})
}

// MarshalJSON implements json.Marshaler.
func (a Answer) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{a.Index, a.Held, a.Declared, a.Version, a.Revoked})
}

// Lease is a lease as List and Enumerate return it. Durations are in microseconds.
type Lease struct {
	Resource    string `json:"n"` // Enumerate
	Slot        int    `json:"slot"`
	Host        string `json:"host"`
	PID         int    `json:"pid"`
	ID          string `json:"id"`
	Fence       int64  `json:"fence"`
	HeldFor     int64  `json:"held_for"`
	RenewedAgo  *int64 `json:"renewed_ago"` // null: it is not known
	ExpiresIn   int64  `json:"expires_in"`
	ReleasedAgo *int64 `json:"released_ago"` // null: it is held
}

// Leases reads a JSON list of Lease.
func Leases(text string) (list []Lease, err error) {
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return list, nil
}

// EnumerateParams says which page Enumerate returns.
type EnumerateParams struct {
	Prefix   string // of the resources
	After    Row
	Limit    int   // rows to look at, at least 1
	Released int64 // µs: leases that were released longer ago are left out
}

// LeasePage is the result of Enumerate.
type LeasePage struct {
	Leases []Lease
	Seen   int // rows looked at
	Last   Row // the last one looked at; it may have another prefix
}

// Update is a driver.Update as a database takes it.
type Update struct {
	Resource string
	Pause    *int64 // µs from now; 0: resume; nil: no change
	Limit    *int   // slots; -1: requests decide; nil: no change
	// Who changed the pause and the limit, and why, as JSON.
	PauseOrigin, LimitOrigin string
	TriggerOrigin            string // who asks for a run, and why; "": nobody
	// The value, set only if IfVersion is the version of the name; nil: no change.
	Value     string
	IfVersion *int64
}

// Control is what a database stores about a name. Times are in microseconds.
type Control struct {
	Resource  string `json:"n"`
	Version   int64  `json:"version"`    // 0: nothing was ever overridden
	PauseLeft int64  `json:"pause_left"` // 0 or less: not paused
	Limit     *int   `json:"limit"`      // null: requests decide
	// Who paused the name, limited it and triggered a run, and why, as JSON.
	PauseOrigin   string `json:"pause_origin"`
	LimitOrigin   string `json:"limit_origin"`
	TriggerOrigin string `json:"trigger_origin"`
	TriggeredAt   *int64 `json:"triggered_at"` // since 1970; null: never
	TriggerAge    int64  `json:"trigger_age"`  // how long ago that was
	Tick          *int64 `json:"tick"`         // the latest one claimed, since 1970; null: none
	Host          string `json:"host"`         // who claimed it last
	PID           int    `json:"pid"`
	ID            string `json:"id"`
	Clock         int64  `json:"clock"` // the server's, since 1970
	Value         string `json:"value"` // "" if Inspect was not asked for values
}

// Row is the primary key of a row. The zero Row is before all others, because resource_name is
// never empty.
type Row struct {
	Resource string
	Slot     int
}

// Compare orders rows as the primary key does.
func (r Row) Compare(other Row) int {
	return cmp.Or(cmp.Compare(r.Resource, other.Resource), cmp.Compare(r.Slot, other.Slot))
}

// Page is the result of one batch of Cleanup.
type Page struct {
	Seen    int // rows looked at
	Deleted int
	Last    Row // the last one looked at
}
