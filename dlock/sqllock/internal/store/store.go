// Package store defines what sqllock needs from a database: see Database. The neighboring
// directories implement it in Go and SQL, one database each. The package links no driver.
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
	// String returns "postgres", "mysql" and so on.
	String() string
	// Acquire takes a slot, a start of the params' tick if there is one, and a slot of each of
	// params.Shared, in one transaction.
	Acquire(ctx context.Context, params AcquireParams) (AcquireResult, error)
	// TakesShared reports whether params.Shared may have semaphores.
	TakesShared() bool
	// KeepsDelay reports whether Acquire supports params.Delay.
	KeepsDelay() bool
	// Extend and Release take a JSON list of Grant and return a JSON list of Answer.
	Extend(ctx context.Context, ttl int64, grants string) (answers string, err error)
	Release(ctx context.Context, grants string) (answers string, err error)
	// List returns the leases that have not ended, as a JSON list of Lease.
	List(ctx context.Context, resource string) (held string, err error)
	// Enumerate examines the params.Limit rows that follow params.After, in the order of the
	// primary key. It returns the rows whose leases are held or were released recently. It does not
	// wait for locked rows.
	Enumerate(ctx context.Context, params EnumerateParams) (LeasePage, error)

	// Update changes the overrides of a name in one transaction. If the name's version is not
	// Update.IfVersion, it changes nothing and returns false.
	Update(ctx context.Context, u Update) (done bool, err error)
	// Inspect takes a JSON list of resources. It returns a JSON list of Control for the resources
	// that it knows, including their values if values is true.
	Inspect(ctx context.Context, resources string, values bool) (answers string, err error)
	// Revoke marks the lease of a slot as revoked, unless it already is. It returns false if no
	// lease with that fence is held.
	Revoke(ctx context.Context, resource string, slot int, fence int64, by string) (held bool, err error)

	// Tables returns the tables that Migrate creates and Verify compares. The store adds Wrong and
	// Explain.
	Tables() sqlmigrate.Tables
	// Audit warns of settings that endanger leases. now is this host's clock.
	Audit(ctx context.Context, now func() time.Time) (warnings []string, err error)
	// Cleanup examines limit rows that follow the row after. It deletes those that have been idle
	// for longer than retention.
	Cleanup(ctx context.Context, retention int64, after Row, limit int) (Page, error)
	// Close closes the connections that the database opened itself.
	Close() error
}

// AcquireParams is a driver.Request in the form for a database.
type AcquireParams struct {
	Resource string
	Slots    int // as requested; 0 for a mutex
	Token    string
	TTL      int64
	Tick     *int64
	Max      int
	MissedAt *int64 // when the tick came due, if it was missed
	Schedule int64  // schedule of the tick
	Delay    int64  // time since the last lease ended: see driver.Tick.Delay; 0 for none; if set, Tick is nil
	Holder   driver.Holder
	Wait     int64 // in milliseconds: the maximum wait for a lock in the database, see LockWait
	Shared   []SemaphoreSpec
}

// SemaphoreSpec is a further semaphore of an acquire.
type SemaphoreSpec struct {
	Resource string
	Slots    int
	Rate     int   // starts within Per; 0 for any number
	Per      int64 // in µs
}

// AcquireResult is the database's answer to an acquire.
type AcquireResult struct {
	Reason     string // "ok", or a driver.Reason, or ReasonEnded
	Slot       int    // with ok
	Fence      int64  // with ok
	Declared   int    // slots declared by the latest grant
	SuccessAge int64  // µs since a grant was last released as succeeded; 0 if unknown
	// With full: the holder of the lease that ends first. With tick_taken: the last host that
	// claimed the tick.
	Holder    driver.Holder
	HeldFor   int64 // µs since the grant to the holder
	ExpiresIn int64 // µs until the lease ends; with paused, until the pause ends, or 0 if it has no end
	// With ok: the slot's previous lease ended without a release.
	PreviousExpired bool
	Version         int64  // version of the overrides; 0 if there were none
	Limit           int    // slots of the limit override; 0 if there is none
	Origin          string // with paused: who paused the name and why, as JSON
	// With ok: the grants of AcquireParams.Shared, as a JSON list of Part. With limit_full: one
	// Part for the semaphore that refused; the fields above have its holder, pause and times.
	Shared string
}

// ReasonEnded is the answer if only some of the leases of a repeated request have ended. The others
// must be released before the request can be granted.
const ReasonEnded = "ended"

// Part is the part of an acquire's answer for one further semaphore: [slot, fence, declared slots,
// 1 if the previous lease expired, version of the overrides, limit of the override]. In a refusal,
// slot is the semaphore's index.
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

