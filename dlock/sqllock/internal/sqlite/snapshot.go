package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/startlog"
)

// A snapshot is all data that determine the result of an acquire, read in one statement: see
// snapshot.sql.
type snapshot struct {
	now      int64
	tick     sql.Null[int64] // the latest claimed tick
	starts   sql.Null[int]   // of the tick
	schedule int64           // of the tick
	asked    sql.Null[int64] // a schedule that was asked about before any tick of it was claimed
	askedAt  int64           // when it became known
	slots    sql.Null[int]   // declared by the latest grant
	success  sql.Null[int64] // when a grant was last released as succeeded
	claimer  driver.Holder   // the last host that claimed the tick

	version     int64         // of the overrides
	pausedUntil int64         // kept after the pause is over
	resumedAt   int64         // when a pause or a limit of 0 last ended
	pauseOrigin string        // who paused the name and why, as JSON
	limit       sql.Null[int] // the limit of slots
	limitOrigin string

	first           sql.Null[int] // the slot whose lease ends first, or ended first
	ends            int64         // when that lease ends, or ended
	firstEndAt      int64         // when the first of the held leases ends
	firstAcquiredAt int64         // when that lease was acquired
	holder          driver.Holder // holder of that lease
	held            int           // number of leases in all slots, if there is a limit override or a delay
	last            sql.Null[int] // the highest slot that has a row
	present         int           // number of rows in the window
	again           bool          // the token has a slot

	format   int64 // format of the table: see tableFormat
	renewed  int64 // when the lease that ends last was granted or renewed
	lastHeld int64 // the latest end of any lease, if the request needs it

	rated string       // stored starts that count toward a rate
	log   startlog.Log // the same, without starts too far in the future
}

func (s *snapshot) dest() []any {
	return []any{
		&s.now, &s.tick, &s.starts, &s.schedule, &s.asked, &s.askedAt, &s.slots, &s.success, &s.claimer.Host,
		&s.claimer.PID, &s.claimer.ID,
		&s.version, &s.pausedUntil, &s.resumedAt, &s.pauseOrigin, &s.limit, &s.limitOrigin,
		&s.first, &s.ends, &s.firstEndAt, &s.firstAcquiredAt, &s.holder.Host, &s.holder.PID, &s.holder.ID, &s.held,
		&s.last, &s.present,
		&s.lastHeld, &s.again, &s.format, &s.renewed, &s.rated,
	}
}

// disbelieve drops instants from a time when the clock was ahead. Otherwise they would cause
// refusals until the clock reaches them again.
func (s *snapshot) disbelieve() {
	latest := s.now + ahead
	s.tick.Valid = s.tick.Valid && s.tick.V <= latest
	s.asked.Valid = s.asked.Valid && s.askedAt <= latest
	s.success.Valid = s.success.Valid && s.success.V <= latest
	if !s.tick.Valid {
		s.tick.V = 0
	}
	if s.resumedAt > latest {
		s.resumedAt = -1
	}
}

// successAge returns the time since the last success, or 0 if none is known.
func (s snapshot) successAge() int64 {
	if !s.success.Valid {
		return 0
	}
	return max(1, s.now-s.success.V)
}

// n returns the number of slots.
func (s snapshot) n(c store.AcquireParams) int {
	if s.limit.V > 0 {
		return s.limit.V
	}
	return max(c.Slots, 1)
}

// Acquire first reads without a lock, so that a refusal is one statement. If a slot is free or a
// schedule becomes known, it reads again with the lock.
func (d *DB) Acquire(ctx context.Context, c store.AcquireParams) (store.AcquireResult, error) {
	return sqlkit.InTime(ctx, func(ctx context.Context) (v store.AcquireResult, err error) {
		in := window(rand.IntN(1 << 30))
		look, err := d.looks(c, in, func(args []any) (snapshot, error) {
			return read(ctx, d.file, d.texts["snapshot"], args, (*snapshot).dest)
		})
		if err := cmp.Or(d.file.OnePath(), err); err != nil {
			return v, err
		}
		if v, _ = decideAll(look, c, in); v.Reason != "" && !look[0].becomesKnown(c, v) {
			d.shorten(ctx, look, c)
			return v, nil
		}
		err = d.write(ctx, d.texts["snapshot"], func(conn *sql.Conn, statement *sql.Stmt) error {
			look, err := d.looks(c, in, func(args []any) (snapshot, error) {
				return one(scan((*snapshot).dest)(statement.QueryContext(local, args...)))
			})
			if err != nil {
				return err
			}
			var free []int
			v, free = decideAll(look, c, in)
			if look[0].becomesKnown(c, v) {
				since := *c.MissedAt
				if since > look[0].now+ahead {
					since = look[0].now
				}
				_, err = conn.ExecContext(local, d.texts["asked"], c.Resource, c.Schedule, since)
			}
			if v.Reason != "" {
				return err
			}
			v, err = d.grantAll(conn, look, c, free, in)
			return err
		})
		return v, err
	})
}

