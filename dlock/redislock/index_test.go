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
	"github.com/tickslot/tickslot/proof/redistest"
)

func shared(t testing.TB, prefix string) (*redis.Client, *redislock.Store) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.Shared(t).Addr()})
	t.Cleanup(func() { client.Close() })
	store := open(t, client, redislock.Options{Prefix: prefix})
	awake(t, store)
	return client, store
}

// lasting returns a store with long leases on a server that has just started. Before that, a store
// with a short quarantine makes a first grant of the name, which marks the server as known.
func lasting(t testing.TB, prefix, name string, slots int) (*redis.Client, *redislock.Store) {
	t.Helper()
	client, short := shared(t, prefix)
	g, err := short.TryAcquire(context.Background(), driver.Request{Name: name, Slots: slots, Token: "first",
		TTL: quarantineTTL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := short.Release(context.Background(), g); err != nil {
		t.Fatal(err)
	}
	return client, open(t, client, redislock.Options{Prefix: prefix, QuarantineTTL: time.Hour})
}

// The index is a hint. Whatever it contains, an acquire finds a free slot if there is one, and
// never grants a slot twice.
//
// Fails when the SET is made without NX; when candidate trusts an index that says full; when it
// removes slots beyond its own N.
func TestIndexIsOnlyAHint(t *testing.T) {
	t.Parallel()
	for round := range 30 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			prefix := unique("index")
			random := rand.New(rand.NewPCG(1, uint64(round)))
			ctx := context.Background()
			n := 1 + random.IntN(8) // with up to eight slots, the answer is exact
			client, store := lasting(t, prefix, "a", n)
			held := map[int]driver.Grant{}
			index := prefix + "a:slot:index"
			for step := range 200 {
				switch random.IntN(10) {
				case 0:
					client.Del(ctx, index)
				case 1: // delete part of it
					client.ZRem(ctx, index, random.IntN(n))
				case 2: // say free for a held slot, or the reverse
					client.ZAdd(ctx, index, redis.Z{Score: float64(random.IntN(2)) * 4e12, Member: random.IntN(n)})
				case 3: // delete a key by hand
					slot := random.IntN(n)
					client.Del(ctx, fmt.Sprintf("%sa:slot:%d", prefix, slot))
					delete(held, slot)
				case 4, 5:
					for slot, g := range held {
						if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
							t.Fatalf("step %d: release: %v %v", step, r, err)
						}
						delete(held, slot)
						break
					}
				default:
					g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: n, Token: fmt.Sprintf("t%d", step),
						TTL: time.Hour})
					switch {
					case err == nil:
						if _, taken := held[g.Slot]; taken || g.Slot >= n {
							t.Fatalf("step %d: slot %d was granted twice, or is not one of %d", step, g.Slot, n)
						}
						held[g.Slot] = g
					case !errors.Is(err, driver.ErrNotAcquired):
						t.Fatal(err)
					case len(held) < n:
						t.Fatalf("step %d: full, but only %d of %d are held: %v", step, len(held), n, err)
					}
				}
			}
		})
	}
}

// A slot that is missing from the index is found. This holds even if the index has as many members
// as there are slots, because hosts with a larger number of slots added some.
//
// Fails when a full count of index members stands for all slots.
func TestSlotThatTheIndexLacksIsFound(t *testing.T) {
	t.Parallel()
	for i, held := range [][]int{{}, {3}, {1, 4}, {4}, {1, 2, 3, 4}} { // held by hosts with five slots
		prefix := unique("lacks")
		client, store := lasting(t, prefix, "a", 5)
		index := prefix + "a:slot:index"
		client.Del(t.Context(), index)
		for slot := 1; slot < 5; slot++ {
			client.ZAdd(t.Context(), index, redis.Z{Score: float64(slot), Member: slot})
		}
		for _, slot := range held {
			client.Set(t.Context(), fmt.Sprintf("%sa:slot:%d", prefix, slot), `{"token":"other"}`, time.Minute)
			client.ZAdd(t.Context(), index, redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()),
				Member: slot})
		}
		if g, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "t",
			TTL: time.Minute}); err != nil || g.Slot != 0 {
			t.Errorf("%d: slot 0 is free, and others hold %v: %+v, %v", i, held, g, err)
		}
		if _, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: 1, Token: "u",
			TTL: time.Minute}); !isReason(err, driver.ReasonFull) {
			t.Errorf("%d: slot 0 is held: %v", i, err)
		}
	}
}

