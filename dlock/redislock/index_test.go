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

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/redistest"
)

func shared(t testing.TB, prefix string) (*redis.Client, *redislock.Store) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
	t.Cleanup(func() { client.Close() })
	store := open(t, client, redislock.Options{Prefix: prefix})
	awake(t, store)
	return client, store
}

// The index is a hint. Whatever happens to it, an acquire finds a free slot if there is one and never grants one twice.
//
// Fails when the SET is done without NX; when candidate believes an index that says full; when it removes slots beyond its
// own N.
func TestIndexIsOnlyAHint(t *testing.T) {
	t.Parallel()
	for round := range 30 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			prefix := fmt.Sprintf("index%d:", round)
			client, store := shared(t, prefix)
			random := rand.New(rand.NewPCG(1, uint64(round)))
			ctx := context.Background()
			n := 1 + random.IntN(8) // up to eight slots the answer is exact
			held := map[int]dlock.Grant{}
			index := prefix + "a:slot:index"
			for step := range 200 {
				switch random.IntN(10) {
				case 0:
					client.Del(ctx, index)
				case 1: // part of it
					client.ZRem(ctx, index, random.IntN(n))
				case 2: // it says free, though it is held, or the other way round
					client.ZAdd(ctx, index, redis.Z{Score: float64(random.IntN(2)) * 4e12, Member: random.IntN(n)})
				case 3: // a key is deleted by hand
					slot := random.IntN(n)
					client.Del(ctx, fmt.Sprintf("%sa:slot:%d", prefix, slot))
					delete(held, slot)
				case 4, 5:
					for slot, g := range held {
						if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != dlock.OK {
							t.Fatalf("step %d: release: %v %v", step, r, err)
						}
						delete(held, slot)
						break
					}
				default:
					g, err := store.TryAcquire(ctx, dlock.Request{Name: "a", Slots: n, Token: fmt.Sprintf("t%d", step), TTL: time.Second})
					switch {
					case err == nil:
						if _, taken := held[g.Slot]; taken || g.Slot >= n {
							t.Fatalf("step %d: slot %d was granted twice, or is not one of %d", step, g.Slot, n)
						}
						held[g.Slot] = g
					case !errors.Is(err, dlock.ErrNotAcquired):
						t.Fatal(err)
					case len(held) < n:
						t.Fatalf("step %d: full, but only %d of %d are held: %v", step, len(held), n, err)
					}
				}
			}
		})
	}
}

