package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/rediskit"
)

// pageKeys is about how many names and slots a page of Enumerate examines. They take the server
// five to ten milliseconds, and more would block it for longer. All slots of a name are on one
// page.
const pageKeys = 2_000

// Enumerate implements driver.Enumerator. It is one script that writes nothing. A page is shorter
// than limit if the script has examined 2,000 names and slots, or one name with more.
//
// It finds names through a set. The first grant of a name and some later grants and extensions add
// the name to it: see the package comment. If the value of a lease was changed by hand, its Holder
// may be zero.
//
// On a Cluster, all names must be on one node. A Prefix with a hash tag, such as {shop}:, ensures
// this. Without a hash tag, Enumerate returns an error that matches errors.ErrUnsupported.
func (s *Store) Enumerate(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
	if err := s.Check(); err != nil {
		return driver.LeasePage{}, err
	}
	if limit < 1 || limit > driver.MaxPage {
		return driver.LeasePage{}, fmt.Errorf("redislock: a page of %d leases: must be 1 to %d", limit, driver.MaxPage)
	}
	if s.sharedKeys() == "" {
		return driver.LeasePage{}, errScattered
	}
	answer, err := pageScript.Run(ctx, s.client, []string{s.sharedKeys() + "names"}, after, limit, pageKeys,
		s.releaseRetentionMillis()).Slice()
	if err != nil {
		return driver.LeasePage{}, s.classifyError(ctx, err)
	}
	return s.parsePage(answer)
}

var errScattered = fmt.Errorf("redislock: on a Cluster, leases can be listed only if all names are on one node: put "+
	"braces into Options.Prefix, as in {shop}: (%w)", errors.ErrUnsupported)

// releaseRetentionMillis returns how long a release is kept, in milliseconds. It returns 0 if
// Enumerate could not read the release.
func (s *Store) releaseRetentionMillis() int64 {
	if s.sharedKeys() == "" {
		return 0
	}
	return rediskit.Millis(driver.ReleasedFor)
}

// parsePage parses the answer of enumerate.lua. It skips members of the set that are not names of
// this store, because these were added by hand.
func (s *Store) parsePage(a []any) (page driver.LeasePage, err error) {
	if len(a)%5 != 2 {
		return page, fmt.Errorf("%w: %d values", errAnswer, len(a))
	}
	now := number(a[0])
	next, ok := a[1].(string)
	if !ok || now <= 0 {
		return page, errAnswer
	}
	page.Next = next
	for i := 2; i < len(a); i += 5 {
		state, _ := a[i].(string)
		name, mutex, ok := s.nameOf(state)
		slot, err := strconv.Atoi(fmt.Sprint(a[i+1]))
		if !ok || err != nil || slot < 0 || slot >= driver.MaxSlots {
			continue
		}
		text, _ := a[i+4].(string)
		held, _ := parseValue(text) // a slot with a malformed value is held, too
		l := held.info(now, number(a[i+2]))
		if ago := number(a[i+3]); ago >= 0 {
			l.ReleasedAgo = max(time.Microsecond, milliseconds(ago))
			l.ExpiresIn, l.RenewedAgo = 0, 0
		} else {
			l.ExpiresIn = max(time.Microsecond, l.ExpiresIn)
		}
		l.Name, l.Mutex, l.Slot = name, mutex, slot
		page.Leases = append(page.Leases, l)
	}
	return page, nil
}

// nameOf returns the name that a state key belongs to.
func (s *Store) nameOf(state string) (name string, mutex, ok bool) {
	name, mutex = strings.CutSuffix(state, mutexState)
	if !mutex {
		name, _ = strings.CutSuffix(state, semaphoreState)
	}
	if s.tagged {
		name = strings.TrimSuffix(strings.TrimPrefix(name, "{"), "}")
	}
	name = strings.TrimPrefix(name, s.prefix)
	return name, mutex, s.state(name, mutex) == state && driver.CheckName(name) == nil
}

// clockStep is how far a clock may seem to go back, in ms, without having been set.
const clockStep = 1_000

// info describes a lease that is held at now, the server's time in ms. The lease's key has left ms
// to live.
func (s stored) info(now, left int64) driver.LeaseInfo {
	l := driver.LeaseInfo{Holder: s.holder(), Fence: driver.Fence(max(0, s.Fence)), ExpiresIn: milliseconds(left)}
	if s.AcquiredAt > 0 {
		l.HeldFor = milliseconds(now - s.AcquiredAt)
	}
	// If more time is left than the last extension gave, the clock was set back or the key is not
	// ours.
	if s.TTL > 0 && left >= 0 && left-s.TTL <= clockStep {
		l.RenewedAgo = max(time.Microsecond, min(milliseconds(s.TTL-left), l.HeldFor))
	}
	return l
}
