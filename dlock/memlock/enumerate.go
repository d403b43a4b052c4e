package memlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/leasestate"
)

// Enumerate implements driver.Enumerator. It keeps the leases of one name on one page, so a page
// may have more than limit leases.
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
	var names []leasestate.Key
	for k, e := range s.names {
		if place(k) > after && e.HasListed(now) {
			names = append(names, k)
		}
	}
	slices.SortFunc(names, func(a, b leasestate.Key) int { return cmp.Compare(place(a), place(b)) })
	for i, k := range names {
		page.Leases = s.names[k].Listed(page.Leases, k, now)
		if len(page.Leases) >= limit && i < len(names)-1 {
			page.Next = place(k)
			break
		}
	}
	return page, nil
}

// place returns the sort key of a name in the order of Enumerate. It is never empty.
func place(k leasestate.Key) string {
	if k.Mutex {
		return "mutex " + k.Name
	}
	return "semaphore " + k.Name
}
