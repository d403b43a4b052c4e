package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// furtherTrips makes calls for a lease of three locks. They must take as many round trips as any
// other call. A call of each kind was made before.
func furtherTrips(t *testing.T, s *sqllock.Store, count func(what string, call func() error)) {
	t.Helper()
	shared := []driver.SemaphoreSpec{{Name: "smtp", Slots: 1}, {Name: "gpu", Slots: 2}}
	var grants []driver.Grant
	acquire := func(token string) func() error {
		return func() error {
			g, err := s.TryAcquire(t.Context(), driver.Request{Name: "further", Slots: 5, Token: token, TTL: time.Hour,
				Shared: shared, Tick: &driver.Tick{At: time.Now(), Max: 1}})
			if err == nil {
				grants = append([]driver.Grant{g}, g.Shared...)
			}
			return err
		}
	}
	count("acquire of three locks", acquire("first"))
	count("acquire of three locks again", acquire("first"))
	count("acquire of three locks, one of them full", func() error {
		no, ok := errors.AsType[*driver.NotAcquiredError](acquire("second")())
		if !ok || no.Reason != driver.ReasonLimitFull || no.Shared.Name != "smtp" {
			return errors.New("must be refused because of smtp")
		}
		return nil
	})
	count("extend of three locks", func() error {
		_, err := s.Extend(t.Context(), time.Hour, grants...)
		return err
	})
	count("release of three locks", func() error {
		_, err := s.Release(t.Context(), grants...)
		return err
	})
}

// SQL Server takes one lock at a time and says so before it acquires anything.
//
// Fails when Shared is left out of the request.
func TestSQLServerTakesOneLock(t *testing.T) {
	t.Parallel()
	s := (&scripted{}).store(t, sqllock.Options{})
	if err := s.CheckDelay(time.Hour); err == nil || !strings.Contains(err.Error(), "no delay") {
		t.Errorf("CheckDelay: %v", err)
	}
	if _, err := s.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "t", TTL: time.Hour,
		Tick: &driver.Tick{Delay: time.Hour}}); err == nil || errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("a tick with a delay: %v", err)
	}
	if err := s.CheckShared("a", "b"); err == nil || !strings.Contains(err.Error(), "one lock at a time") {
		t.Errorf("CheckShared: %v", err)
	}
	_, err := s.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "t", TTL: time.Hour,
		Shared: []driver.SemaphoreSpec{{Name: "b", Slots: 1}}})
	if err == nil || errors.Is(err, driver.ErrNotAcquired) || !strings.Contains(err.Error(), "one lock at a time") {
		t.Errorf("TryAcquire: %v", err)
	}
}

// A delay must be shorter than the Retention. Otherwise Cleanup could delete the end of the last
// lease before the delay is over.
//
// Fails when every delay up to driver.MaxDelay is accepted.
func TestDelayAndRetention(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	db, err := sql.Open("pgx", "postgres://nobody@127.0.0.1:1/nothing")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := sqllock.Postgres(db, sqllock.Options{Retention: 2 * day})
	if err := s.CheckDelay(2*day - time.Second); err != nil {
		t.Error(err)
	}
	if err := s.CheckDelay(2 * day); err == nil || !strings.Contains(err.Error(), "Options.Retention") {
		t.Errorf("CheckDelay: %v", err)
	}
	if _, err := s.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "t", TTL: time.Hour,
		Tick: &driver.Tick{Delay: 2 * day}}); err == nil || !strings.Contains(err.Error(), "Options.Retention") {
		t.Errorf("TryAcquire: %v", err)
	}
	if err := sqllock.Postgres(db, sqllock.Options{}).CheckDelay(driver.MaxDelay); err != nil {
		t.Errorf("by default: %v", err)
	}
	job := timer.Timer{Name: "job", Schedule: schedule.After(3 * day), Run: func(context.Context) error { return nil }}
	_, err = timer.New(timer.Config{Store: s}, job)
	if err == nil || !strings.Contains(err.Error(), "Options.Retention") {
		t.Errorf("timer.New: %v", err)
	}
}
