package redislock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/proof/redistest"
)

// A later version of this package marks a state that this version would misread. From then on, this
// version grants no lease of that name and says why. Its current runs may end.
//
// Fails when an acquire ignores the format.
func TestTwoVersionsOfUs(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client()
	prefix := unique("versions")
	store := storeAt(t, server, redislock.Options{Prefix: prefix, Embedded: true})
	for slots, key := range map[int]string{0: ":slot:mutex", 3: ":slot:state"} {
		for _, tick := range []*driver.Tick{nil, {At: time.Now().Add(time.Duration(slots) * time.Millisecond),
			Max: 2}} {
			name := fmt.Sprint("orders", slots, tick != nil)
			acquire := func(token string) (driver.Grant, error) {
				return store.TryAcquire(t.Context(), driver.Request{Name: name, Slots: slots, Token: token,
					TTL: time.Minute, Tick: tick})
			}
			g, err := acquire("first")
			if err != nil {
				t.Fatal(err)
			}
			format := func(n int) {
				t.Helper()
				if err := client.HSet(t.Context(), prefix+name+key, "format", n).Err(); err != nil {
					t.Fatal(err)
				}
			}
			format(1) // a format that this version knows
			if again, err := acquire("first"); err != nil || again.Fence != g.Fence {
				t.Errorf("%s, the same format: %+v, %v", name, again, err)
			}
			format(2)
			for _, token := range []string{"first", "second"} {
				_, err := acquire(token)
				if !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(), "format 2") ||
					!strings.Contains(err.Error(), "update") {
					t.Errorf("%s, %s: %v: must be refused as a fault of this name, and say that this host is to "+
						"be updated", name, token, err)
				}
			}
			if r, err := store.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
				t.Errorf("%s, extend: %+v, %v", name, r, err)
			}
			if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
				t.Errorf("%s, release: %+v, %v", name, r, err)
			}
			if _, err := acquire("third"); !errors.Is(err, driver.ErrFault) {
				t.Errorf("%s, when it is free: %v", name, err)
			}
		}
	}
}
