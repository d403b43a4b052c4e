package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
)

var _ driver.Controller = (*redislock.Store)(nil)

var ann = driver.Cause{By: "ann", Note: "why"}

func limit(t *testing.T, store *redislock.Store, name string, slots int) {
	t.Helper()
	if err := store.Update(t.Context(), name, driver.Update{Limit: &driver.LimitOverride{Cause: ann,
		Slots: slots}}); err != nil {
		t.Fatal(err)
	}
}

// The text of a holder or a cause never counts as a revocation or a fence.
//
// Fails when extend.lua searches the whole value for the word; when the cause is stored unescaped;
// when revoke.lua takes the last fence in the value.
func TestTextsAreNoRevocation(t *testing.T) {
	t.Parallel()
	_, store := shared(t, unique("texts"))
	ctx := t.Context()
	nasty := `x","revoked":{"by":"nobody"},"fence":1,"y":"`
	g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "t", TTL: quarantineTTL,
		Holder: driver.Holder{Host: nasty, PID: 1, ID: nasty}})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := store.Extend(ctx, quarantineTTL, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("%+v, %v: nobody has revoked it", r, err)
	}
	if err := store.Revoke(ctx, "a", 0, 1, ann); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("revoked by a fence in the holder's name: %v", err)
	}
	origin := driver.Cause{By: nasty, Note: `{"by":"x"},"fence":1,` + nasty}
	if err := store.Revoke(ctx, "a", 0, g.Fence, origin); err != nil {
		t.Fatal(err)
	}
	if err := store.Revoke(ctx, "a", 0, 1, ann); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("revoked by a fence in the origin: %v", err)
	}
	r, err := store.Extend(ctx, quarantineTTL, g)
	if err != nil || r[0].Outcome != driver.GrantLost || r[0].RevokedBy == nil || *r[0].RevokedBy != origin {
		t.Errorf("%+v, %v: want %+v", r, err, origin)
	}
	again, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "t", TTL: quarantineTTL})
	if err != nil || again.Fence != g.Fence {
		t.Errorf("asked again: %+v, %v; want fence %d", again, err, g.Fence)
	}
	if list, err := store.List(ctx, "a", 1); err != nil || len(list) != 1 || list[0].Holder.Host != nasty ||
		list[0].Fence != g.Fence {
		t.Errorf("the list: %+v, %v", list, err)
	}
}

// A lowered limit holds even if keys are deleted by hand. A deleted lease frees its place
// immediately. Without the index, only slots below the limit are granted.
//
// Fails when the slot alone decides (one more is granted for each slot that is released below the
// limit), and when the index is trusted (it is full until the leases would have ended).
func TestLimitAndDeletedKeys(t *testing.T) {
	t.Parallel()
	for round := range 20 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			prefix := unique("limit")
			ctx := t.Context()
			random := rand.New(rand.NewPCG(2, uint64(round)))
			client, store := lasting(t, prefix, "a", 8)
			held := map[int]driver.Grant{}
			tries, lower := 0, 8
			acquire := func() error {
				tries++
				g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 8, Token: fmt.Sprint("t", tries),
					TTL: time.Hour})
				if err == nil {
					if _, taken := held[g.Slot]; taken || g.Slot >= lower {
						t.Fatalf("slot %d was granted twice, or is beyond the limit of %d", g.Slot, lower)
					}
					held[g.Slot] = g
				} else if !errors.Is(err, driver.ErrNotAcquired) {
					t.Fatal(err)
				}
				return err
			}
			for range 8 {
				if err := acquire(); err != nil {
					t.Fatal(err)
				}
			}
			lower = 1 + random.IntN(7)
			limit(t, store, "a", lower)
			for range 60 {
				slot := random.IntN(8)
				if g, ok := held[slot]; ok {
					switch random.IntN(3) {
					case 0:
						if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
							t.Fatal(r, err)
						}
						delete(held, slot)
					case 1:
						client.Del(ctx, fmt.Sprintf("%sa:slot:%d", prefix, slot))
						delete(held, slot)
					}
				}
				before := len(held)
				if err := acquire(); (err == nil) != (before < lower) {
					t.Fatalf("%d were held within a limit of %d: %v", before, lower, err)
				}
			}
			// Without the index, leases in slots above the limit do not count.
			limited := lower
			lower = 8
			limit(t, store, "a", lower)
			for len(held) < 8 {
				if err := acquire(); err != nil {
					t.Fatal(err)
				}
			}
			lower = limited
			limit(t, store, "a", lower)
			client.Del(ctx, prefix+"a:slot:index")
			for range 30 {
				for slot, g := range held {
					if slot < lower {
						if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
							t.Fatal(r, err)
						}
						delete(held, slot)
					}
					break
				}
				_ = acquire()
			}
		})
	}
}

