package sqllock

import (
	"context"
	"database/sql"
	"math/rand/v2"

	"github.com/tickslot/tickslot/dlock"
)

// A sqliteLook is one look, on one snapshot, at all that decides about a claim: see look.sql.
type sqliteLook struct {
	now     int64
	tick    sql.Null[int64] // the latest one claimed
	starts  sql.Null[int]   // of it
	slots   sql.Null[int]   // as the latest grant declared them
	success sql.Null[int64] // when a grant was last released as succeeded
	first   sql.Null[int]   // the slot whose lease ends, or ended, before all others
	ends    int64           // when that is
	since   int64           // when it began
	holder  dlock.Holder    // who has it
	last    sql.Null[int]   // the highest slot that has a row
	present int             // rows in the window
	again   bool            // the token has a slot
}

func (l *sqliteLook) dest() []any {
	return []any{&l.now, &l.tick, &l.starts, &l.slots, &l.success, &l.first, &l.ends, &l.since, &l.holder.Host, &l.holder.PID, &l.holder.ID, &l.last, &l.present, &l.again}
}

// successAge is how long ago the last success was, 0 if none is known.
func (l sqliteLook) successAge() int64 {
	if !l.success.Valid {
		return 0
	}
	return max(1, l.now-l.success.V)
}

// gap stands for the first slot in the window that has no row, because somebody deleted it.
const gap = -1

// decide returns the verdict if it is a refusal. If not, the token has a slot already, or else the slot returned is free.
func (l sqliteLook) decide(c claim, window int) (v verdict, free int) {
	v.declared, v.success = l.slots.V, l.successAge()
	switch n := max(c.slots, 1); {
	case l.again: // the same attempt, asked again because its reply was lost
	case c.tick != nil && *c.tick > l.now+dlock.MaxTickAhead.Microseconds():
		v.reason = string(dlock.TickAhead)
	case c.tick != nil && l.tick.Valid && *c.tick < l.tick.V:
		v.reason = string(dlock.TickLate)
	case c.tick != nil && l.tick.Valid && *c.tick == l.tick.V && l.starts.V >= c.max:
		v.reason = string(dlock.TickTaken)
	case !l.first.Valid: // nobody has ever had one
	case l.ends < l.now:
		free = l.first.V
	case l.last.V < n-1:
		free = l.last.V + 1
	case l.present < window:
		free = gap
	default:
		v.reason, v.holder, v.since, v.ends = string(dlock.Full), l.holder, l.now-l.since, l.ends-l.now
	}
	return v, free
}

// windowSize is the number of slots among which one attempt, if all that have a row are held, notices those that have none.
const windowSize = 64

// acquire looks without a lock first, so that a refusal is one statement. If a slot is free it looks again when it has the lock.
func (s *sqlite) acquire(ctx context.Context, c claim) (verdict, error) {
	return inTime(ctx, func(ctx context.Context) (v verdict, err error) {
		n := max(c.slots, 1)
		before := rand.IntN((n+windowSize-1)/windowSize)*windowSize - 1
		last := min(before+windowSize, n-1)
		args := []any{c.resource, n, c.token, before, last}
		look, err := read(ctx, s.sqliteFile, s.looks, args, (*sqliteLook).dest)
		if err != nil {
			return v, err
		}
		if v, _ = look.decide(c, last-before); v.reason != "" {
			return v, nil
		}
		err = s.write(ctx, s.looks, func(conn *sql.Conn, statement *sql.Stmt) error {
			look, err := one(scan((*sqliteLook).dest)(statement.QueryContext(local, args...)))
			if err != nil {
				return err
			}
			var free int
			if v, free = look.decide(c, last-before); v.reason != "" {
				return nil
			}
			if free == gap {
				if err := conn.QueryRowContext(local, s.gaps, c.resource, before, last).Scan(&free); err != nil {
					return err
				}
			}
			v, err = s.grant(conn, look, c, free)
			return err
		})
		return v, err
	})
}

// grant gives a slot that is free to the token, or makes the one last that it has. The transaction has the lock.
func (s *sqlite) grant(conn *sql.Conn, look sqliteLook, c claim, free int) (verdict, error) {
	granted := scan(func(v *verdict) []any {
		v.reason, v.declared, v.success = "ok", look.slots.V, look.successAge()
		return []any{&v.slot, &v.fence}
	})
	if look.again {
		return one(granted(conn.QueryContext(local, s.repeats, c.resource, max(c.slots, 1), c.token, sqliteTTL(c.ttl))))
	}
	v, err := one(granted(conn.QueryContext(local, s.takes, c.resource, free, c.token, sqliteTTL(c.ttl), c.holder.Host, c.holder.PID, c.holder.ID)))
	// A release leaves 0. If the slot is not the first one, it never had a row, or somebody deleted that.
	v.abandoned = look.first.Valid && free == look.first.V && look.ends > 0
	if err == nil && (c.tick != nil || !look.slots.Valid || look.slots.V != c.slots) {
		_, err = conn.ExecContext(local, s.heads, c.resource, c.tick, c.slots)
	}
	return v, err
}
