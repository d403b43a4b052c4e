package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
)

// If a mutex's state says "released", an acquire takes the mutex without a read. If the mutex is
// held nevertheless, because the state was written by hand, its holder keeps it until the lease
// ends.
//
// Fails when the SET is made without NX; when the attempt continues after the SET was refused, as
// it would for a semaphore.
func TestStateOfAMutexIsOnlyAHint(t *testing.T) {
	t.Parallel()
	prefix := unique("released")
	client, store := shared(t, prefix)
	ctx := t.Context()
	request := func(token string) driver.Request {
		return driver.Request{Name: "a", Token: token, TTL: quarantineTTL, Holder: driver.Holder{Host: "h-" + token}}
	}
	g, err := store.TryAcquire(ctx, request("one"))
	if err != nil {
		t.Fatal(err)
	}
	if said := client.HGet(ctx, prefix+"a:slot:mutex", "released").Val(); said != "0" {
		t.Fatalf("released is %q after a grant", said)
	}
	client.HSet(ctx, prefix+"a:slot:mutex", "released", "1")
	_, err = store.TryAcquire(ctx, request("two"))
	if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != driver.ReasonFull ||
		no.Holder.Host != "h-one" || no.ExpiresIn <= 0 || no.ExpiresIn > quarantineTTL {
		t.Errorf("%v (%+v), want that the first has it", err, no)
	}
	if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("%v, %v: want that it was there until now", r, err)
	}
	if _, err := store.TryAcquire(ctx, request("two")); err != nil {
		t.Error(err)
	}
	if again, err := store.TryAcquire(ctx, request("two")); err != nil || again.PreviousExpired {
		t.Errorf("%+v, %v: want the same grant, as to any attempt that is repeated", again, err)
	}
	client.Del(ctx, prefix+"a")
	client.LPush(ctx, prefix+"a", "x")
	client.HSet(ctx, prefix+"a:slot:mutex", "released", "1")
	if _, err := store.TryAcquire(ctx, request("three")); !errors.Is(err, driver.ErrFault) ||
		!strings.Contains(err.Error(), prefix+"a does") {
		t.Errorf("%v, want an error that names the key", err)
	}
}

// Two fields that rarely change are written whenever they change: the declared slots, and which run
// of the server granted last. The expiry is extended only every quarter of an hour. A name is
// forgotten when it has been unused for about an hour, or for forty days if it has ticks.
//
// Fails when a grant writes only fence and tick; when it postpones only the expiry of the state;
// when it postpones expiries with every grant; when it waits because the recorded time of the last
// postponement lies in the future; when a grant without a tick shortens the memory of the ticks.
func TestWhatSeldomChangesIsWrittenWhenItDoes(t *testing.T) {
	t.Parallel()
	prefix := unique("seldom")
	client, store := shared(t, prefix)
	ctx := t.Context()
	grant := func(name string, slots int, tick *driver.Tick) driver.Grant {
		t.Helper()
		g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: slots, Token: "t", TTL: quarantineTTL,
			Tick: tick})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	release := func(g driver.Grant) driver.Grant {
		t.Helper()
		g.Succeeded = true
		if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
		return g
	}
	const short, lifetime, longer = 10 * time.Minute, time.Hour, 39 * 24 * time.Hour
	for name, memory := range map[string]struct{ least, most time.Duration }{"brief": {lifetime - time.Minute,
		lifetime}, "ticks": {longer, longer + 2*24*time.Hour}} {
		state := prefix + name + ":slot:state"
		ends := []string{state, prefix + name + ":slot:index"}
		fields := func(want ...string) {
			t.Helper()
			if got := fmt.Sprint(client.HMGet(ctx, state, "slots", "form").Val()); got != fmt.Sprint(want) {
				t.Errorf("%s: slots and form are %v, want %v", name, got, want)
			}
		}
		expire := func() {
			for _, key := range ends {
				client.PExpire(ctx, key, short)
			}
		}
		putOff := func(when string) {
			t.Helper()
			for _, key := range ends {
				if ttl := client.PTTL(ctx, key).Val(); ttl < memory.least || ttl > memory.most {
					t.Errorf("%s %s: it ends in %v, want %v", key, when, ttl, memory.least)
				}
			}
		}
		release(grant(name, 3, nil))
		if name == "ticks" { // its first tick
			release(grant(name, 3, &driver.Tick{At: time.Now(), Max: 1}))
		}
		fields("3", "plain")
		putOff("when it is first granted")
		run := client.HGet(ctx, state, "run").Val()
		expire()
		if g := release(grant(name, 3, nil)); g.Info.DeclaredSlots != 3 {
			t.Errorf("%+v", g.Info)
		}
		for _, key := range ends {
			if ttl := client.PTTL(ctx, key).Val(); ttl > short {
				t.Errorf("the end of %s was put off twice in a quarter of an hour, to %v", key, ttl)
			}
		}
		release(grant(name, 4, nil))
		fields("4", "plain")
		// The second value comes from a clock that was ahead.
		for _, kept := range []time.Duration{-16 * time.Minute, 25 * time.Hour} {
			client.HSet(ctx, state, "kept", time.Now().Add(kept).UnixMilli())
			expire()
			release(grant(name, 4, nil))
			putOff(fmt.Sprintf("with a grant, last put off %v from now", kept))
			g := grant(name, 4, nil)
			client.HSet(ctx, state, "kept", time.Now().Add(kept).UnixMilli())
			expire()
			if r, err := store.Extend(ctx, quarantineTTL, g); err != nil || r[0].Outcome != driver.GrantOK {
				t.Error(r, err)
			}
			putOff(fmt.Sprintf("with a heartbeat, last put off %v from now", kept))
			release(g)
		}
		g := grant(name, 4, nil) // never released
		if ttl := client.PTTL(ctx, prefix+name+":slot:tokens").Val(); ttl < lifetime-time.Minute || ttl > lifetime {
			t.Errorf("the token of a lease that is held is remembered for %v", ttl)
		}
		release(g)
		if ttl := client.PTTL(ctx, prefix+name+":slot:tokens").Val(); ttl != -2 { // missing: all are released
			t.Errorf("the tokens end in %v", ttl)
		}
		client.HDel(ctx, state, "run")
		release(grant(name, 4, nil))
		if now := client.HGet(ctx, state, "run").Val(); now == "" || now != run {
			t.Errorf("the run is %q, and was %q", now, run)
		}
	}
	// The first release that records a success does not shorten the memory of the ticks either.
	client.HDel(ctx, prefix+"ticks:slot:state", "success")
	release(grant("ticks", 4, nil))
	if ttl := client.PTTL(ctx, prefix+"ticks:slot:state").Val(); ttl < longer {
		t.Errorf("after a success the ticks are remembered for %v", ttl)
	}
}