// Overrides do not expire, unlike all other data of a name.
//
// Fails when update.lua does not remove the expiry of the state, when acquire.lua, extend.lua or
// release.lua sets it again, and when acquire.lua keeps an expiry that another program has set.
func TestOverridesDoNotExpire(t *testing.T) {
	t.Parallel()
	prefix := unique("stay")
	client, store := shared(t, prefix)
	ctx := t.Context()
	g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "t", TTL: quarantineTTL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Inspect(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if ttl := client.PTTL(ctx, prefix+"a:slot:state").Val(); ttl <= 0 {
		t.Errorf("the state ends in %v", ttl)
	}
	limit(t, store, "a", 2)
	if _, err := store.Extend(ctx, quarantineTTL, g); err != nil {
		t.Fatal(err)
	}
	h, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "u", TTL: quarantineTTL})
	if err != nil {
		t.Fatal(err)
	}
	h.Succeeded = true
	if _, err := store.Release(ctx, h); err != nil {
		t.Fatal(err)
	}
	if ttl := client.PTTL(ctx, prefix+"a:slot:state").Val(); ttl != -1 {
		t.Errorf("the overrides end in %v", ttl)
	}
	// A host with a version without overrides makes the state expire. Then the last such host
	// stops.
	client.PExpire(ctx, prefix+"a:slot:state", time.Hour)
	if _, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "v",
		TTL: quarantineTTL}); err != nil {
		t.Fatal(err)
	}
	if ttl := client.PTTL(ctx, prefix+"a:slot:state").Val(); ttl != -1 {
		t.Errorf("the overrides end in %v", ttl)
	}
	// No override is lost if all other data are lost. The version keeps growing even if the
	// overrides are lost.
	client.Del(ctx, prefix+"a:slot:index", prefix+"a:slot:tokens", prefix+"a:slot:0")
	first, err := store.Inspect(ctx, "a")
	if err != nil || first[0].Limit == nil || first[0].Limit.Slots != 2 {
		t.Errorf("%+v, %v", first, err)
	}
	client.Del(ctx, prefix+"a:slot:state")
	limit(t, store, "a", 2)
	second, err := store.Inspect(ctx, "a")
	if err != nil || second[0].Version <= first[0].Version {
		t.Errorf("version %d after %d, %v", second[0].Version, first[0].Version, err)
	}
}

