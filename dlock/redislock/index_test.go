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
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.Shared(t).Addr()})
	t.Cleanup(func() { client.Close() })
	store := open(t, client, redislock.Options{Prefix: prefix})
	awake(t, store)
	return client, store
}

// lasting returns a store whose leases may be long, on a server that has just started: the first
// grant of a name by a store with a short quarantine notes the server as known.
func lasting(t testing.TB, prefix, name string, slots int) (*redis.Client, *redislock.Store) {
	t.Helper()
	client, short := shared(t, prefix)
	g, err := short.TryAcquire(context.Background(), dlock.Request{Name: name, Slots: slots, Token: "first", TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := short.Release(context.Background(), g); err != nil {
		t.Fatal(err)
	}
	return client, open(t, client, redislock.Options{Prefix: prefix, QuarantineTTL: time.Hour})
}

// The index is a hint. Whatever happens to it, an acquire finds a free slot if there is one and
// never grants one twice.
//
// Fails when the SET is done without NX; when candidate believes an index that says full; when it
// removes slots beyond its own N.
func TestIndexIsOnlyAHint(t *testing.T) {
	t.Parallel()
	for round := range 30 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			prefix := unique("index")
			random := rand.New(rand.NewPCG(1, uint64(round)))
			ctx := context.Background()
			n := 1 + random.IntN(8) // up to eight slots the answer is exact
			client, store := lasting(t, prefix, "a", n)
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
						if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != dlock.GrantOK {
							t.Fatalf("step %d: release: %v %v", step, r, err)
						}
						delete(held, slot)
						break
					}
				default:
					g, err := store.TryAcquire(ctx, dlock.Request{Name: "a", Slots: n, Token: fmt.Sprintf("t%d", step), TTL: time.Hour})
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

// A slot that the index lacks is found although the index has as many others, which hosts with a
// larger number of slots have used.
//
// Fails when as many members of the index as there are slots are taken for all of them.
func TestSlotThatTheIndexLacksIsFound(t *testing.T) {
	t.Parallel()
	for i, held := range [][]int{{}, {3}, {1, 4}, {4}, {1, 2, 3, 4}} { // by those with five slots, while we have one
		prefix := unique("lacks")
		client, store := lasting(t, prefix, "a", 5)
		index := prefix + "a:slot:index"
		client.Del(t.Context(), index)
		for slot := 1; slot < 5; slot++ {
			client.ZAdd(t.Context(), index, redis.Z{Score: float64(slot), Member: slot})
		}
		for _, slot := range held {
			client.Set(t.Context(), fmt.Sprintf("%sa:slot:%d", prefix, slot), `{"token":"other"}`, time.Minute)
			client.ZAdd(t.Context(), index, redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: slot})
		}
		if g, err := store.TryAcquire(t.Context(), dlock.Request{Name: "a", Slots: 1, Token: "t", TTL: time.Minute}); err != nil || g.Slot != 0 {
			t.Errorf("%d: slot 0 is free, and others hold %v: %+v, %v", i, held, g, err)
		}
		if _, err := store.TryAcquire(t.Context(), dlock.Request{Name: "a", Slots: 1, Token: "u", TTL: time.Minute}); !isReason(err, dlock.ReasonFull) {
			t.Errorf("%d: slot 0 is held: %v", i, err)
		}
	}
}

// With many slots, the loss of the index is made good by the next acquires.
func TestIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	const n = 300
	prefix := unique("rebuild")
	client, store := lasting(t, prefix, "a", n)
	ctx := context.Background()
	acquire := func(token string) (dlock.Grant, error) {
		return store.TryAcquire(ctx, dlock.Request{Name: "a", Slots: n, Token: token, TTL: time.Hour})
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
	if _, err := acquire("toomany"); !errors.Is(err, dlock.ErrNotAcquired) {
		t.Errorf("err %v, want full", err)
	}
	if size := client.ZCard(ctx, prefix+"a:slot:index").Val(); size != n {
		t.Errorf("the index has %d of %d slots", size, n)
	}
}

// What is not ours at one of our keys is an error of the store that names the key, and neither a
// panic nor a "no".
//
// Fails when get does not look at the type.
func TestForeignValuesAreErrorsThatNameTheKey(t *testing.T) {
	t.Parallel()
	prefix := unique("foreign")
	client, store := shared(t, prefix)
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
		{"%s:slot:state", 1, func(key string) { client.HSet(ctx, key, "limit", "many") }},
		{"%s:slot:state", 1, func(key string) { client.HSet(ctx, key, "limit", "1.5") }},
	} {
		name := fmt.Sprintf("name%d", i)
		key := prefix + fmt.Sprintf(c.key, name)
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
		client.Set(ctx, prefix+fmt.Sprintf(key, name), "x", 0)
		_, err := store.TryAcquire(ctx, dlock.Request{Name: name, Slots: 3, Token: "t", TTL: time.Second})
		if err == nil || errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("%s: %v; want an error of the store", name, err)
		}
	}
	// A string that is no lease is somebody's lock all the same: it is not taken, and nobody is
	// named.
	client.Set(ctx, prefix+"text:slot:0", "hello", time.Minute)
	if _, err := store.TryAcquire(ctx, dlock.Request{Name: "text", Slots: 1, Token: "t", TTL: time.Second}); err == nil {
		t.Error("took a key that holds something else")
	}
}

