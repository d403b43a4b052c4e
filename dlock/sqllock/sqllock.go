package sqllock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// DefaultTableName is the table of a store whose Options set no TableName.
const DefaultTableName = "distributed_locks"

// defaultRetention is how long Cleanup keeps idle rows if Options set no Retention.
const defaultRetention = 40 * 24 * time.Hour

// maxTableName leaves room for the suffixes of routines and indexes within Postgres's limit of 63
// bytes for a name.
const maxTableName = 44

// Options are the settings of a store. The zero value is valid. Check returns all faults at once;
// dlock.NewSession and timer.New call it.
type Options struct {
	// Prefix is put before every name, so that several applications can share a table. No prefix
	// may begin with another prefix: "shop:" with the name "eu:sync" is the same lock as "shop:eu:"
	// with "sync". At most 256 bytes of text without control characters and without ":slot:".
	// Default "".
	Prefix string

	// TableName is the name of the table. The names of its indexes and routines begin with it.
	// Statements quote it, so any text is valid. At most 44 bytes. Default "distributed_locks".
	TableName string

	// Schema is the schema (Postgres, SQL Server) or database (MySQL) of the table. SQLite has
	// none. At most 63 bytes. Default "public" on Postgres, whatever the search_path is; elsewhere
	// the connection's schema or database.
	Schema string

	// Retention is how long Cleanup keeps the row of an unused lock. At least 24 h, the maximum
	// TTL, and longer than any schedule.After. Default 40 days.
	Retention time.Duration
}

// Store implements driver.Store, and driver.Controller, on a table of an SQL database.
type Store struct {
	db        store.Database
	prefix    string
	retention time.Duration
	fault     error
	closed    atomic.Bool
	hostClock func() time.Time // nil for time.Now
}

// newStore checks the options and opens the database.
func newStore(dialect sqlkit.Dialect, opts Options, db func(store.Table) (store.Database, error)) *Store {
	s := &Store{prefix: opts.Prefix, retention: opts.Retention}
	if s.retention == 0 {
		s.retention = defaultRetention
	}
	if opts.TableName == "" {
		opts.TableName = DefaultTableName
	}
	faults := []error{dialect.CheckNames(sqlkit.TableNames{Product: "sqllock", Table: opts.TableName,
		Schema: opts.Schema, MaxTable: maxTableName, Braces: true})}
	check := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("sqllock: "+format, args...))
		}
	}
	text := func(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }
	check(len(opts.Prefix) > driver.MaxNameLen, "Prefix of %d bytes: at most %d", len(opts.Prefix), driver.MaxNameLen)
	check(!text(opts.Prefix), "Prefix %q: use text without control characters", opts.Prefix)
	check(strings.Contains(opts.Prefix, slotMark), "Prefix %q has %q in it: choose another", opts.Prefix, slotMark)
	check(strings.Contains(opts.TableName, "$tickslot$"), "TableName %q: choose one without $tickslot$", opts.TableName)
	check(strings.Contains(opts.Schema, "$tickslot$"), "Schema %q: choose one without $tickslot$", opts.Schema)
	check(s.retention < driver.MaxTTL, "Retention %v: at least %v, the longest lease", opts.Retention, driver.MaxTTL)
	d, err := db(store.Table{Schema: opts.Schema, Name: opts.TableName})
	if err != nil {
		faults = append(faults, err)
	}
	s.db, s.fault = d, errors.Join(faults...)
	return s
}

// Close closes the connections that the store opened itself, but not the pool passed to it. Call it
// after everything that uses the store has ended. Later calls return an error that matches
// driver.ErrClosed.
func (s *Store) Close() error {
	if s == nil || s.db == nil || s.closed.Swap(true) {
		return nil
	}
	return s.db.Close()
}

// Check implements driver.Checker. It returns the faults of the options. All other methods return
// them, too.
func (s *Store) Check() error {
	switch {
	case s == nil || s.db == nil && s.fault == nil:
		return fmt.Errorf("sqllock: %w: an empty *Store: make one with Postgres, MySQL, SQLite or SQLServer",
			driver.ErrSetup)
	case s.fault != nil:
		return fmt.Errorf("%w: %w", driver.ErrSetup, s.fault)
	case s.closed.Load():
		return errClosed
	}
	return nil
}

