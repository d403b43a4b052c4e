package sqllock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// DefaultTableName is the table of a store whose Options name none.
const DefaultTableName = "distributed_locks"

// DefaultRetention is how long Cleanup keeps rows that nobody uses.
const DefaultRetention = 40 * 24 * time.Hour

// maxTableName leaves room, within the 63 bytes that Postgres keeps of a name, for what is put behind it.
const maxTableName = 44

// Options of a store. The zero value works.
type Options struct {
	// Prefix is put before every name, so that several applications can share a table. Have none begin with another one: "shop:" with a name
	// "eu:sync" is the same lock as "shop:eu:" with "sync". At most 256 bytes. Default "".
	Prefix string

	// TableName is the name of the table, and how the names of its indexes and routines begin. It is quoted, so any text will do. At
	// most 44 bytes. Default "distributed_locks".
	TableName string

	// Schema is the schema (Postgres, SQL Server) or the database (MySQL) in which the table is. SQLite has none. Default "public"
	// on Postgres, whatever the search_path is; elsewhere where the connection looks first.
	Schema string

	// Retention is how long Cleanup keeps rows that nobody uses. At least a day, which is the longest lease. Default 40 days.
	Retention time.Duration
}

// Store implements dlock.DistributedLock, and dlock.Controller, on a table of an SQL database.
type Store struct {
	db        database
	prefix    string
	retention time.Duration
	fault     error
	hostClock func() time.Time // nil: time.Now
}

// A database is what differs between them. Times cross it as microseconds.
type database interface {
	// String is "postgres", "mysql" …
	String() string
	// acquire takes a slot, and a start of a tick if there is one, in one atomic step.
	acquire(ctx context.Context, a claim) (verdict, error)
	// extend and release take the grants as JSON and answer for each: see grantJSON and answerJSON.
	extend(ctx context.Context, ttl int64, grants string) (answers string, err error)
	release(ctx context.Context, grants string) (answers string, err error)
	// list answers with the leases that have not ended, as JSON: see heldJSON.
	list(ctx context.Context, resource string) (held string, err error)

	// update changes the overrides of a name, in one atomic step.
	update(ctx context.Context, c updateRow) error
	// inspect takes a JSON list of resources, and answers about those it knows, as JSON: see controlRow.
	inspect(ctx context.Context, resources string) (answers string, err error)
	// revoke marks the lease of a slot, unless it is marked. It returns false if no lease with that fence is held.
	revoke(ctx context.Context, resource string, slot int, fence int64, by string) (held bool, err error)

	// schema is what Migrate executes, statement by statement.
	schema() []string
	migrate(ctx context.Context) error
	// verify tells whether the tables are there as schema would have made them.
	verify(ctx context.Context) error
	// audit tells what endangers leases. now is this host's clock.
	audit(ctx context.Context, now func() time.Time) (warnings []string, err error)
	// cleanup looks at the limit rows that follow the row after, and deletes those that have been idle for longer than retention.
	cleanup(ctx context.Context, retention int64, after row, limit int) (page, error)
	close() error
}

// A claim is a dlock.Request as a database takes it.
type claim struct {
	resource string
	slots    int // as requested; 0: mutex
	token    string
	ttl      int64
	tick     *int64
	max      int
	missed   *int64 // when the tick came due, if it is claimed as one that nobody was there for
	schedule int64  // of the tick
	holder   dlock.Holder
	wait     int64 // in milliseconds: no lock in the database is waited for any longer, see patience
}

// A verdict is the database's answer to a claim.
type verdict struct {
	reason   string // "ok", or a dlock.Reason
	slot     int    // ok
	fence    int64  // ok
	declared int    // slots, as the latest grant declared them
	success  int64  // µs since a grant was last released as succeeded; 0: unknown
	// full: who has the lease that ends first. tick_taken: who claimed the tick last
	holder dlock.Holder
	since  int64 // µs: how long the holder has had it
	ends   int64 // µs: how long until it ends; paused: until that is over, 0: it does not end
	// ok: whoever had the slot before did not release it
	abandoned bool
	version   int64  // of the overrides; 0: nothing ever was
	limit     int    // slots, of the override; 0: there is none
	origin    string // paused: who did it, and why, see originText
}

