package redisregistry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/proof/redistest"
)

// batch returns one row of each kind, and more runs than a store keeps.
func batch() cluster.Batch {
	h := dlock.Holder{Host: "web-1", PID: 4711, ID: "gw6htyep"}
	b := cluster.Batch{
		Host: &cluster.Heartbeat{Holder: h, UpFor: time.Hour, TTL: time.Minute, Detail: []byte(`{}`)},
		Leases: []cluster.LeaseRecord{{Name: "orders", Holder: h, Grant: "g", HeldFor: time.Hour,
			ExpiresIn: time.Hour}},
		Events: []cluster.Event{{ID: "e", Kind: cluster.EventAcquired, Name: "orders", Holder: h}},
	}
	for i := range cluster.RunsPerTimer + 10 {
		b.Runs = append(b.Runs, cluster.Run{ID: fmt.Sprint(i), Timer: "orders", Holder: h,
			EndedAgo: time.Duration(i) * time.Hour})
	}
	return b
}

// counted returns a batch whose runs are counted, provided that batch was written before.
func counted(number int64) cluster.Batch {
	b := batch()
	b.Number, b.Host.UpFor = number, 2*time.Hour
	last := cluster.TimerRecord{Last: b.Runs[0], Outcomes: "o", SucceededAgo: new(time.Duration)}
	b.Timers = []cluster.TimerRecord{last}
	b.Buckets = []cluster.Bucket{{Timer: "orders", Interval: cluster.CoarseBucket, Ago: 40 * 24 * time.Hour, Runs: 60}}
	return b
}

// calls makes every call once, so it needs every permission, and returns the first error.
func calls(s *redisregistry.Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, call := range every(s) {
		if err := call.make(ctx); err != nil {
			return err
		}
	}
	return nil
}

type call struct {
	name string
	make func(context.Context) error
}

func every(s *redisregistry.Store) []call {
	return []call{
		{"Write", func(ctx context.Context) error { _, err := s.Write(ctx, batch()); return err }},
		{"Read", func(ctx context.Context) error {
			_, err := s.Read(ctx, cluster.Query{Events: 10, Runs: 10})
			return err
		}},
		{"Buckets", func(ctx context.Context) error { _, err := s.Buckets(ctx, "orders"); return err }},
		{"Runs", func(ctx context.Context) error { _, err := s.Runs(ctx, "orders"); return err }},
		{"Sweep", func(ctx context.Context) error {
			_, err := s.Sweep(ctx, cluster.Retention{Leases: time.Hour, Events: time.Hour, Runs: time.Hour}, 10)
			return err
		}},
	}
}

// The registry needs every permission that docs/redis.md lists. Without one of them, the error says
// that a permission is missing. (The conformance suite connects as this user and so shows that the
// list is complete.)
//
// Fails when the documentation grants an unnecessary permission.
func TestLeastPrivilegeAsDocumented(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c, admin := client(t, server.Addr()), server.Client()
	for _, right := range rights {
		set := func(rule string) {
			t.Helper()
			if err := admin.Do(t.Context(), "ACL", "SETUSER", app, rule).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set("-" + strings.TrimPrefix(right, "+"))
		if err := admin.ScriptFlush(t.Context()).Err(); err != nil { // otherwise EVAL would not be needed
			t.Fatal(err)
		}
		s := open(t, c, unique())
		err := calls(s)
		if right == "+del" && err == nil { // DEL is needed only after a key was evicted
			if err := admin.Del(t.Context(), s.Keys()[0]).Err(); err != nil {
				t.Fatal(err)
			}
			err = calls(s)
		}
		if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "ACL") ||
			strings.Contains(err.Error(), canary) {
			t.Errorf("without %s: %v", right, err)
		}
		set(right)
	}
	if err := calls(open(t, c, unique())); err != nil {
		t.Errorf("with all of them: %v", err)
	}
	if err := calls(open(t, c, "other:")); !errors.Is(err, dlock.ErrSetup) {
		t.Errorf("with a prefix that the user may not use: %v", err)
	}
}

