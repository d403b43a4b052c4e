package memlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// Enumerate implements driver.Enumerator. It never divides the leases of one name between two
// pages, so a page may have more than limit leases.
func (s *Store) Enumerate(ctx context.Context, after string, limit int) (page driver.LeasePage, err error) {
	if limit < 1 || limit > driver.MaxPage {
		return page, fmt.Errorf("memlock: a page of %d leases: must be 1 to %d", limit, driver.MaxPage)
	}
	if err := ctx.Err(); err != nil {
		return page, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var names []key
	for k, e := range s.names {
		if k.place() > after && slices.ContainsFunc(e.slots, func(sl slot) bool { return sl.listed(now) }) {
			names = append(names, k)
		}
	}
	slices.SortFunc(names, func(a, b key) int { return cmp.Compare(a.place(), b.place()) })
	for i, k := range names {
		for n, sl := range s.names[k].slots {
			if sl.listed(now) {
				page.Leases = append(page.Leases, sl.info(k, n, now))
			}
		}
		if len(page.Leases) >= limit && i < len(names)-1 {
			page.Next = k.place()
			break
		}
	}
	return page, nil
}

// place is where the name stands in the order in which Enumerate returns names. It is not "".
func (k key) place() string {
	if k.mutex {
		return "mutex " + k.name
	}
	return "semaphore " + k.name
}

// listed reports whether Enumerate returns the slot's lease.
func (s *slot) listed(now time.Time) bool {
	return s.held(now) || !s.releasedAt.IsZero() && now.Sub(s.releasedAt) < driver.ReleasedFor
}

// info describes the lease of a slot that is listed.
func (s *slot) info(k key, n int, now time.Time) driver.LeaseInfo {
	l := driver.LeaseInfo{Name: k.name, Mutex: k.mutex, Slot: n, Holder: s.holder, Fence: s.fence,
		HeldFor: now.Sub(s.acquiredAt), RenewedAgo: max(now.Sub(s.renewedAt), time.Microsecond)}
	if s.releasedAt.IsZero() {
		l.ExpiresIn = s.expiresAt.Sub(now)
	} else {
		l.ReleasedAgo = max(now.Sub(s.releasedAt), time.Microsecond)
	}
	return l
}
