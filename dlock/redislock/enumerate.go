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

// pageKeys is about how many names and slots a page of Enumerate looks at. More would block the
// server for longer than the five to ten milliseconds that these take. All slots of a name are in
// one page.
const pageKeys = 2_000

// Enumerate implements driver.Enumerator. It is one script, which writes nothing. A page is shorter
// than limit if it has looked at 2,000 names and slots, or one name with more.
//
// It finds names by a set, to which the first grant of a name and some later grants and extensions
// add it: see the package doc. A lease whose value was changed by hand may have no Holder.
//
// On a Cluster all names have to be on one node, as they are if the Prefix has a hash tag, such as
// {shop}:. Without a hash tag it returns an error that matches errors.ErrUnsupported.
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

// releaseRetentionMillis returns for how many milliseconds a release is kept; 0 where Enumerate
// cannot read it.
func (s *Store) releaseRetentionMillis() int64 {
	if s.sharedKeys() == "" {
		return 0
	}
	return rediskit.Millis(driver.ReleasedFor)
}

// parsePage parses the answer of enumerate.lua. It skips members of the set that are not names of
// this store, and so were added by hand.
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
		held, _ := parseValue(text) // a malformed value holds the slot as well
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

// nameOf returns the name that the key of a state belongs to.
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

// clockStep is how far a clock may seem to go back, in ms, although nobody set it.
const clockStep = 1_000

// info describes a lease that is held at the server's time now (ms), and whose key lasts for
// another left ms.
func (s stored) info(now, left int64) driver.LeaseInfo {
	l := driver.LeaseInfo{Holder: s.holder(), Fence: driver.Fence(max(0, s.Fence)), ExpiresIn: milliseconds(left)}
	if s.AcquiredAt > 0 {
		l.HeldFor = milliseconds(now - s.AcquiredAt)
	}
	// If more is left than the last extension gave, the clock was set back, or the key is not ours.
	if s.TTL > 0 && left >= 0 && left-s.TTL <= clockStep {
		l.RenewedAgo = max(time.Microsecond, min(milliseconds(s.TTL-left), l.HeldFor))
	}
	return l
}
