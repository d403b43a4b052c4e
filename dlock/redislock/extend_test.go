package redislock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// For each additional lease, a heartbeat makes two allocations: the lease's key and the argument
// that the driver sends.
//
// Fails when slot and token of each lease are separate arguments (extend.lua's ARGV[3] and
// following, instead of one text).
func TestAllocationsOfARenewal(t *testing.T) {
	testkit.SkipRace(t)
	_, store := shared(t, unique("renewal"))
	ctx := t.Context()
	grants := make([]driver.Grant, redislock.ScriptItems)
	for i := range grants {
		var err error
		if grants[i], err = store.TryAcquire(ctx, driver.Request{Name: fmt.Sprint("job-", i), Slots: 5,
			Token: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", TTL: quarantineTTL}); err != nil {
			t.Fatal(err)
		}
	}
	allocs := func(grants []driver.Grant) float64 {
		return testing.AllocsPerRun(20, func() {
			if r, err := store.Extend(ctx, quarantineTTL, grants...); err != nil || r[0].Outcome != driver.GrantOK {
				t.Fatal(r, err)
			}
		})
	}
	half, all := allocs(grants[:len(grants)/2]), allocs(grants)
	if each := (all - half) / float64(len(grants)-len(grants)/2); each != 2 {
		t.Errorf("%v allocations for %d leases and %v for %d: %v for each more, want 2", all, len(grants), half,
			len(grants)/2, each)
	}
}

// Each lease of a run is renewed by its own slot and token, whatever other leases are in the run.
//
// Fails when extend.lua accepts only digits for a slot ('(%d*) (%S+) ' finds slot 1 in "-1"), and
// when the argument of a mutex lacks the blank before its token.
func TestRunOfDifferentLeases(t *testing.T) {
	t.Parallel()
	_, store := shared(t, unique("mixed"))
	ctx := t.Context()
	take := func(name string, slots int, token string) driver.Grant {
		g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: slots, Token: token, TTL: quarantineTTL})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	var slots [3]driver.Grant
	for i := range slots {
		g := take("job", len(slots), fmt.Sprint(i))
		slots[g.Slot] = g
	}
	mutex, other := take("job", 0, "0"), take("other", 0, "-1")
	stranger, none := slots[0], slots[1]
	stranger.Token, none.Slot = slots[2].Token, -1
	results, err := store.Extend(ctx, quarantineTTL, none, mutex, slots[2], stranger, other, slots[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []driver.GrantOutcome{driver.GrantLost, driver.GrantOK, driver.GrantOK, driver.GrantLost,
		driver.GrantOK, driver.GrantOK} {
		if results[i].Outcome != want {
			t.Errorf("lease %d: %v, want %v", i, results[i], want)
		}
	}
}

// A foreign value in place of a name's index costs no lease of that name and no lease that is
// renewed with it.
//
// Fails when an error of extend.lua's ZADD ends the run: the leases behind it are then not renewed.
func TestForeignIndexCostsNoLease(t *testing.T) {
	t.Parallel()
	prefix := unique("badindex")
	client, store := shared(t, prefix)
	ctx := t.Context()
	var grants []driver.Grant
	for _, name := range []string{"before", "bad", "behind"} {
		g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: 2, Token: "t", TTL: quarantineTTL})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
		client.PExpire(ctx, store.Key(name)+":slot:0", time.Minute) // so that a renewal is visible
	}
	client.Del(ctx, prefix+"bad:slot:index")
	client.LPush(ctx, prefix+"bad:slot:index", "x")
	results, err := store.Extend(ctx, quarantineTTL, grants...)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if left := client.PTTL(ctx, store.Key(grants[i].Name)+":slot:0").Val(); r.Outcome != driver.GrantOK ||
			left > quarantineTTL {
			t.Errorf("%s: %+v, and it ends in %v", grants[i].Name, r, left)
		}
	}
}

// A run may last longer than an unused name is remembered. Its heartbeats therefore postpone the
// expiry of the state and the index, once a day. They set no expiry on a state with overrides. They
// also update the lease's end in the index.
//
// Fails when extend.lua omits any of these.
func TestHeartbeatKeepsTheNameKnown(t *testing.T) {
	t.Parallel()
	prefix := unique("kept")
	client, _ := shared(t, prefix)
	store := open(t, client, redislock.Options{Prefix: prefix, Embedded: true}) // allows long leases
	ctx := t.Context()
	state, index := prefix+"a:slot:state", prefix+"a:slot:index"
	g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 2, Token: "t", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	before := client.ZScore(ctx, index, "0").Val()
	day := func() (ofState, ofIndex time.Duration) {
		t.Helper()
		client.HSet(ctx, state, "kept", time.Now().Add(-25*time.Hour).UnixMilli())
		client.PExpire(ctx, index, time.Hour)
		if r, err := store.Extend(ctx, time.Hour, g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
		return client.PTTL(ctx, state).Val(), client.PTTL(ctx, index).Val()
	}
	client.PExpire(ctx, state, time.Hour)
	if s, i := day(); s < 24*time.Hour || i < 24*time.Hour {
		t.Errorf("state and index end in %v and %v, though a day has passed", s, i)
	}
	if after := client.ZScore(ctx, index, "0").Val(); after < before+float64(30*time.Minute/time.Millisecond) {
		t.Errorf("the index has %.0f, and had %.0f before the lease was extended by an hour", after, before)
	}
	limit(t, store, "a", 2)
	if s, i := day(); s != -1 || i < 24*time.Hour {
		t.Errorf("with an order, state and index end in %v and %v", s, i)
	}
}