// With many slots, the next acquires rebuild a lost index.
func TestIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	const n = 300
	prefix := unique("rebuild")
	client, store := lasting(t, prefix, "a", n)
	ctx := context.Background()
	acquire := func(token string) (driver.Grant, error) {
		return store.TryAcquire(ctx, driver.Request{Name: "a", Slots: n, Token: token, TTL: time.Hour})
	}
	held := map[int]driver.Grant{}
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
	client.Del(ctx, prefix+"a:slot:index")
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
	if _, err := acquire("toomany"); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("err %v, want full", err)
	}
	if size := client.ZCard(ctx, prefix+"a:slot:index").Val(); size != n {
		t.Errorf("the index has %d of %d slots", size, n)
	}
}

// A store with the other form of the keys is refused, because it would not see the leases of the
// first.
func TestTheOtherFormOfTheKeysIsRefused(t *testing.T) {
	t.Parallel()
	for _, forms := range [][2]redislock.KeyForm{{redislock.KeysPlain, redislock.KeysTagged},
		{redislock.KeysTagged, redislock.KeysPlain}} {
		prefix := unique("form")
		client, _ := shared(t, unique("any"))
		first := open(t, client, redislock.Options{Prefix: prefix, Keys: forms[0]})
		second := open(t, client, redislock.Options{Prefix: prefix, Keys: forms[1]})
		ctx := context.Background()
		untilGranted(t, first, driver.Request{Name: "a", Slots: 2, Token: "t", TTL: quarantineTTL})
		_, err := second.TryAcquire(ctx, driver.Request{Name: "a", Slots: 2, Token: "u", TTL: quarantineTTL})
		if err == nil || errors.Is(err, driver.ErrNotAcquired) || !strings.Contains(err.Error(), "Options.Keys") {
			t.Errorf("err %v, want one that says to set Options.Keys", err)
		}
	}
}

// Names in braces are ordinary names, also beside names without braces and without a prefix.
//
// Fails when any key with braces counts as the other form.
func TestNamesInBracesAreNotTheOtherForm(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.New(t).Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	awake(t, store)
	for i, name := range []string{"{job}", "job", "{{job}}"} {
		for _, slots := range []int{0, 2} {
			if _, err := store.TryAcquire(context.Background(), driver.Request{Name: name, Slots: slots,
				Token: fmt.Sprint("t", i), TTL: quarantineTTL}); err != nil {
				t.Errorf("%s with %d slots: %v", name, slots, err)
			}
		}
	}
}

// A partly lost index is rebuilt in time that grows with N, not with its square, which would block
// the server. The limit is far above the former and far below the latter.
//
// Fails when candidate restarts its search for gaps at 0 each time.
func TestIndexWithManyGaps(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.New(t).Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{Prefix: "gaps:"})
	awake(t, store)
	ctx := context.Background()
	const n, lost = 6000, 3000
	pipe := client.Pipeline() // held slots, created without an acquire for each
	for i := range n {
		pipe.Set(ctx, fmt.Sprintf("gaps:a:slot:%d", i), `{"token":"other"}`, time.Minute)
		if i >= lost {
			pipe.ZAdd(ctx, "gaps:a:slot:index", redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()),
				Member: i})
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: n, Token: "t", TTL: quarantineTTL})
	if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != driver.ReasonFull {
		t.Errorf("err %v, want full", err)
	}
	if size := client.ZCard(ctx, "gaps:a:slot:index").Val(); size != n {
		t.Errorf("the index has %d of %d slots", size, n)
	}
	// This counts commands within the script, which do not depend on the machine. Quadratic growth
	// would need four and a half million.
	var calls int
	for _, line := range strings.Split(client.Info(ctx, "commandstats").Val(), "\r\n") {
		var c int
		if _, err := fmt.Sscanf(line, "cmdstat_zscore:calls=%d,", &c); err == nil {
			calls = c
		}
	}
	if calls == 0 || calls > 3*n {
		t.Errorf("%d ZSCOREs for %d slots", calls, n)
	}
}