// looks reads the snapshots of the name and of the further semaphores.
func (d *DB) looks(c store.AcquireParams, in window, read func(args []any) (snapshot, error)) ([]snapshot, error) {
	// 1. read: everything that decides, of each semaphore.
	list := make([]snapshot, 0, 1+len(c.Shared))
	for i := range cap(list) {
		p := partOf(c, i)
		look, err := read([]any{p.Resource, max(p.Slots, 1), p.Token, int(in), windowSize,
			p.MissedAt != nil || p.Delay > 0, p.Delay > 0})
		if err := cmp.Or(err, store.CheckFormat(look.format)); err != nil {
			return nil, err
		}
		look.disbelieve()
		if i > 0 && c.Shared[i-1].Rate > 0 {
			log, err := startlog.Parse(look.rated)
			if err != nil {
				return nil, fmt.Errorf("sqlite: %w: %s: %w: set it to NULL", driver.ErrFault, p.Resource, err)
			}
			look.log, _ = log.Disbelieve(look.now, c.Shared[i-1].Per, ahead)
		}
		list = append(list, look)
	}
	return list, nil
}

// gap stands for the first slot in the window whose row was deleted.
const gap = -1

// decide returns the refusal, if any. Otherwise the token already has a slot, or the slot free can
// be granted.
func (s snapshot) decide(c store.AcquireParams, window window) (v store.AcquireResult, free int) {
	v = s.info()
	before, last := window.of(s.n(c))
	switch {
	// 2. again: the attempt was repeated because its reply was lost. decideAll has checked that the
	// token has a slot of each semaphore.
	case s.again:

	// 3. first: refuse a missed tick if its schedule was unknown when the tick came due.
	case s.isFirst(c):
		v.Reason = string(driver.ReasonTickFirst)

	// 4. overrides: refuse during a pause or under a limit of 0.
	case s.pausedUntil >= s.now:
		v.Reason, v.ExpiresIn, v.Origin = string(driver.ReasonPaused), max(1, s.pausedUntil-s.now), s.pauseOrigin
	case s.limit.Valid && s.limit.V == 0:
		v.Reason, v.Origin = string(driver.ReasonPaused), s.limitOrigin
	case c.MissedAt != nil && *c.MissedAt < max(s.pausedUntil, s.resumedAt):
		v.Reason, v.Origin = string(driver.ReasonPaused), s.pauseOrigin

	// 5. tick: start it at most Max times, never after a later tick, and not if it was missed while
	// a host had a lease.
	case c.Tick != nil && *c.Tick > s.now+driver.MaxTickAhead.Microseconds():
		v.Reason = string(driver.ReasonTickAhead)
	case c.Tick != nil && *c.Tick < s.tick.V:
		v.Reason = string(driver.ReasonTickLate)
	case c.Tick != nil && s.tick.Valid && *c.Tick == s.tick.V && s.starts.V >= c.Max,
		c.MissedAt != nil && *c.Tick <= s.tick.V:
		v.Reason, v.Holder = string(driver.ReasonTickTaken), s.claimer
	case c.MissedAt != nil && *c.MissedAt < s.lastHeld:
		v.Reason = string(driver.ReasonTickHeld)

	// 6 and 7. slot, delay: a limit counts the leases of all slots, because after it was lowered
	// there may be more leases than it allows. With a delay, no lease may be held. The slot is one
	// whose lease ended, a new one, or one whose row is missing.
	case s.limit.V > 0 && s.held >= s.limit.V, c.Delay > 0 && s.held > 0:
		v.Reason, v.Holder, v.HeldFor, v.ExpiresIn = string(driver.ReasonFull), s.holder, s.now-s.firstAcquiredAt,
			s.firstEndAt-s.now
	case c.Delay > 0 && s.now <= s.lastHeld+c.Delay: // <=, because the clock is coarse
		v.Reason, v.ExpiresIn = string(driver.ReasonTickEarly), s.lastHeld+c.Delay+1-s.now
	case !s.first.Valid: // no slot was ever granted
	case s.ends < s.now:
		free = s.first.V
	case s.last.V < s.n(c)-1:
		free = s.last.V + 1
	case s.present < last-before:
		free = gap
	default:
		v.Reason, v.Holder, v.HeldFor, v.ExpiresIn = string(driver.ReasonFull), s.holder, s.now-s.firstAcquiredAt,
			s.firstEndAt-s.now
	}
	return v, free
}