// A store in the other form of the keys would not see the leases of the first: it is refused.
func TestTheOtherFormOfTheKeysIsRefused(t *testing.T) {
	t.Parallel()
	for _, forms := range [][2]redislock.KeyForm{{redislock.KeysPlain, redislock.KeysTagged}, {redislock.KeysTagged, redislock.KeysPlain}} {
		prefix := unique("form")
		client, _ := shared(t, unique("any"))
		first := open(t, client, redislock.Options{Prefix: prefix, Keys: forms[0]})
		second := open(t, client, redislock.Options{Prefix: prefix, Keys: forms[1]})
		ctx := context.Background()
		untilGranted(t, first, dlock.Request{Name: "a", Slots: 2, Token: "t", TTL: time.Second})
		_, err := second.TryAcquire(ctx, dlock.Request{Name: "a", Slots: 2, Token: "u", TTL: time.Second})
		if err == nil || errors.Is(err, dlock.ErrNotAcquired) || !strings.Contains(err.Error(), "Options.Keys") {
			t.Errorf("err %v, want one that says to set Options.Keys", err)
		}
	}
}

// Names in braces are names like others, also beside those without, and without a prefix.
//
// Fails when the existence of a key is taken for the other form.
func TestNamesInBracesAreNotTheOtherForm(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.New(t).Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	awake(t, store)
	for i, name := range []string{"{job}", "job", "{{job}}"} {
		for _, slots := range []int{0, 2} {
			if _, err := store.TryAcquire(context.Background(), dlock.Request{Name: name, Slots: slots, Token: fmt.Sprint("t", i), TTL: time.Second}); err != nil {
				t.Errorf("%s with %d slots: %v", name, slots, err)
			}
		}
	}
}

