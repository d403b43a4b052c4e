package leader_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/leader"
)

// An Elector shows the state of its Status.
//
// Fails when it shows another state, or no error.
func TestElectorShowsItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(leader.Role{RetryInterval: interval})
		seen := func(want leader.State, wantErr error) {
			t.Helper()
			calls := 0
			h.Runners(func(kind, name, state string, changedAt time.Time, err error) {
				calls++
				if kind != "leader" || name != "relay" || state != string(want) ||
					!changedAt.Equal(h.Status().ChangedAt) || !errors.Is(err, wantErr) {
					t.Errorf("%s %s: %s since %v, %v", kind, name, state, changedAt, err)
				}
			})
			if calls != 1 {
				t.Errorf("it was shown %d times", calls)
			}
		}
		time.Sleep(time.Second)
		seen(leader.StateLeading, nil)
		h.link.Inject(dlocktest.Error(errDown))
		time.Sleep(time.Minute)
		seen(leader.StateStoreDown, errDown)
		f.end()
		seen(leader.StateStopped, nil)
	})
}
