package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
)

var errNoNext = errors.New("sqllock: Enumerate was not given the Next of a page of this store")

// Enumerate implements driver.Enumerator. A page reads limit rows of the table. Rows of leases that
// ended long ago count, too, so if the table has many of them, most pages have few leases. A page
// reads at most one page of rows with other prefixes. Expired leases are left out.
//
// A page does not wait for locked rows and needs only SELECT. On MySQL, it is a transaction of four
// short round trips. On two busy cores, a page of 1,000 held leases took 14 ms on Postgres, 3 ms on
// MariaDB and 8 ms on SQLite. A page of 1,000 leases that ended long ago took 1 to 3 ms.
func (s *Store) Enumerate(ctx context.Context, after string, limit int) (page driver.LeasePage, err error) {
	if err := s.Check(); err != nil {
		return page, err
	}
	if limit < 1 || limit > driver.MaxPage {
		return page, fmt.Errorf("sqllock: a page of %d leases: must be 1 to %d", limit, driver.MaxPage)
	}
	row, err := s.rowOf(after)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return page, err
	}
	got, err := s.db.Enumerate(ctx, store.EnumerateParams{Prefix: s.prefix, After: row, Limit: limit,
		Released: micros(driver.ReleasedFor)})
	if err != nil {
		return page, explain(err)
	}
	if got.Seen < 0 || got.Seen > limit || len(got.Leases) > got.Seen || got.Seen > 0 && got.Last.Compare(row) <= 0 {
		return page, fmt.Errorf("%w: %d leases in %d rows, row %v after %v", store.ErrAnswer, len(got.Leases),
			got.Seen, got.Last, row)
	}
	for _, r := range got.Leases {
		l := leaseInfo(r)
		name, ours := strings.CutPrefix(r.Resource, s.prefix)
		name, semaphore := strings.CutSuffix(name, slotMark)
		if !ours || driver.CheckName(name) != nil { // not granted by any store
			continue
		}
		l.Name, l.Mutex = name, !semaphore
		page.Leases = append(page.Leases, l)
	}
	if name, ours := strings.CutPrefix(got.Last.Resource, s.prefix); ours && got.Seen == limit {
		page.Next = strconv.Itoa(got.Last.Slot) + " " + name
	}
	return page, nil
}

// rowOf returns the row after which a page begins. The prefix is added here instead of being part
// of after, so that a caller cannot read rows of a prefix that sorts before this one.
func (s *Store) rowOf(after string) (store.Row, error) {
	if after == "" {
		return store.Row{Resource: s.prefix, Slot: math.MaxInt32}, nil // precedes all rows, because no name is empty
	}
	number, name, _ := strings.Cut(after, " ")
	slot, err := strconv.ParseInt(number, 10, 32)
	if err != nil || name == "" {
		return store.Row{}, errNoNext
	}
	return store.Row{Resource: s.prefix + name, Slot: int(slot)}, nil
}

// leaseInfo converts a row. It leaves the name empty.
func leaseInfo(r store.Lease) driver.LeaseInfo {
	l := driver.LeaseInfo{Slot: r.Slot, Holder: driver.Holder{Host: r.Host, PID: r.PID, ID: r.ID},
		Fence: driver.Fence(r.Fence), HeldFor: duration(r.HeldFor)}
	// 0 would mean unknown, and clocks may be coarse or may have been set back. A renewal before
	// the grant belongs to an earlier lease: an older version has granted this one.
	if r.RenewedAgo != nil && (*r.RenewedAgo <= r.HeldFor || r.HeldFor < 0) {
		l.RenewedAgo = max(time.Microsecond, duration(*r.RenewedAgo))
	}
	if r.ReleasedAgo != nil {
		l.ReleasedAgo = max(time.Microsecond, duration(*r.ReleasedAgo))
	} else {
		l.ExpiresIn = max(time.Microsecond, duration(r.ExpiresIn))
	}
	return l
}