// scan returns where the fourteen columns of a verdict go.
func (v *verdict) scan() []any {
	return []any{
		&v.reason, &v.slot, &v.fence, &v.declared, &v.success, &v.holder.Host, &v.holder.PID, &v.holder.ID, &v.since, &v.ends, &v.abandoned,
		&v.version, &v.limit, &v.origin,
	}
}

// newStore checks what all databases have in common.
func newStore(opts Options, db func(Options) (database, error)) *Store {
	s := &Store{prefix: opts.Prefix, retention: opts.Retention}
	if s.retention == 0 {
		s.retention = DefaultRetention
	}
	if opts.TableName == "" {
		opts.TableName = DefaultTableName
	}
	var faults []error
	check := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("sqllock: "+format, args...))
		}
	}
	text := func(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }
	check(len(opts.Prefix) > dlock.MaxNameLen, "Prefix of %d bytes: at most %d", len(opts.Prefix), dlock.MaxNameLen)
	check(!text(opts.Prefix), "Prefix %q: use text without control characters", opts.Prefix)
	check(strings.Contains(opts.Prefix, slotMark), "Prefix %q has %q in it: choose another", opts.Prefix, slotMark)
	check(len(opts.TableName) > maxTableName, "TableName of %d bytes: at most %d", len(opts.TableName), maxTableName)
	check(!text(opts.TableName), "TableName %q: use text without control characters", opts.TableName)
	check(strings.Contains(opts.TableName, "$tickslot$"), "TableName %q: choose one without $tickslot$", opts.TableName)
	check(strings.Contains(opts.Schema, "$tickslot$"), "Schema %q: choose one without $tickslot$", opts.Schema)
	check(!text(opts.Schema) || len(opts.Schema) > 63, "Schema %q: use text without control characters, at most 63 bytes", opts.Schema)
	check(s.retention < dlock.MaxTTL, "Retention %v: at least %v, the longest lease", opts.Retention, dlock.MaxTTL)
	d, err := db(opts)
	if err != nil {
		faults = append(faults, err)
	}
	s.db, s.fault = d, errors.Join(faults...)
	return s
}

// Close closes the connections that the store opened itself, never what it was made from.
func (s *Store) Close() error {
	if s == nil || s.db == nil {
		return nil
	}
	return s.db.close()
}

// Check implements dlock.Checker: it returns the faults of the options.
func (s *Store) Check() error {
	if s == nil || s.db == nil && s.fault == nil {
		return errors.New("sqllock: an empty *Store: make one with Postgres, MySQL, SQLite or SQLServer")
	}
	return s.fault
}

func (s *Store) String() string {
	if s == nil || s.db == nil {
		return "sql"
	}
	return s.db.String()
}

// slotMark ends the resource_name of a semaphore, so that the number of a slot behind it gives the name of its lock.
const slotMark = ":slot:"

// resource is the resource_name of a semaphore or mutex. No name has slotMark in it, so that no two names share one.
func (s *Store) resource(name string, slots int) (string, error) {
	r := s.prefix + name
	if strings.Contains(r, slotMark) {
		return "", fmt.Errorf("sqllock: %w: prefix %q and name %q together have %q in them: choose another prefix", dlock.ErrFault, s.prefix, name, slotMark)
	}
	if slots > 0 {
		r += slotMark
	}
	return r, nil
}

// TryAcquire implements dlock.DistributedLock.
func (s *Store) TryAcquire(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
	if err := s.Check(); err != nil {
		return dlock.Grant{}, err
	}
	if err := req.Validate(); err != nil {
		return dlock.Grant{}, err
	}
	resource, err := s.resource(req.Name, req.Slots)
	if err != nil {
		return dlock.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return dlock.Grant{}, err
	}
	holder := dlock.Holder{Host: storable(req.Holder.Host), PID: req.Holder.PID, ID: storable(req.Holder.ID)}
	c := claim{resource: resource, slots: req.Slots, token: req.Token, ttl: micros(req.TTL), holder: holder, wait: patience(ctx)}
	if req.Tick != nil {
		at := req.Tick.At.UnixMicro()
		c.tick, c.max, c.schedule = &at, min(req.Tick.Max, 1<<31-1), req.Tick.Schedule
		if !req.Tick.Missed.IsZero() {
			due := req.Tick.Missed.UnixMicro()
			c.missed = &due
		}
	}
	v, err := s.db.acquire(ctx, c)
	if err != nil {
		return dlock.Grant{}, explain(err)
	}
	return v.grant(req)
}