// With many slots, the loss of the index is made good by the next acquires.
func TestIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	client, store := shared(t, "rebuild:")
	ctx := context.Background()
	const n = 300
	acquire := func(token string) (dlock.Grant, error) {
		return store.TryAcquire(ctx, dlock.Request{Name: "a", Slots: n, Token: token, TTL: quarantineTTL})
	}
	held := map[int]dlock.Grant{}
	for i := range n {
		g, err := acquire(fmt.Sprint("t", i))
		if err != nil {
			t.Fatal(err)
		}
		held[g.Slot] = g
	}
	for _, slot := range []int{7, 150, 299} {
		if _, err := store.Release(ctx, held[slot]); err != nil {
			t.Fatal(err)
		}
		delete(held, slot)
	}
	client.Del(ctx, "rebuild:a:slot:index")
	for i := range 3 {
		g, err := acquire(fmt.Sprint("again", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, taken := held[g.Slot]; taken {
			t.Fatalf("slot %d granted twice", g.Slot)
		}
		held[g.Slot] = g
	}
	if _, err := acquire("toomany"); !errors.Is(err, dlock.ErrNotAcquired) {
		t.Errorf("err %v, want full", err)
	}
	if size := client.ZCard(ctx, "rebuild:a:slot:index").Val(); size != n {
		t.Errorf("the index has %d of %d slots", size, n)
	}
}

// What is not ours at one of our keys is an error of the store that names the key, and neither a panic nor a "no".
//
// Fails when get does not look at the type.
func TestForeignValuesAreErrorsThatNameTheKey(t *testing.T) {
	t.Parallel()
	client, store := shared(t, "foreign:")
	ctx := context.Background()
	for i, c := range []struct {
		key   string
		slots int
		put   func(key string)
	}{
		{"%s:slot:0", 1, func(key string) { client.LPush(ctx, key, "x") }},
		{"%s:slot:1", 2, func(key string) { client.HSet(ctx, key, "a", "b") }},
		{"%s", 0, func(key string) { client.SAdd(ctx, key, "x") }},
		{"%s:slot:state", 1, func(key string) { client.Set(ctx, key, "x", 0) }},
		{"%s:slot:mutex", 0, func(key string) { client.LPush(ctx, key, "x") }},
	} {
		name := fmt.Sprintf("name%d", i)
		key := "foreign:" + fmt.Sprintf(c.key, name)
		c.put(key)
		var err error
		for j := range 2 {
			_, err = store.TryAcquire(ctx, dlock.Request{Name: name, Slots: c.slots, Token: fmt.Sprint("t", j), TTL: time.Second})
		}
		if err == nil || errors.Is(err, dlock.ErrNotAcquired) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v; want an error of the store that names the key", key, err)
		}
	}
	for _, key := range []string{"%s:slot:index", "%s:slot:tokens"} {
		name := "other" + key[len("%s:slot:"):]
		client.Set(ctx, "foreign:"+fmt.Sprintf(key, name), "x", 0)
		_, err := store.TryAcquire(ctx, dlock.Request{Name: name, Slots: 3, Token: "t", TTL: time.Second})
		if err == nil || errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("%s: %v; want an error of the store", name, err)
		}
	}
	// A string that is no lease is somebody's lock all the same: it is not taken, and nobody is named.
	client.Set(ctx, "foreign:text:slot:0", "hello", time.Minute)
	if _, err := store.TryAcquire(ctx, dlock.Request{Name: "text", Slots: 1, Token: "t", TTL: time.Second}); err == nil {
		t.Error("took a key that holds something else")
	}
}

// A store in the other form of the keys would not see the leases of the first: it is refused.
func TestTheOtherFormOfTheKeysIsRefused(t *testing.T) {
	t.Parallel()
	for _, forms := range [][2]redislock.KeyForm{{redislock.Plain, redislock.Tagged}, {redislock.Tagged, redislock.Plain}} {
		prefix := fmt.Sprintf("form%d:", forms[0])
		client, _ := shared(t, "any:")
		first := open(t, client, redislock.Options{Prefix: prefix, Keys: forms[0]})
		second := open(t, client, redislock.Options{Prefix: prefix, Keys: forms[1]})
		ctx := context.Background()
		if _, err := first.TryAcquire(ctx, dlock.Request{Name: "a", Slots: 2, Token: "t", TTL: time.Second}); err != nil {
			t.Fatal(err)
		}
		_, err := second.TryAcquire(ctx, dlock.Request{Name: "a", Slots: 2, Token: "u", TTL: time.Second})
		if err == nil || errors.Is(err, dlock.ErrNotAcquired) || !strings.Contains(err.Error(), "Options.Keys") {
			t.Errorf("err %v, want one that says to set Options.Keys", err)
		}
	}
}

// A fence outlasts the loss of everything that Redis knows of a name.
func TestI4FencesGrowAcrossLossOfTheState(t *testing.T) {
	t.Parallel()
	client, store := shared(t, "fence:")
	ctx := context.Background()
	var last dlock.Fence
	for i := range 20 {
		g, err := store.TryAcquire(ctx, dlock.Request{Name: "a", Slots: 1, Token: fmt.Sprint("t", i), TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if g.Fence <= last {
			t.Fatalf("fence %d after %d", g.Fence, last)
		}
		last = g.Fence
		for _, key := range client.Keys(ctx, "fence:a*").Val() {
			client.Del(ctx, key)
		}
	}
}