// If a key holds another type, every call that needs this key returns a setup error.
//
// Fails when WRONGTYPE is returned as a transient error.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for i := range open(t, server.Client(), "").Keys() {
		s := open(t, server.Client(), unique())
		if err := server.Client().Set(t.Context(), s.Keys()[i], "x", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if err := calls(s); !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "another Prefix") {
			t.Errorf("%s: %v", s.Keys()[i], err)
		}
	}
}

// A server that is out of memory, a replica, and a server that has lost the scripts cause transient
// errors, which do not match ErrSetup. Afterwards all calls work again.
func TestPassingErrors(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	s := open(t, client(t, server.Addr()), unique())
	admin := server.Client()
	for what, set := range map[string][2][]any{
		"out of memory": {{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "SET", "maxmemory", "0"}},
		"a replica":     {{"REPLICAOF", "127.0.0.1", "1"}, {"REPLICAOF", "NO", "ONE"}},
		"busy": {{"CONFIG", "SET", "min-replicas-to-write", "1"},
			{"CONFIG", "SET", "min-replicas-to-write", "0"}},
	} {
		if err := admin.Do(t.Context(), set[0]...).Err(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := s.Write(ctx, batch()); err == nil || errors.Is(err, dlock.ErrSetup) {
			t.Errorf("%s: %v", what, err)
		}
		if err := admin.Do(t.Context(), set[1]...).Err(); err != nil {
			t.Fatal(err)
		}
		if err := calls(s); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
	}
	if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := calls(s); err != nil {
		t.Errorf("after SCRIPT FLUSH: %v", err)
	}
}

// Invalid clients and prefixes are rejected before the server is called.
func TestFaultsOfTheOptions(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	ring := redis.NewRing(&redis.RingOptions{})
	defer c.Close()
	defer ring.Close()
	var none *redis.Client
	for want, s := range map[string]*redisregistry.Store{
		"no client":      redisregistry.New(nil, redisregistry.Options{}),
		"no client:":     redisregistry.New(none, redisregistry.Options{}),
		"*redis.Ring":    redisregistry.New(ring, redisregistry.Options{}),
		"control":        redisregistry.New(c, redisregistry.Options{Prefix: "a\nb"}),
		"brace":          redisregistry.New(c, redisregistry.Options{Prefix: "}"}),
		`":slot:"`:       redisregistry.New(c, redisregistry.Options{Prefix: "a:slot:"}),
		"empty *Store":   {},
		"empty *Store: ": nil,
	} {
		want = strings.TrimSpace(want)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check: %v, want %q", err, want)
		}
		for _, call := range every(s) {
			if err := call.make(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", call.name, err, want)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A batch large enough to block the server for long is rejected.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(), unique())
	b := cluster.Batch{Events: make([]cluster.Event, cluster.MaxBatch+1)}
	if _, err := s.Write(t.Context(), b); err == nil || !strings.Contains(err.Error(), "at most 500") {
		t.Error(err)
	}
}

// Neither the error of an unreachable server nor that of a refused login contains a password.
func TestPasswordIsNotTold(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Password: "right"})
	for addr, want := range map[string]string{server.Addr(): "check user, password and ACL",
		"127.0.0.1:1": "connection refused"} {
		c := redis.NewClient(&redis.Options{Addr: addr, Password: canary})
		defer c.Close()
		s := open(t, c, "")
		err := calls(s)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v, want %q in it", addr, err, want)
		}
		if errors.Is(err, dlock.ErrSetup) != (addr == server.Addr()) {
			t.Errorf("%s: %v", addr, err)
		}
		if text := fmt.Sprintf("%v %s", s, s); strings.Contains(text, canary) {
			t.Error(text)
		}
	}
}