// grant checks the answer like any input: nonsense is an error of the store.
func (v verdict) grant(req dlock.Request) (dlock.Grant, error) {
	info := dlock.Info{DeclaredSlots: v.declared, SinceSuccess: duration(v.success), Version: v.version, SlotLimit: v.limit}
	switch reason := dlock.Reason(v.reason); reason {
	case "ok":
		n := max(req.Slots, 1)
		if v.version > 0 { // the limit may be larger, or have been when the reply was lost
			n = dlock.MaxSlots
		}
		if v.slot < 0 || v.slot >= n || v.fence <= 0 {
			return dlock.Grant{}, fmt.Errorf("%w: %+v", errAnswer, v)
		}
		return dlock.Grant{
			Name: req.Name, Slots: req.Slots, Slot: v.slot, Token: req.Token, Fence: dlock.Fence(v.fence), Info: info, PreviousExpired: v.abandoned,
		}, nil
	case dlock.ReasonTickLate, dlock.ReasonTickAhead, dlock.ReasonTickFirst, dlock.ReasonTickHeld:
		return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, Info: info}
	case dlock.ReasonTickTaken:
		return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, Holder: v.holder, Info: info}
	case dlock.ReasonPaused:
		return dlock.Grant{}, &dlock.NotAcquiredError{
			Name: req.Name, Reason: reason, Slots: req.Slots, ExpiresIn: duration(v.ends), PausedBy: readOrigin(v.origin), Info: info,
		}
	case dlock.ReasonFull:
		return dlock.Grant{}, &dlock.NotAcquiredError{
			Name: req.Name, Reason: reason, Slots: req.Slots, Holder: v.holder, HeldFor: duration(v.since), ExpiresIn: duration(v.ends), Info: info,
		}
	}
	return dlock.Grant{}, fmt.Errorf("%w: %+v", errAnswer, v)
}

// grantJSON is a grant as extend and release take it.
type grantJSON struct {
	Index    int    `json:"i"`
	Resource string `json:"n"`
	Slot     int    `json:"s"` // -1: any
	Token    string `json:"t"`
	Well     int    `json:"w"` // release: 1 if the work ended well
}

// answerJSON is their answer: [index, 1 if it is held, slots declared, version of the overrides, who revoked it]. Release leaves out
// the last two. A held of -1 says that somebody else has the row locked, so that nothing was done.
type answerJSON struct {
	index, held, declared int
	version               int64
	revoked               *string // who did it, and why, see originText
}

func (a *answerJSON) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&a.index, &a.held, &a.declared, &a.version, &a.revoked})
}

func (a answerJSON) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{a.index, a.held, a.declared, a.version, a.revoked})
}

func (a answerJSON) result() dlock.Result {
	r := dlock.Result{Outcome: dlock.GrantLost, Info: dlock.Info{DeclaredSlots: a.declared, Version: a.version}}
	switch {
	case a.held == 1:
		r.Outcome = dlock.GrantOK
	case a.held < 0:
		r.Outcome, r.Err = dlock.GrantUnknown, errRowLocked
	case a.revoked != nil:
		by := readOrigin(*a.revoked)
		r.RevokedBy = &by
	}
	return r
}

// Extend implements dlock.DistributedLock.
func (s *Store) Extend(ctx context.Context, ttl time.Duration, grants ...dlock.Grant) ([]dlock.Result, error) {
	if ttl < time.Millisecond || ttl > dlock.MaxTTL {
		return nil, fmt.Errorf("sqllock: a TTL of %v: must be 1ms to %v", ttl, dlock.MaxTTL)
	}
	return s.each(ctx, grants, func(ctx context.Context, list string) (string, error) { return s.db.extend(ctx, micros(ttl), list) })
}

// Release implements dlock.DistributedLock.
func (s *Store) Release(ctx context.Context, grants ...dlock.Grant) ([]dlock.Result, error) {
	return s.each(ctx, grants, func(ctx context.Context, list string) (string, error) { return s.db.release(ctx, list) })
}

