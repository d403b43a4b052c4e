package dlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// A Session shows whether its leases are renewed, since when, and the last error.
//
// Fails when a failing heartbeat is shown as renewing, or when the time changes with each failure.
func TestSessionShowsItsHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		link := dlocktest.NewFaulty(memlock.New())
		session, err := dlock.NewSession(link, dlock.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var state string
		var changedAt time.Time
		show := func(kind, name, s string, at time.Time, e error) {
			if kind != "heartbeat" || name != "" {
				t.Errorf("%s %q", kind, name)
			}
			state, changedAt, err = s, at, e
		}
		if session.Runners(show); state != "renewing" || !changedAt.IsZero() || err != nil {
			t.Errorf("at first: %s since %v, %v", state, changedAt, err)
		}
		lease, err := session.Mutex("a").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(t.Context())
		errDown := errors.New("down")
		link.Inject(dlocktest.Error(errDown))
		began := time.Now()
		time.Sleep(9 * time.Second)
		if session.Runners(show); state != "failing" || !errors.Is(err, errDown) ||
			changedAt.Sub(began) > 5*time.Second {
			t.Errorf("while the store fails: %s since %v, %v", state, changedAt, err)
		}
		link.Heal()
		time.Sleep(3 * time.Second)
		if session.Runners(show); state != "renewing" || err != nil || !changedAt.After(began.Add(9*time.Second)) {
			t.Errorf("when it answers again: %s since %v, %v", state, changedAt, err)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if session.Runners(show); state != "closed" {
			t.Errorf("in the end: %s", state)
		}
	})
}