// If keys were deleted by hand, every newly created key still expires, except the key for all names
// with the prefix. A repeated attempt finds its grant.
//
// Fails when acquire.lua sets no expiry on the tokens, or on an index that is new or created by an
// attempt that finds its grant or a taken slot. Fails when release.lua sets none on a state. Fails
// when a mutex whose state does not say "released" is not read.
func TestEveryKeyHasAnEnd(t *testing.T) {
	t.Parallel()
	prefix := unique("ends")
	client, _ := shared(t, prefix)
	// Embedded removes the maximum TTL, so the leases below may be long.
	store := open(t, client, redislock.Options{Prefix: prefix, Embedded: true})
	ctx := t.Context()
	check := func(step string) {
		t.Helper()
		for _, key := range client.Keys(ctx, prefix+"*").Val() {
			if key != store.Note() && client.PTTL(ctx, key).Val() == -1 {
				t.Errorf("%s: %s has no end", step, strings.TrimPrefix(key, prefix))
				client.PExpire(ctx, key, time.Hour)
			}
		}
	}
	grant := func(name string, slots int, token string) driver.Grant {
		t.Helper()
		g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: slots, Token: token, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	release := func(g driver.Grant) {
		t.Helper()
		g.Succeeded = true
		if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
	}
	first := grant("a", 3, "one")
	check("a grant")
	client.Del(ctx, prefix+"a:slot:index")
	if again := grant("a", 3, "one"); again.Fence != first.Fence {
		t.Errorf("%+v, then %+v", first, again)
	}
	check("the grant again, without the index")
	client.Del(ctx, prefix+"a:slot:index", prefix+"a:slot:tokens")
	second := grant("a", 3, "two")
	check("a second, without index and tokens")
	release(first)
	release(second)
	client.Del(ctx, prefix+"a:slot:index")
	third := grant("a", 3, "three")
	check("a third, when nothing is held, without the index")
	client.Del(ctx, prefix+"a:slot:state")
	release(third)
	check("its release, without the state")

	mutex := grant("m", 0, "one")
	client.Del(ctx, prefix+"m:slot:mutex")
	if again := grant("m", 0, "one"); again.Fence != mutex.Fence {
		t.Errorf("%+v, then %+v", mutex, again)
	}
	check("a mutex again, without the state")
	release(mutex)
	check("its release, without the state")
}

// Fences keep growing after all keys of a name are lost.
func TestI4FencesGrowAcrossLossOfTheState(t *testing.T) {
	t.Parallel()
	prefix := unique("fence")
	client, store := shared(t, prefix)
	ctx := context.Background()
	var last driver.Fence
	for i := range 20 {
		g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: fmt.Sprint("t", i),
			TTL: quarantineTTL})
		if err != nil {
			t.Fatal(err)
		}
		if g.Fence <= last {
			t.Fatalf("fence %d after %d", g.Fence, last)
		}
		last = g.Fence
		for _, key := range client.Keys(ctx, prefix+"a*").Val() {
			client.Del(ctx, key)
		}
	}
}