// A malformed pause counts whatever its cause. Any other malformed override is an error that names
// the key.
//
// Fails when a pause counts only with its cause; when Inspect invents causes.
func TestForeignOverrides(t *testing.T) {
	t.Parallel()
	prefix := unique("foreign")
	client, store := shared(t, prefix)
	ctx := t.Context()
	key := prefix + "a:slot:state"
	far := time.Now().Add(time.Hour).UnixMicro()
	for _, fields := range [][]any{
		{"until", far},
		{"until", far, "pause", "[]"},
		{"until", far, "pause", `{"by":""}`},
		{"until", far, "pause", `{"by":"a\nb"}`},
		{"limit", 0},
	} {
		client.Del(ctx, key)
		client.HSet(ctx, key, fields...)
		_, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "t", TTL: quarantineTTL})
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != driver.ReasonPaused ||
			no.PausedBy != (driver.Cause{}) {
			t.Errorf("%v: %v; want paused by nobody", fields, err)
		}
		if list, err := store.Inspect(ctx, "a"); !errors.Is(err, driver.ErrFault) {
			t.Errorf("%v: %+v, %v; want a fault", fields, list, err)
		}
		if err := store.Update(ctx, "a", driver.Update{Resume: &ann, ResetLimit: &ann}); err != nil {
			t.Errorf("%v: updated anew: %v", fields, err)
		}
		if list, err := store.Inspect(ctx, "a"); err != nil || list[0].Pause != nil || list[0].Limit != nil {
			t.Errorf("%v: updated anew: %+v, %v", fields, list, err)
		}
	}
	client.Del(ctx, key)
	g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "t", TTL: quarantineTTL})
	if err != nil {
		t.Fatal(err)
	}
	client.Set(ctx, key, "x", 0)
	_, acquireErr := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 2, Token: "u", TTL: quarantineTTL})
	_, extendErr := store.Extend(ctx, quarantineTTL, g)
	_, releaseErr := store.Release(ctx, g)
	states, err := store.Inspect(ctx, "b", "a")
	if err != nil || states[0].Err != nil {
		t.Fatalf("%+v, %v; want a fault of the second alone", states, err)
	}
	inspectErr := states[1].Err
	for what, err := range map[string]error{"acquire": acquireErr, "extend": extendErr, "release": releaseErr,
		"inspect": inspectErr, "update": store.Update(ctx, "a", driver.Update{})} {
		if !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v; want a fault that names %s", what, err, key)
		}
	}
	client.LPush(ctx, prefix+"c:slot:0", "x")
	if err := store.Revoke(ctx, "c", 0, 1, ann); !errors.Is(err, driver.ErrFault) ||
		!strings.Contains(err.Error(), prefix+"c:slot:0") {
		t.Errorf("revoke: %v", err)
	}
	client.Set(ctx, prefix+"c:slot:1", "hello", 0)
	if err := store.Revoke(ctx, "c", 1, 1, ann); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("revoke what is no lease: %v", err)
	}
}

// An update with the other form of the keys is refused, because no host would see it.
//
// Fails when update.lua does not check the form.
func TestUpdatesInTheOtherFormAreRefused(t *testing.T) {
	t.Parallel()
	prefix := unique("form")
	client, store := shared(t, prefix)
	if _, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "t",
		TTL: quarantineTTL}); err != nil {
		t.Fatal(err)
	}
	other := open(t, client, redislock.Options{Prefix: prefix, Keys: redislock.KeysTagged})
	if err := other.Update(t.Context(), "a", driver.Update{Trigger: &ann}); !errors.Is(err, driver.ErrFault) ||
		!strings.Contains(err.Error(), "same Options.Keys") {
		t.Error(err)
	}
}

// Overrides and leases survive a restart if the server's settings preserve them. A pause is
// reported even during the quarantine.
//
// Fails when the quarantine is checked before the overrides.
func TestPausedWhileQuarantined(t *testing.T) {
	t.Parallel()
	prefix := unique("quarantine")
	client, store := shared(t, prefix)
	if _, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "t",
		TTL: quarantineTTL}); err != nil {
		t.Fatal(err)
	}
	forget(t, client, store, prefix+"a:slot:state", "another")
	refused := func(want driver.Reason) {
		t.Helper()
		_, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 2, Token: "u", TTL: quarantineTTL})
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != want {
			t.Errorf("%v: want %s", err, want)
		}
	}
	if err := store.Update(t.Context(), "a", driver.Update{Pause: &driver.Pause{Cause: ann,
		For: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	refused(driver.ReasonPaused)
	if err := store.Update(t.Context(), "a", driver.Update{Resume: &ann}); err != nil {
		t.Fatal(err)
	}
	refused(driver.ReasonQuarantine)
}

// A call that does not reach the server returns an error, never ErrNotHeld and never empty
// overrides.
//
// Fails when the error of one call in a pipeline is ignored.
func TestUpdatesWithoutAServer(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	faulty := redislock.New(nil, redislock.Options{})
	for what, store := range map[string]*redislock.Store{"gone": open(t, client, redislock.Options{}),
		"faulty": faulty} {
		if list, err := store.Inspect(ctx, "a", "b"); err == nil {
			t.Errorf("%s: %+v", what, list)
		}
		if err := store.Update(ctx, "a", driver.Update{}); err == nil {
			t.Errorf("%s: updated", what)
		}
		if err := store.Revoke(ctx, "a", 0, 1, ann); err == nil || errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