// An index of which a part was lost is made good in time that grows with N, not with its square,
// which would stop the server. (The bound is far above the one and far below the other.)
//
// Fails when candidate begins its search for gaps at 0 again and again.
func TestIndexWithManyGaps(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.New(t).Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{Prefix: "gaps:"})
	awake(t, store)
	ctx := context.Background()
	const n, lost = 6000, 3000
	pipe := client.Pipeline() // slots that others hold, without an acquire for each
	for i := range n {
		pipe.Set(ctx, fmt.Sprintf("gaps:a:slot:%d", i), `{"token":"other"}`, time.Minute)
		if i >= lost {
			pipe.ZAdd(ctx, "gaps:a:slot:index", redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: i})
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	if err := client.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := store.TryAcquire(ctx, dlock.Request{Name: "a", Slots: n, Token: "t", TTL: time.Second})
	if no, ok := errors.AsType[*dlock.NotAcquiredError](err); !ok || no.Reason != dlock.ReasonFull {
		t.Errorf("err %v, want full", err)
	}
	if size := client.ZCard(ctx, "gaps:a:slot:index").Val(); size != n {
		t.Errorf("the index has %d of %d slots", size, n)
	}
	// Commands within the script, which do not depend on the machine: a square would be four and a
	// half million.
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

// What others wrote into our keys neither stops the server, nor grants a slot twice, nor hides one
// for longer than a lease.
//
// Fails when candidate takes members of the index as they come, when the state's numbers are
// believed.
func TestNonsenseInTheKeysIsSurvived(t *testing.T) {
	t.Parallel()
	for i, spoil := range []func(ctx context.Context, client *redis.Client, base string){
		func(ctx context.Context, c *redis.Client, b string) {
			c.ZAdd(ctx, b+"index", redis.Z{Score: 2000000, Member: "5000000"})
		},
		func(ctx context.Context, c *redis.Client, b string) {
			c.ZAdd(ctx, b+"index", redis.Z{Score: 0, Member: "text"})
		},
		func(ctx context.Context, c *redis.Client, b string) {
			c.ZAdd(ctx, b+"index", redis.Z{Score: 0, Member: "-1"}, redis.Z{Score: 1, Member: "1.5"}, redis.Z{Score: 1, Member: "0x1"})
		},
		func(ctx context.Context, c *redis.Client, b string) {
			c.ZAdd(ctx, b+"index", redis.Z{Score: 4e12, Member: "zz"})
		},
		func(ctx context.Context, c *redis.Client, b string) {
			c.ZAdd(ctx, b+"tokens", redis.Z{Score: 77, Member: "t1"}, redis.Z{Score: -3, Member: "t2"})
		},
		func(ctx context.Context, c *redis.Client, b string) {
			c.HSet(ctx, b+"state", "fence", "1e400", "tick", "nan", "starts", "-7", "slots", "x", "since", "1e300")
		},
		func(ctx context.Context, c *redis.Client, b string) { c.HSet(ctx, b+"state", "fence", "9e18") },
		func(ctx context.Context, c *redis.Client, b string) {
			c.HSet(ctx, b+"state", "slots", "3 5", "success", "", "version", "-5")
		},
		func(ctx context.Context, c *redis.Client, b string) {
			c.HSet(ctx, b+"state", "fence", "", "since", "5 5", "kept", "")
		},
		func(ctx context.Context, c *redis.Client, b string) {
			c.HSet(ctx, b+"state", "fence", "9"+strings.Repeat("0", 400), "since", "9"+strings.Repeat("0", 400), "kept", "9"+strings.Repeat("0", 400))
		},
		func(ctx context.Context, c *redis.Client, b string) {
			c.ZAdd(ctx, b+"index", redis.Z{Score: 2e12, Member: "007"}, redis.Z{Score: 1e6, Member: "0099"})
		},
	} {
		prefix := unique("nonsense")
		client, store := lasting(t, prefix, "a", 3)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		spoil(ctx, client, prefix+"a:slot:")
		slots := map[int]bool{}
		var last dlock.Fence
		for j := range 5 {
			g, err := store.TryAcquire(ctx, dlock.Request{Name: "a", Slots: 3, Token: fmt.Sprint("t", j), TTL: time.Minute})
			switch {
			case err == nil && (slots[g.Slot] || g.Fence <= last):
				t.Errorf("%d: slot %d with fence %d after %v, %d", i, g.Slot, g.Fence, slots, last)
			case err == nil:
				slots[g.Slot], last = true, g.Fence
			case !errors.Is(err, dlock.ErrNotAcquired):
				t.Errorf("%d: %v", i, err)
			}
		}
		if len(slots) != 3 {
			t.Errorf("%d: %d of 3 slots granted", i, len(slots))
		}
	}
}

// A mutex that its state calls released is not asked whose it is before it is taken. Whoever has it
// all the same, because the state was written by hand, keeps it until it ends.
//
// Fails when the SET is done without NX; when the attempt goes on as that for a semaphore does
// after the SET was refused.
func TestStateOfAMutexIsOnlyAHint(t *testing.T) {
	t.Parallel()
	prefix := unique("released")
	client, store := shared(t, prefix)
	ctx := t.Context()
	request := func(token string) dlock.Request {
		return dlock.Request{Name: "a", Token: token, TTL: time.Second, Holder: dlock.Holder{Host: "h-" + token}}
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
	if no, ok := errors.AsType[*dlock.NotAcquiredError](err); !ok || no.Reason != dlock.ReasonFull || no.Holder.Host != "h-one" || no.ExpiresIn <= 0 || no.ExpiresIn > time.Second {
		t.Errorf("%v (%+v), want that the first has it", err, no)
	}
	if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != dlock.GrantOK {
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
	if _, err := store.TryAcquire(ctx, request("three")); !errors.Is(err, dlock.ErrFault) || !strings.Contains(err.Error(), prefix+"a does") {
		t.Errorf("%v, want an error that names the key", err)
	}
}

// What seldom changes is written again when it does, also while no end is put off: how many slots
// are declared, and which run of the server granted last. And the ends are put off every quarter of
// an hour. A name is forgotten when it was not used for about an hour, one with ticks after forty
// days.
//
// Fails when a grant writes only fence and tick; when it puts off the end of the state alone; when
// it puts off ends with every grant; when it waits for a time at which the end was put off that is
// yet to come; when a grant without a tick shortens the memory of the ticks.
func TestWhatSeldomChangesIsWrittenWhenItDoes(t *testing.T) {
	t.Parallel()
	prefix := unique("seldom")
	client, store := shared(t, prefix)
	ctx := t.Context()
	grant := func(name string, slots int, tick *dlock.Tick) dlock.Grant {
		t.Helper()
		g, err := store.TryAcquire(ctx, dlock.Request{Name: name, Slots: slots, Token: "t", TTL: time.Second, Tick: tick})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	release := func(g dlock.Grant) dlock.Grant {
		t.Helper()
		g.Succeeded = true
		if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != dlock.GrantOK {
			t.Fatal(r, err)
		}
		return g
	}
	const short, lifetime, longer = 10 * time.Minute, time.Hour, 39 * 24 * time.Hour
	for name, memory := range map[string]struct{ least, most time.Duration }{"brief": {lifetime - time.Minute, lifetime}, "ticks": {longer, longer + 2*24*time.Hour}} {
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
		if name == "ticks" { // its first
			release(grant(name, 3, &dlock.Tick{At: time.Now(), Max: 1}))
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
		for _, kept := range []time.Duration{-16 * time.Minute, 25 * time.Hour} { // the latter by a clock that was ahead
			client.HSet(ctx, state, "kept", time.Now().Add(kept).UnixMilli())
			expire()
			release(grant(name, 4, nil))
			putOff(fmt.Sprintf("with a grant, last put off %v from now", kept))
			g := grant(name, 4, nil)
			client.HSet(ctx, state, "kept", time.Now().Add(kept).UnixMilli())
			expire()
			if r, err := store.Extend(ctx, time.Second, g); err != nil || r[0].Outcome != dlock.GrantOK {
				t.Error(r, err)
			}
			putOff(fmt.Sprintf("with a heartbeat, last put off %v from now", kept))
			release(g)
		}
		g := grant(name, 4, nil) // which nobody releases
		if ttl := client.PTTL(ctx, prefix+name+":slot:tokens").Val(); ttl < lifetime-time.Minute || ttl > lifetime {
			t.Errorf("the token of a lease that is held is remembered for %v", ttl)
		}
		release(g)
		if ttl := client.PTTL(ctx, prefix+name+":slot:tokens").Val(); ttl != -2 { // there is none: all are released
			t.Errorf("the tokens end in %v", ttl)
		}
		client.HDel(ctx, state, "run")
		release(grant(name, 4, nil))
		if now := client.HGet(ctx, state, "run").Val(); now == "" || now != run {
			t.Errorf("the run is %q, and was %q", now, run)
		}
	}
	// A release that is the first to note a success does not shorten the memory of the ticks
	// either.
	client.HDel(ctx, prefix+"ticks:slot:state", "success")
	release(grant("ticks", 4, nil))
	if ttl := client.PTTL(ctx, prefix+"ticks:slot:state").Val(); ttl < longer {
		t.Errorf("after a success the ticks are remembered for %v", ttl)
	}
}

// Whatever was deleted by hand, no key is made that stays for ever, but the one for all names with
// the prefix, and an attempt that is repeated finds its grant.
//
// Fails when acquire.lua gives no end to the tokens, or to an index that is new, or that an attempt
// makes which finds its grant or a slot that is taken; when release.lua gives none to a state; when
// a mutex whose state does not say that it was released is not looked at.
func TestEveryKeyHasAnEnd(t *testing.T) {
	t.Parallel()
	prefix := unique("ends")
	client, _ := shared(t, prefix)
	store := open(t, client, redislock.Options{Prefix: prefix, Embedded: true}) // its leases may be long, also where no run is known any more
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
	grant := func(name string, slots int, token string) dlock.Grant {
		t.Helper()
		g, err := store.TryAcquire(ctx, dlock.Request{Name: name, Slots: slots, Token: token, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	release := func(g dlock.Grant) {
		t.Helper()
		g.Succeeded = true
		if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != dlock.GrantOK {
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

// A fence outlasts the loss of everything that Redis knows of a name.
func TestI4FencesGrowAcrossLossOfTheState(t *testing.T) {
	t.Parallel()
	prefix := unique("fence")
	client, store := shared(t, prefix)
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
		for _, key := range client.Keys(ctx, prefix+"a*").Val() {
			client.Del(ctx, key)
		}
	}
}