// isFirst reports whether the schedule of a missed tick is unknown, or was unknown when the tick
// came due.
func (s snapshot) isFirst(c store.AcquireParams) bool {
	return c.MissedAt != nil && *c.Tick <= s.now+ahead &&
		(!s.tick.Valid || s.schedule != c.Schedule) && (!s.hasAsked(c) || *c.MissedAt <= s.askedAt)
}

// hasAsked reports whether the schedule was asked about before.
func (s snapshot) hasAsked(c store.AcquireParams) bool {
	return s.asked.Valid && s.asked.V == c.Schedule
}

// info returns the part of the result that every answer carries.
func (s snapshot) info() store.AcquireResult {
	return store.AcquireResult{Declared: s.slots.V, SuccessAge: s.successAge(), Version: s.version,
		Limit: max(0, s.limit.V)}
}

// windowSize is the number of slots among which one acquire looks for deleted rows if all other
// slots are held.
const windowSize = 64

// A window is the number of a window, modulo the number of windows.
type window int

// of returns the slot before the window and the last slot in the window.
func (w window) of(n int) (before, last int) {
	before = int(w)%((n+windowSize-1)/windowSize)*windowSize - 1
	return before, min(before+windowSize, n-1)
}

// shorten makes leases that were renewed while the clock was ahead end one TTL from now. Starts
// that were recorded then count from now on. If shorten fails, the next refusal repeats it.
func (d *DB) shorten(ctx context.Context, look []snapshot, c store.AcquireParams) {
	for i, l := range look {
		if l.renewed > l.now+ahead {
			_, _ = d.change(ctx, d.texts["shorten"], partOf(c, i).Resource)
		}
		if starts := l.log.String(); i > 0 && c.Shared[i-1].Rate > 0 && starts != l.rated {
			_, _ = d.change(ctx, d.texts["count_start"], c.Shared[i-1].Resource, starts, l.rated)
		}
	}
}

// becomesKnown reports whether the refusal makes the schedule known.
func (s snapshot) becomesKnown(c store.AcquireParams, v store.AcquireResult) bool {
	return v.Reason == string(driver.ReasonTickFirst) && !s.hasAsked(c)
}

// partOf returns the request for a single semaphore. Index 0 is the name itself.
func partOf(c store.AcquireParams, i int) store.AcquireParams {
	if i > 0 {
		l := c.Shared[i-1]
		c.Resource, c.Slots, c.Tick, c.MissedAt, c.Delay = l.Resource, l.Slots, nil, nil, 0
	}
	c.Shared = nil
	return c
}

