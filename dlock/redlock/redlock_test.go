package redlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redlock"
)

var (
	_ driver.Store   = (*redlock.Store)(nil)
	_ driver.Checker = (*redlock.Store)(nil)
)

// quorumServers starts n servers. Leases on them end only by FastForward.
func quorumServers(t *testing.T, n int) []*miniredis.Miniredis {
	t.Helper()
	servers := make([]*miniredis.Miniredis, n)
	for i := range servers {
		servers[i] = miniredis.RunT(t)
	}
	return servers
}

func quorumAddrs(servers []*miniredis.Miniredis) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	return addrs
}

func quorumOf(t *testing.T, addrs ...string) *redlock.Store {
	t.Helper()
	var clients []redis.UniversalClient
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	q := redlock.New(clients, redlock.Options{Prefix: "shop:"})
	if err := q.Check(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func quorumRequest(slots int) driver.Request {
	return driver.Request{Name: "job", Slots: slots, Token: rand.Text(), TTL: 15 * time.Second}
}

func quorumContext(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// quorumTake acquires with a timeout that suits busy machines.
func quorumTake(t *testing.T, q *redlock.Store, req driver.Request) driver.Grant {
	t.Helper()
	g, err := q.TryAcquire(quorumContext(t, 10*time.Second), req)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	if g.Name != req.Name || g.Token != req.Token || g.Slots != req.Slots || g.Slot < 0 ||
		g.Slot >= max(1, req.Slots) || g.Fence != 0 {
		t.Fatalf("asked for %+v, was granted %+v", req, g)
	}
	return g
}

func quorumRefuses(t *testing.T, q *redlock.Store, req driver.Request, want driver.Reason) {
	t.Helper()
	_, err := q.TryAcquire(quorumContext(t, 10*time.Second), req)
	no, ok := errors.AsType[*driver.NotAcquiredError](err)
	if !ok || no.Reason != want || no.Name != req.Name || no.Slots != req.Slots {
		t.Fatalf("got %v, want a refusal with reason %s", err, want)
	}
}

func quorumFails(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, driver.ErrNotAcquired) {
		t.Fatalf("got %v, want an error of the store", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Fatalf("an error of several lines: %q", err)
	}
}

func quorumOutcomes(t *testing.T, results []driver.Result, err error, want ...driver.GrantOutcome) {
	t.Helper()
	if err != nil || len(results) != len(want) {
		t.Fatalf("%d results, error %v, want %d results", len(results), err, len(want))
	}
	for i, r := range results {
		if r.Outcome != want[i] {
			t.Fatalf("result %d is %v (%v), want %v", i, r.Outcome, r.Err, want[i])
		}
	}
}

func quorumRelease(t *testing.T, q *redlock.Store, want driver.GrantOutcome, g driver.Grant) {
	t.Helper()
	results, err := q.Release(quorumContext(t, 10*time.Second), g)
	quorumOutcomes(t, results, err, want)
}

func quorumExtend(t *testing.T, q *redlock.Store, want driver.GrantOutcome, g driver.Grant) {
	t.Helper()
	results, err := q.Extend(quorumContext(t, 10*time.Second), 15*time.Second, g)
	quorumOutcomes(t, results, err, want)
}

// quorumEmpty reports an error if a server has any key.
func quorumEmpty(t *testing.T, servers ...*miniredis.Miniredis) {
	t.Helper()
	for i, s := range servers {
		if keys := s.Keys(); len(keys) > 0 {
			t.Errorf("server %d still has %q", i, keys)
		}
	}
}

func TestIsExclusive(t *testing.T) {
	servers := quorumServers(t, 3)
	a, b := quorumOf(t, quorumAddrs(servers)...), quorumOf(t, quorumAddrs(servers)...)
	for _, slots := range []int{0, 1, 5} {
		var grants []driver.Grant
		seen := make(map[int]bool)
		for range max(1, slots) {
			g := quorumTake(t, a, quorumRequest(slots))
			if seen[g.Slot] {
				t.Fatalf("slot %d was granted twice", g.Slot)
			}
			seen[g.Slot] = true
			grants = append(grants, g)
		}
		quorumRefuses(t, b, quorumRequest(slots), driver.ReasonFull)
		for _, g := range grants {
			quorumRelease(t, b, driver.GrantOK, g) // any host can release by the token
			quorumRelease(t, a, driver.GrantLost, g)
		}
		quorumEmpty(t, servers...)
	}
}

func TestKeysAreReadable(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	at := time.Now().Truncate(time.Second)
	mutex, slot := quorumRequest(0), quorumRequest(1)
	slot.Tick = &driver.Tick{At: at, Max: 1}
	quorumTake(t, q, mutex)
	quorumTake(t, q, slot)
	for _, s := range servers {
		for key, token := range map[string]string{
			"shop:job":        mutex.Token,
			"shop:job:slot:0": slot.Token,
			fmt.Sprintf("shop:job:slot:tick:%d:0", at.UnixMicro()): slot.Token,
		} {
			if got, err := s.Get(key); err != nil || got != token {
				t.Errorf("%s is %q, %v, want the token", key, got, err)
			}
		}
	}
}

func TestLeaseEnds(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	req := quorumRequest(1)
	req.TTL = 1500*time.Millisecond + time.Nanosecond // rounded up; otherwise it would end while it is still trusted
	g := quorumTake(t, q, req)
	for _, s := range servers {
		if ttl := s.TTL("shop:job:slot:0"); ttl < req.TTL {
			t.Errorf("a lease of %v lasts %v", req.TTL, ttl)
		}
		s.FastForward(1500 * time.Millisecond)
	}
	quorumRefuses(t, q, quorumRequest(1), driver.ReasonFull)
	quorumExtend(t, q, driver.GrantOK, g)
	for _, s := range servers {
		s.FastForward(14 * time.Second)
	}
	quorumRefuses(t, q, quorumRequest(1), driver.ReasonFull)
	for _, s := range servers {
		s.FastForward(2 * time.Second)
	}
	quorumExtend(t, q, driver.GrantLost, g)
	quorumEmpty(t, servers...) // an extension does not restore it
	quorumTake(t, q, quorumRequest(1))
	quorumRelease(t, q, driver.GrantLost, g)
	quorumRefuses(t, q, quorumRequest(1), driver.ReasonFull)
}

func TestForeignToken(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	for _, slots := range []int{0, 3} {
		g := quorumTake(t, q, quorumRequest(slots))
		for _, slot := range []int{g.Slot, driver.AnySlot, 7} {
			foreign := g
			foreign.Token, foreign.Slot = rand.Text(), slot
			quorumRelease(t, q, driver.GrantLost, foreign)
			quorumExtend(t, q, driver.GrantLost, foreign)
		}
		quorumExtend(t, q, driver.GrantOK, g)
		g.Slot = driver.AnySlot
		quorumRelease(t, q, driver.GrantOK, g)
		quorumRelease(t, q, driver.GrantLost, g)
	}
}

func TestAnswersBatchesInOrder(t *testing.T) {
	q := quorumOf(t, quorumAddrs(quorumServers(t, 3))...)
	var grants []driver.Grant
	var extended, released []driver.GrantOutcome
	for i := range 60 {
		req := quorumRequest(0)
		req.Name = fmt.Sprintf("job %d", i)
		g := quorumTake(t, q, req)
		if i%3 == 0 {
			g.Token = rand.Text()
			grants, extended, released = append(grants, g), append(extended, driver.GrantLost),
				append(released, driver.GrantLost)
			continue
		}
		// The same grant is passed twice, and the first one releases it.
		grants, extended, released = append(grants, g, g), append(extended, driver.GrantOK, driver.GrantOK),
			append(released, driver.GrantOK, driver.GrantLost)
	}
	results, err := q.Extend(quorumContext(t, 10*time.Second), time.Minute, grants...)
	quorumOutcomes(t, results, err, extended...)
	results, err = q.Release(quorumContext(t, 10*time.Second), grants...)
	quorumOutcomes(t, results, err, released...)
	results, err = q.Release(t.Context())
	quorumOutcomes(t, results, err)
}

func TestSameTokenSameSlot(t *testing.T) {
	servers := quorumServers(t, 3)
	a, b := quorumOf(t, quorumAddrs(servers)...), quorumOf(t, quorumAddrs(servers)...)
	req := quorumRequest(8)
	req.Tick = &driver.Tick{At: time.Now(), Max: 2}
	first := quorumTake(t, a, req)
	servers[1].FlushAll() // one server has lost it, but the token still has a majority
	for _, s := range servers {
		s.FastForward(10 * time.Second)
	}
	for _, q := range []*redlock.Store{a, b} {
		if again := quorumTake(t, q, req); again.Slot != first.Slot {
			t.Fatalf("asked again for slot %d, was granted slot %d", first.Slot, again.Slot)
		}
	}
	for i, s := range servers {
		if keys := s.Keys(); len(keys) != 2 {
			t.Errorf("server %d has %q: want one slot and one tick", i, keys)
		}
		if ttl := s.TTL(fmt.Sprintf("shop:job:slot:%d", first.Slot)); ttl != req.TTL {
			t.Errorf("server %d: asked again, it lasts %v: want %v from then on", i, ttl, req.TTL)
		}
	}
	// Both starts of the tick exist once, not three times.
	second, third := quorumRequest(8), quorumRequest(8)
	second.Tick, third.Tick = req.Tick, req.Tick
	quorumTake(t, b, second)
	quorumRefuses(t, b, third, driver.ReasonTickTaken)
}

func TestSameTokenFromManySides(t *testing.T) {
	servers := quorumServers(t, 3)
	hosts := []*redlock.Store{quorumOf(t, quorumAddrs(servers)...), quorumOf(t, quorumAddrs(servers)...),
		quorumOf(t, quorumAddrs(servers)...)}
	for range 20 {
		req := quorumRequest(4)
		grants := make([]driver.Grant, len(hosts))
		var wg sync.WaitGroup
		for i, q := range hosts {
			wg.Go(func() {
				g, err := q.TryAcquire(quorumContext(t, 10*time.Second), req)
				if err != nil {
					t.Error(err)
				}
				grants[i] = g
			})
		}
		wg.Wait()
		for _, g := range grants {
			if g.Slot != grants[0].Slot || g.Token != grants[0].Token {
				t.Fatalf("one token was granted %+v and %+v", grants[0], g)
			}
		}
		quorumRelease(t, hosts[0], driver.GrantOK, grants[0])
		quorumEmpty(t, servers...)
	}
}

func TestTick(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	now := time.Now()
	ask := func(slots int, at time.Time, most int) driver.Request {
		req := quorumRequest(slots)
		req.Tick = &driver.Tick{At: at, Max: most}
		return req
	}
	for _, slots := range []int{0, 5} {
		for range 2 { // a release does not give a start back
			quorumRelease(t, q, driver.GrantOK, quorumTake(t, q, ask(slots, now, 2)))
		}
		quorumRefuses(t, q, ask(slots, now, 2), driver.ReasonTickTaken)
		quorumRelease(t, q, driver.GrantOK, quorumTake(t, q, ask(slots, now.Add(time.Microsecond), 1))) // another tick
	}
	quorumRefuses(t, q, ask(5, now.Add(time.Minute), 1), driver.ReasonTickAhead)
	quorumRefuses(t, q, ask(5, now.Add(-time.Hour), 1), driver.ReasonTickLate)
	_, err := q.TryAcquire(t.Context(), ask(5, now, 1<<40))
	quorumFails(t, err)
	for _, s := range servers {
		s.FastForward(50 * time.Minute)
	}
	quorumRefuses(t, q, ask(5, now, 2), driver.ReasonTickTaken)
}

// A missed tick that already ran does not run again. The store cannot tell, so it refuses every
// missed tick.
//
// Fails when the claim of a missed tick is treated like a due tick's: three starts are allowed, so
// it would start again.
func TestKnowsNoMissedTick(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	at := time.Now().Add(-time.Minute)
	req := quorumRequest(3)
	req.Tick = &driver.Tick{At: at, Max: 3}
	quorumRelease(t, q, driver.GrantOK, quorumTake(t, q, req))
	missed := quorumRequest(3)
	for _, when := range []time.Time{at, at.Add(time.Second)} {
		missed.Tick = &driver.Tick{At: when, Max: 3, MissedAt: when}
		quorumRefuses(t, q, missed, driver.ReasonTickFirst)
	}
	missed.Tick = &driver.Tick{At: at.Add(-time.Hour), Max: 3, MissedAt: at}
	quorumRefuses(t, q, missed, driver.ReasonTickLate)
	if driver.CapabilitiesOf(q).Controller != nil {
		t.Error("a quorum has no fences to revoke by")
	}
}

func TestGivesTheTickBack(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	holder := quorumTake(t, q, quorumRequest(1))
	req := quorumRequest(1)
	req.Tick = &driver.Tick{At: time.Now(), Max: 1}
	quorumRefuses(t, q, req, driver.ReasonFull)
	next := quorumRequest(1)
	next.Tick = req.Tick
	quorumRefuses(t, q, next, driver.ReasonFull) // not ReasonTickTaken
	quorumRelease(t, q, driver.GrantOK, holder)
	quorumEmpty(t, servers...)
	quorumTake(t, q, next)
}