// each makes one call for all grants and puts the answers in their order.
func (s *Store) each(ctx context.Context, grants []dlock.Grant, call func(context.Context, string) (string, error)) ([]dlock.Result, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(grants) == 0 {
		return nil, nil
	}
	list := make([]grantJSON, len(grants))
	for i, g := range grants {
		if err := (dlock.Request{Name: g.Name, Slots: g.Slots, Token: g.Token, TTL: time.Second}).Validate(); err != nil {
			return nil, err
		}
		resource, err := s.resource(g.Name, g.Slots)
		if err != nil {
			return nil, err
		}
		list[i] = grantJSON{Index: i, Resource: resource, Slot: g.Slot, Token: g.Token}
		if g.Succeeded {
			list[i].Well = 1
		}
	}
	answer, err := call(ctx, asJSON(list))
	if err != nil {
		return nil, explain(err)
	}
	var answers []answerJSON
	if err := json.Unmarshal([]byte(answer), &answers); err != nil || len(answers) != len(grants) {
		return nil, fmt.Errorf("%w: %d answers for %d leases: %v", errAnswer, len(answers), len(grants), err)
	}
	results := make([]dlock.Result, len(grants))
	answered := make([]bool, len(grants))
	for _, a := range answers {
		if a.index < 0 || a.index >= len(results) || answered[a.index] {
			return nil, fmt.Errorf("%w: an answer about lease %d of %d", errAnswer, a.index, len(grants))
		}
		results[a.index], answered[a.index] = a.result(), true
	}
	return results, nil
}

// asJSON is a list of text and numbers, in which every character that need not be escaped is itself: a database without an encoding has no
// idea of what character an escape stands for.
func asJSON(list any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(list) // nothing can be wrong with such a list
	return separators.ReplaceAllStringFunc(strings.TrimSpace(b.String()), func(escape string) string {
		switch escape {
		case `\u2028`:
			return "\u2028"
		case `\u2029`:
			return "\u2029"
		}
		return escape
	})
}

// separators finds every escape: the two that encoding/json writes without need are to be told from a backslash before the same letters.
var separators = regexp.MustCompile(`\\(u2028|u2029|.)`)

// heldJSON is a lease as list answers. Durations are microseconds.
type heldJSON struct {
	Slot  int    `json:"slot"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	ID    string `json:"id"`
	Fence int64  `json:"fence"`
	Since int64  `json:"since"`
	Ends  int64  `json:"ends"`
}

// List implements dlock.Lister.
func (s *Store) List(ctx context.Context, name string, slots int) ([]dlock.LeaseInfo, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if err := dlock.CheckName(name); err != nil {
		return nil, fmt.Errorf("sqllock: %w", err)
	}
	resource, err := s.resource(name, slots)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answer, err := s.db.list(ctx, resource)
	if err != nil {
		return nil, explain(err)
	}
	var rows []heldJSON
	if err := json.Unmarshal([]byte(answer), &rows); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	held := make([]dlock.LeaseInfo, len(rows))
	for i, r := range rows {
		held[i] = dlock.LeaseInfo{
			Name: name, Slot: r.Slot, Holder: dlock.Holder{Host: r.Host, PID: r.PID, ID: r.ID}, Fence: dlock.Fence(r.Fence),
			HeldFor: duration(r.Since), ExpiresIn: duration(r.Ends),
		}
	}
	return held, nil
}

// micros rounds up: a lease must not be shorter than its holder trusts it.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// maxMicros is far beyond any age, and short of what a time.Duration cannot hold.
const maxMicros = 1 << 53

func duration(micros int64) time.Duration {
	return time.Duration(min(max(0, micros), maxMicros)) * time.Microsecond
}

// storable is text as every database can keep it. A holder is for people to read, so it need not be exact.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// patience is how long a lock in the database may be waited for, in milliseconds: nine tenths of the time that the caller has, so that the
// answer that it is locked still reaches him.
func patience(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return sqlkit.LastResort.Milliseconds()
	}
	return max(1, min(time.Until(deadline)*9/10, dlock.MaxTTL).Milliseconds())
}
