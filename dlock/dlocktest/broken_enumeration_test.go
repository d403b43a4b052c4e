package dlocktest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// each modifies the leases of every page.
func (m *mutant) each(change func([]driver.LeaseInfo) []driver.LeaseInfo) {
	m.pages = func(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
		page, err := m.Store.Enumerate(ctx, after, limit)
		page.Leases = change(page.Leases)
		return page, err
	}
}

// without removes leases.
func without(which func(driver.LeaseInfo) bool) func(*mutant) {
	return func(m *mutant) {
		m.each(func(list []driver.LeaseInfo) []driver.LeaseInfo { return slices.DeleteFunc(list, which) })
	}
}

// altered modifies each lease.
func altered(change func(*driver.LeaseInfo)) func(*mutant) {
	return func(m *mutant) {
		m.each(func(list []driver.LeaseInfo) []driver.LeaseInfo {
			for i := range list {
				change(&list[i])
			}
			return list
		})
	}
}

var (
	findsAll   = []string{"enumerate/finds"}
	findsOnce  = []string{"enumerate/leases that stay"}
	aRelease   = []string{"enumerate/shows a release"}
	aRenewal   = []string{"enumerate/tells when"}
	itsOwnOnly = []string{"enumerate/sees nothing"}
)

var enumerationMistakes = []mistake{
	{"an enumeration without mutexes", findsAll, without(func(l driver.LeaseInfo) bool { return l.Mutex })},
	{"an enumeration of slots 0", findsAll, without(func(l driver.LeaseInfo) bool { return l.Slot > 0 })},
	{"an enumeration of names with quotes", findsAll, without(func(l driver.LeaseInfo) bool {
		return strings.Contains(l.Name, "'")
	})},
	{"an enumeration of mutexes as semaphores", findsAll, altered(func(l *driver.LeaseInfo) { l.Mutex = false })},
	{"an enumeration without holders", findsAll, altered(func(l *driver.LeaseInfo) { l.Holder = driver.Holder{} })},
	{"an enumeration without fences", findsAll, altered(func(l *driver.LeaseInfo) { l.Fence = 0 })},
	{"one page for all", findsAll, func(m *mutant) {
		m.pages = func(ctx context.Context, after string, _ int) (driver.LeasePage, error) {
			return m.Store.Enumerate(ctx, after, driver.MaxPage)
		}
	}},
	{"the first page for all", findsAll, func(m *mutant) {
		m.pages = func(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
			page, err := m.Store.Enumerate(ctx, after, limit)
			page.Next = ""
			return page, err
		}
	}},
	{"pages by their number", findsOnce, func(m *mutant) {
		m.pages = func(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
			page, err := m.Store.Enumerate(ctx, "", driver.MaxPage)
			from := min(len(after), len(page.Leases)) // the length of after is the number of leases returned so far
			to := min(from+limit, len(page.Leases))
			next := driver.LeasePage{Leases: page.Leases[from:to]}
			if to < len(page.Leases) {
				next.Next = strings.Repeat("x", to)
			}
			return next, err
		}
	}},
	{"releases are not shown", aRelease, without(func(l driver.LeaseInfo) bool { return l.ReleasedAgo > 0 })},
	{"what was released is held", aRelease, altered(func(l *driver.LeaseInfo) {
		if l.ReleasedAgo > 0 {
			l.ReleasedAgo, l.ExpiresIn = 0, time.Second
		}
	})},
	{"nobody has released it", aRelease, altered(func(l *driver.LeaseInfo) {
		if l.ReleasedAgo > 0 {
			l.Holder = driver.Holder{}
		}
	})},
	{"releases are shown forever", aRelease, func(m *mutant) {
		ever := map[place]driver.LeaseInfo{}
		m.each(func(list []driver.LeaseInfo) []driver.LeaseInfo {
			for _, l := range list {
				at := place{l.Name, l.Mutex, l.Slot}
				if delete(ever, at); l.ReleasedAgo > 0 {
					ever[at] = l
				}
			}
			for _, l := range ever {
				if !slices.ContainsFunc(list, func(is driver.LeaseInfo) bool { return is.Name == l.Name }) {
					list = append(list, l)
				}
			}
			return list
		})
	}},
	{"HeldFor begins again", aRenewal, altered(func(l *driver.LeaseInfo) { l.HeldFor = l.RenewedAgo })},
	{"RenewedAgo goes on", aRenewal, altered(func(l *driver.LeaseInfo) { l.RenewedAgo = l.HeldFor })},
	{"RenewedAgo is not known", aRenewal, altered(func(l *driver.LeaseInfo) { l.RenewedAgo = 0 })},
	{"RenewedAgo by the first TTL", aRenewal, altered(func(l *driver.LeaseInfo) {
		l.RenewedAgo = max(time.Microsecond, 10*time.Minute-l.ExpiresIn)
	})},
	{"leases of others", itsOwnOnly, func(m *mutant) {
		m.each(func(list []driver.LeaseInfo) []driver.LeaseInfo {
			return append(list, driver.LeaseInfo{Name: "theirs", ExpiresIn: time.Second})
		})
	}},
}