// Part returns the result in the form for a further semaphore.
func (a *AcquireResult) Part() Part {
	p := Part{Slot: int64(a.Slot), Fence: a.Fence, Declared: int64(a.Declared), Version: a.Version,
		Limit: int64(a.Limit)}
	if a.PreviousExpired {
		p.Expired = 1
	}
	return p
}

// ColumnsOfAll returns the scan destinations for a database that TakesShared.
func (a *AcquireResult) ColumnsOfAll() []any { return append(a.Columns(), &a.Shared) }

// Columns returns the scan destinations for the fourteen columns of the result.
func (a *AcquireResult) Columns() []any {
	return []any{
		&a.Reason, &a.Slot, &a.Fence, &a.Declared, &a.SuccessAge, &a.Holder.Host, &a.Holder.PID, &a.Holder.ID,
		&a.HeldFor, &a.ExpiresIn, &a.PreviousExpired, &a.Version, &a.Limit, &a.Origin,
	}
}

// Grant is a driver.Grant in the form that Extend and Release take.
type Grant struct {
	Index     int    `json:"i"`
	Resource  string `json:"n"`
	Slot      int    `json:"s"` // -1 for any slot
	Token     string `json:"t"`
	Succeeded int    `json:"w"` // for Release: 1 if the grant Succeeded
}

// Answer is the answer of Extend or Release for one grant: [index, 1 if it is held, declared slots,
// version of the overrides, who revoked it]. Release leaves out the last two. Held is -1 if another
// session has the row locked, so that nothing was done.
type Answer struct {
	Index, Held, Declared int
	Version               int64
	Revoked               *string // who revoked it and why, as JSON
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *Answer) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&a.Index, &a.Held, &a.Declared, &a.Version, &a.Revoked})
}

// MarshalJSON implements json.Marshaler.
func (a Answer) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{a.Index, a.Held, a.Declared, a.Version, a.Revoked})
}

// Lease is a lease in the form that List and Enumerate return. Durations are in microseconds.
type Lease struct {
	Resource    string `json:"n"` // set by Enumerate
	Slot        int    `json:"slot"`
	Host        string `json:"host"`
	PID         int    `json:"pid"`
	ID          string `json:"id"`
	Fence       int64  `json:"fence"`
	HeldFor     int64  `json:"held_for"`
	RenewedAgo  *int64 `json:"renewed_ago"` // null if unknown
	ExpiresIn   int64  `json:"expires_in"`
	ReleasedAgo *int64 `json:"released_ago"` // null if held
}

// Leases parses a JSON list of Lease.
func Leases(text string) (list []Lease, err error) {
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return list, nil
}

// EnumerateParams says which page Enumerate returns.
type EnumerateParams struct {
	Prefix   string // prefix of the resources
	After    Row
	Limit    int   // number of rows to examine, at least 1
	Released int64 // µs; leases that were released longer ago are left out
}

// LeasePage is the result of Enumerate.
type LeasePage struct {
	Leases []Lease
	Seen   int // number of rows examined
	Last   Row // the last examined row, which may have another prefix
}

// Update is a driver.Update in the form for a database.
type Update struct {
	Resource string
	Pause    *int64 // µs from now; 0 to resume; nil for no change
	Limit    *int   // slots; -1 if requests decide; nil for no change
	// Who changed the pause and the limit and why, as JSON.
	PauseOrigin, LimitOrigin string
	TriggerOrigin            string // who asks for a run and why; "" for no trigger
	// Value is set only if the name's version is IfVersion. If IfVersion is nil, the value is not
	// changed.
	Value     string
	IfVersion *int64
}

// Control is the state of a name in a database. Times are in microseconds.
type Control struct {
	Resource  string `json:"n"`
	Version   int64  `json:"version"`    // 0 if there was no override
	PauseLeft int64  `json:"pause_left"` // 0 or less if not paused
	Limit     *int   `json:"limit"`      // null if requests decide
	// Who paused the name, limited it and triggered a run and why, as JSON.
	PauseOrigin   string `json:"pause_origin"`
	LimitOrigin   string `json:"limit_origin"`
	TriggerOrigin string `json:"trigger_origin"`
	TriggeredAt   *int64 `json:"triggered_at"` // since 1970; null if never
	TriggerAge    int64  `json:"trigger_age"`  // time since then
	Tick          *int64 `json:"tick"`         // the latest claimed tick, since 1970; null if none
	Host          string `json:"host"`         // the last host that claimed it
	PID           int    `json:"pid"`
	ID            string `json:"id"`
	Clock         int64  `json:"clock"` // the server's time, since 1970
	Value         string `json:"value"` // "" if Inspect was called without values
}

// Row is the primary key of a row. The zero Row precedes all others, because resource_name is never
// empty.
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
	Seen    int // number of rows examined
	Deleted int
	Last    Row // the last examined row
}