// decideAll returns the refusal, if any. Otherwise it returns a free slot of each semaphore.
func decideAll(look []snapshot, c store.AcquireParams, in window) (v store.AcquireResult, free []int) {
	free = make([]int, len(look))
	held := 0
	for i := range look {
		if look[i].again {
			held++
		}
	}
	if held > 0 && held < len(look) {
		v.Reason = store.ReasonEnded
		return v, nil
	}
	if v, free[0] = look[0].decide(partOf(c, 0), in); v.Reason != "" {
		return v, nil
	}
	// 8. shared: the first further semaphore without a free slot refuses the request.
	for i := 1; i < len(look); i++ {
		no, slot := look[i].decide(partOf(c, i), in)
		if no.Reason != "" {
			v.Reason, v.Holder, v.HeldFor, v.ExpiresIn, v.Origin = string(driver.ReasonLimitFull), no.Holder,
				no.HeldFor,
				no.ExpiresIn, no.Origin
			no.Slot, no.Fence = i-1, 0
			v.Shared = store.AsJSON([]store.Part{no.Part()})
			return v, nil
		}
		if wait := rateWait(look[i], c.Shared[i-1]); wait > 0 && !look[i].again {
			v.Reason, v.ExpiresIn = string(driver.ReasonLimitRate), wait
			no.Slot, no.Fence = i-1, 0
			v.Shared = store.AsJSON([]store.Part{no.Part()})
			return v, nil
		}
		free[i] = slot
	}
	return v, free
}

// rateWait returns how long until the rate of a further semaphore allows another start.
func rateWait(l snapshot, spec store.SemaphoreSpec) int64 {
	if spec.Rate == 0 {
		return 0
	}
	return l.log.Wait(l.now, spec.Rate, spec.Per)
}

// grain is the resolution of the clock in µs.
const grain = 1000

// grantAll grants the free slots of all semaphores to the token, or extends the leases that it has.
// The caller holds the write lock.
func (d *DB) grantAll(conn *sql.Conn, look []snapshot, c store.AcquireParams, free []int,
	in window) (v store.AcquireResult, err error) {
	parts := make([]store.Part, 0, len(c.Shared))
	for i := range look {
		p, slot := partOf(c, i), free[i]
		if slot == gap {
			before, last := in.of(look[i].n(p))
			row := conn.QueryRowContext(local, d.texts["missing_row"], p.Resource, before, last)
			if err := row.Scan(&slot); err != nil {
				return v, err
			}
		}
		got, err := d.grant(conn, look[i], p, slot)
		if err != nil {
			return v, err
		}
		if i == 0 {
			v = got
			continue
		}
		parts = append(parts, got.Part())
		if l := c.Shared[i-1]; l.Rate > 0 && !look[i].again {
			starts := look[i].log.Add(look[i].now, l.Rate, l.Per, grain).String()
			_, err := conn.ExecContext(local, d.texts["count_start"], l.Resource, starts, look[i].rated)
			if err != nil {
				return v, err
			}
		}
	}
	if len(parts) > 0 {
		v.Shared = store.AsJSON(parts)
	}
	return v, nil
}

// TakesShared implements store.Database.
func (d *DB) TakesShared() bool { return true }

// KeepsDelay implements store.Database.
func (d *DB) KeepsDelay() bool { return true }

// grant grants a free slot to the token, or extends the lease that the token has. The caller holds
// the write lock.
func (d *DB) grant(conn *sql.Conn, look snapshot, c store.AcquireParams, free int) (store.AcquireResult, error) {
	granted := scan(func(v *store.AcquireResult) []any {
		*v = look.info()
		v.Reason = "ok"
		return []any{&v.Slot, &v.Fence}
	})
	if look.again {
		return one(granted(conn.QueryContext(local, d.texts["regrant"], c.Resource, c.Token, roundTTL(c.TTL))))
	}
	if c.Delay > 0 {
		c.Tick = &look.now
	}
	// 9. grant: take the slot.
	v, err := one(granted(conn.QueryContext(local, d.texts["grant"], c.Resource, free, c.Token, roundTTL(c.TTL),
		c.Holder.Host, c.Holder.PID, c.Holder.ID)))
	// A release sets the end to 0. If the slot is not first, it never had a row, or its row was
	// deleted by hand.
	v.PreviousExpired = look.first.Valid && free == look.first.V && look.ends > 0
	// 10. record: count the start of the tick, and store the declared slots.
	if err == nil && (c.Tick != nil || !look.slots.Valid || look.slots.V != c.Slots) {
		_, err = conn.ExecContext(local, d.texts["name_row"], c.Resource, c.Tick, c.Slots, c.Holder.Host, c.Holder.PID,
			c.Holder.ID, c.Schedule)
	}
	return v, err
}
