package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
)

// A foreign value at one of our keys causes an error that names the key, neither a panic nor a
// refusal.
//
// Fails when get does not check the type.
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
			_, err = store.TryAcquire(ctx, driver.Request{Name: name, Slots: c.slots, Token: fmt.Sprint("t", j),
				TTL: quarantineTTL})
		}
		if err == nil || errors.Is(err, driver.ErrNotAcquired) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v; want an error of the store that names the key", key, err)
		}
	}
	for _, key := range []string{"%s:slot:index", "%s:slot:tokens"} {
		name := "other" + key[len("%s:slot:"):]
		client.Set(ctx, prefix+fmt.Sprintf(key, name), "x", 0)
		_, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: 3, Token: "t", TTL: quarantineTTL})
		if err == nil || errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%s: %v; want an error of the store", name, err)
		}
	}
	// A string that is not a lease counts as a lock: its slot is not granted, and the refusal names
	// no holder.
	client.Set(ctx, prefix+"text:slot:0", "hello", time.Minute)
	if _, err := store.TryAcquire(ctx, driver.Request{Name: "text", Slots: 1, Token: "t",
		TTL: quarantineTTL}); err == nil {
		t.Error("took a key that holds something else")
	}
}

// Foreign data in our keys do not block the server. They do not let a slot be granted twice or be
// hidden for longer than a lease.
//
// Fails when candidate does not check members of the index, or when numbers of the state are not
// checked.
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
			c.ZAdd(ctx, b+"index", redis.Z{Score: 0, Member: "-1"}, redis.Z{Score: 1, Member: "1.5"},
				redis.Z{Score: 1, Member: "0x1"})
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
			c.HSet(ctx, b+"state", "fence", "9"+strings.Repeat("0", 400), "since", "9"+strings.Repeat("0", 400), "kept",
				"9"+strings.Repeat("0", 400))
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
		var last driver.Fence
		for j := range 5 {
			g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 3, Token: fmt.Sprint("t", j),
				TTL: time.Minute})
			switch {
			case err == nil && (slots[g.Slot] || g.Fence <= last):
				t.Errorf("%d: slot %d with fence %d after %v, %d", i, g.Slot, g.Fence, slots, last)
			case err == nil:
				slots[g.Slot], last = true, g.Fence
			case !errors.Is(err, driver.ErrNotAcquired):
				t.Errorf("%d: %v", i, err)
			}
		}
		if len(slots) != 3 {
			t.Errorf("%d: %d of 3 slots granted", i, len(slots))
		}
	}
}