var errClosed = fmt.Errorf("sqllock: %w", driver.ErrClosed)

func (s *Store) String() string {
	if s == nil || s.db == nil {
		return "sql"
	}
	return s.db.String()
}

// slotMark is the end of a semaphore's resource_name. Followed by the number of a slot, the
// resource_name is the name of that lock.
const slotMark = ":slot:"

// resource returns the resource_name of a semaphore or mutex. No two names share one, because names
// that contain slotMark are refused.
func (s *Store) resource(name string, slots int) (string, error) {
	r := s.prefix + name
	if strings.Contains(r, slotMark) {
		return "", fmt.Errorf("sqllock: %w: prefix %q and name %q together have %q in them: choose another prefix",
			driver.ErrFault, s.prefix, name, slotMark)
	}
	if slots > 0 {
		r += slotMark
	}
	return r, nil
}

// TryAcquire implements driver.Store.
func (s *Store) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.Check(); err != nil {
		return driver.Grant{}, err
	}
	if err := req.Validate(); err != nil {
		return driver.Grant{}, err
	}
	resource, err := s.resource(req.Name, req.Slots)
	if err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	shared, err := s.sharedOf(req)
	if err != nil {
		return driver.Grant{}, err
	}
	holder := driver.Holder{Host: guard.Storable(req.Holder.Host), PID: req.Holder.PID,
		ID: guard.Storable(req.Holder.ID)}
	c := store.AcquireParams{Resource: resource, Slots: req.Slots, Token: req.Token, TTL: micros(req.TTL),
		Holder: holder, Wait: store.LockWait(ctx), Shared: shared}
	switch {
	case req.Tick == nil:
	case req.Tick.Delay > 0:
		if err := s.CheckDelay(req.Tick.Delay); err != nil {
			return driver.Grant{}, err
		}
		c.Delay, c.Schedule = micros(req.Tick.Delay), req.Tick.Schedule
	default:
		at := req.Tick.At.UnixMicro()
		c.Tick, c.Max, c.Schedule = &at, min(req.Tick.Max, 1<<31-1), req.Tick.Schedule
		if !req.Tick.MissedAt.IsZero() {
			due := req.Tick.MissedAt.UnixMicro()
			c.MissedAt = &due
		}
	}
	v, err := s.db.Acquire(ctx, c)
	if err != nil {
		return driver.Grant{}, explain(err)
	}
	return grantOf(v, req)
}

// grantOf converts the answer. It validates the answer like any input: a malformed answer is an
// error of the store.
func grantOf(v store.AcquireResult, req driver.Request) (driver.Grant, error) {
	info := driver.Info{DeclaredSlots: v.Declared, SuccessAge: duration(v.SuccessAge), Version: v.Version,
		SlotLimit: v.Limit}
	switch reason := driver.Reason(v.Reason); reason {
	case "ok":
		n := max(req.Slots, 1)
		if v.Version > 0 { // the limit may be larger, or may have been when the reply was lost
			n = driver.MaxSlots
		}
		if v.Slot < 0 || v.Slot >= n || v.Fence <= 0 {
			return driver.Grant{}, fmt.Errorf("%w: %+v", store.ErrAnswer, v)
		}
		shared, err := sharedGranted(v, req)
		return driver.Grant{
			Name: req.Name, Slots: req.Slots, Slot: v.Slot, Token: req.Token, Fence: driver.Fence(v.Fence), Info: info,
			PreviousExpired: v.PreviousExpired, Shared: shared,
		}, err
	case store.ReasonEnded:
		return driver.Grant{}, errEnded
	case driver.ReasonLimitFull, driver.ReasonLimitRate:
		return driver.Grant{}, limitFull(v, req, info)
	case driver.ReasonTickLate, driver.ReasonTickAhead, driver.ReasonTickFirst, driver.ReasonTickHeld:
		return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, Info: info}
	case driver.ReasonTickTaken:
		return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots,
			Holder: v.Holder, Info: info}
	case driver.ReasonTickEarly:
		return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots,
			ExpiresIn: duration(v.ExpiresIn), Info: info}
	case driver.ReasonPaused:
		return driver.Grant{}, &driver.NotAcquiredError{
			Name: req.Name, Reason: reason, Slots: req.Slots, ExpiresIn: duration(v.ExpiresIn),
			PausedBy: readOrigin(v.Origin), Info: info,
		}
	case driver.ReasonFull:
		return driver.Grant{}, &driver.NotAcquiredError{
			Name: req.Name, Reason: reason, Slots: req.Slots, Holder: v.Holder, HeldFor: duration(v.HeldFor),
			ExpiresIn: duration(v.ExpiresIn), Info: info,
		}
	}
	return driver.Grant{}, fmt.Errorf("%w: %+v", store.ErrAnswer, v)
}

