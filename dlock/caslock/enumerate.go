package caslock

import (
	"context"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/leasestate"
)

// Enumerate implements driver.Enumerator. It keeps the leases of one name on one page, so a page
// may have more than limit leases.
func (s *Store) Enumerate(ctx context.Context, after string, limit int) (page driver.LeasePage, err error) {
	if limit < 1 || limit > driver.MaxPage {
		return page, fmt.Errorf("caslock: a page of %d leases: must be 1 to %d", limit, driver.MaxPage)
	}
	if err := ctx.Err(); err != nil {
		return page, err
	}
	var docs []Document
	var more bool
	if err := s.call(ctx, func() (err error) {
		docs, more, err = s.backend.List(ctx, after, limit)
		return err
	}); err != nil {
		return page, fmt.Errorf("caslock: the list of leases: %w", err)
	}
	for i, doc := range docs {
		k, err := nameOf(doc.Key)
		if err != nil {
			return driver.LeasePage{}, err
		}
		read, err := s.decode(docs[i : i+1])
		if err != nil {
			return driver.LeasePage{}, err
		}
		if err := s.show(ctx, read, func(st *leasestate.State, now leasestate.Now) {
			page.Leases = st.Listed(page.Leases, k, now)
		}); err != nil {
			return driver.LeasePage{}, err
		}
		last := i == len(docs)-1
		if (more || !last) && (last || len(page.Leases) >= limit) {
			page.Next = doc.Key
			break
		}
	}
	return page, nil
}

// nameOf returns the name that a document key belongs to.
func nameOf(key string) (leasestate.Key, error) {
	if name, ok := strings.CutPrefix(key, ofMutex); ok {
		return leasestate.Key{Name: name, Mutex: true}, nil
	}
	if name, ok := strings.CutPrefix(key, ofSemaphore); ok {
		return leasestate.Key{Name: name}, nil
	}
	return leasestate.Key{}, unreadable(key, leasestate.ErrForeign)
}