// resultOf converts the answer for one grant of Extend or Release.
func resultOf(a store.Answer) driver.Result {
	r := driver.Result{Outcome: driver.GrantLost, Info: driver.Info{DeclaredSlots: a.Declared, Version: a.Version}}
	switch {
	case a.Held == 1:
		r.Outcome = driver.GrantOK
	case a.Held < 0:
		r.Outcome, r.Err = driver.GrantUnknown, errRowLocked
	case a.Revoked != nil:
		by := readOrigin(*a.Revoked)
		r.RevokedBy = &by
	}
	return r
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	if ttl < time.Millisecond || ttl > driver.MaxTTL {
		return nil, fmt.Errorf("sqllock: a TTL of %v: must be 1ms to %v", ttl, driver.MaxTTL)
	}
	return s.each(ctx, grants, func(ctx context.Context, list string) (string, error) {
		return s.db.Extend(ctx, micros(ttl), list)
	})
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return s.each(ctx, grants, func(ctx context.Context, list string) (string, error) {
		return s.db.Release(ctx, list)
	})
}

// each makes one call for all grants and returns the results in the order of the grants.
func (s *Store) each(ctx context.Context, grants []driver.Grant,
	call func(context.Context, string) (string, error)) ([]driver.Result, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(grants) == 0 {
		return nil, nil
	}
	list := make([]store.Grant, len(grants))
	for i, g := range grants {
		if err := (driver.Request{Name: g.Name, Slots: g.Slots, Token: g.Token,
			TTL: time.Second}).Validate(); err != nil {
			return nil, err
		}
		resource, err := s.resource(g.Name, g.Slots)
		if err != nil {
			return nil, err
		}
		list[i] = store.Grant{Index: i, Resource: resource, Slot: g.Slot, Token: g.Token}
		if g.Succeeded {
			list[i].Succeeded = 1
		}
	}
	answer, err := call(ctx, store.AsJSON(list))
	if err != nil {
		return nil, explain(err)
	}
	var answers []store.Answer
	if err := json.Unmarshal([]byte(answer), &answers); err != nil || len(answers) != len(grants) {
		return nil, fmt.Errorf("%w: %d answers for %d leases: %v", store.ErrAnswer, len(answers), len(grants), err)
	}
	results := make([]driver.Result, len(grants))
	answered := make([]bool, len(grants))
	for _, a := range answers {
		if a.Index < 0 || a.Index >= len(results) || answered[a.Index] {
			return nil, fmt.Errorf("%w: an answer about lease %d of %d", store.ErrAnswer, a.Index, len(grants))
		}
		results[a.Index], answered[a.Index] = resultOf(a), true
	}
	return results, nil
}

// List implements driver.Lister.
func (s *Store) List(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if err := driver.CheckName(name); err != nil {
		return nil, fmt.Errorf("sqllock: %w", err)
	}
	resource, err := s.resource(name, slots)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer, err := s.db.List(ctx, resource)
	if err != nil {
		return nil, explain(err)
	}
	rows, err := store.Leases(answer)
	if err != nil {
		return nil, err
	}
	held := make([]driver.LeaseInfo, len(rows))
	for i, r := range rows {
		held[i] = leaseInfo(r)
		held[i].Name, held[i].Mutex = name, slots == 0
	}
	return held, nil
}

// micros rounds up, because a lease must not end before its holder stops trusting it.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// maxMicros is longer than any real age, and fits into a time.Duration.
const maxMicros = 1 << 53

func duration(micros int64) time.Duration {
	return time.Duration(min(max(0, micros), maxMicros)) * time.Microsecond
}
