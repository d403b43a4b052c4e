package redislock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
)

var (
	_ dlock.DistributedLock = (*redislock.Quorum)(nil)
	_ dlock.Checker         = (*redislock.Quorum)(nil)
)

// quorumServers starts n servers. Their leases end only by FastForward.
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

func quorumOf(t *testing.T, addrs ...string) *redislock.Quorum {
	t.Helper()
	var clients []redis.UniversalClient
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	q := redislock.NewQuorumWithOptions(redislock.QuorumOptions{Prefix: "shop:"}, clients...)
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

func quorumRequest(slots int) dlock.Request {
	return dlock.Request{Name: "job", Slots: slots, Token: rand.Text(), TTL: 15 * time.Second}
}

func quorumContext(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// quorumTake asks with all the time that a busy machine may need.
func quorumTake(t *testing.T, q *redislock.Quorum, req dlock.Request) dlock.Grant {
	t.Helper()
	g, err := q.TryAcquire(quorumContext(t, 10*time.Second), req)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	if g.Name != req.Name || g.Token != req.Token || g.Slots != req.Slots || g.Slot < 0 || g.Slot >= max(1, req.Slots) || g.Fence != 0 {
		t.Fatalf("asked for %+v, was granted %+v", req, g)
	}
	return g
}

func quorumRefuses(t *testing.T, q *redislock.Quorum, req dlock.Request, want dlock.Reason) {
	t.Helper()
	_, err := q.TryAcquire(quorumContext(t, 10*time.Second), req)
	no, ok := errors.AsType[*dlock.NotAcquiredError](err)
	if !ok || no.Reason != want || no.Name != req.Name || no.Slots != req.Slots {
		t.Fatalf("got %v, want a refusal with reason %s", err, want)
	}
}

func quorumFails(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, dlock.ErrNotAcquired) {
		t.Fatalf("got %v, want an error of the store", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Fatalf("an error of several lines: %q", err)
	}
}

func quorumOutcomes(t *testing.T, results []dlock.Result, err error, want ...dlock.GrantOutcome) {
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

func quorumRelease(t *testing.T, q *redislock.Quorum, want dlock.GrantOutcome, g dlock.Grant) {
	t.Helper()
	results, err := q.Release(quorumContext(t, 10*time.Second), g)
	quorumOutcomes(t, results, err, want)
}

func quorumExtend(t *testing.T, q *redislock.Quorum, want dlock.GrantOutcome, g dlock.Grant) {
	t.Helper()
	results, err := q.Extend(quorumContext(t, 10*time.Second), 15*time.Second, g)
	quorumOutcomes(t, results, err, want)
}

// quorumEmpty fails if a server has a key.
func quorumEmpty(t *testing.T, servers ...*miniredis.Miniredis) {
	t.Helper()
	for i, s := range servers {
		if keys := s.Keys(); len(keys) > 0 {
			t.Errorf("server %d still has %q", i, keys)
		}
	}
}

func TestQuorumIsExclusive(t *testing.T) {
	servers := quorumServers(t, 3)
	a, b := quorumOf(t, quorumAddrs(servers)...), quorumOf(t, quorumAddrs(servers)...)
	for _, slots := range []int{0, 1, 5} {
		var grants []dlock.Grant
		seen := make(map[int]bool)
		for range max(1, slots) {
			g := quorumTake(t, a, quorumRequest(slots))
			if seen[g.Slot] {
				t.Fatalf("slot %d was granted twice", g.Slot)
			}
			seen[g.Slot] = true
			grants = append(grants, g)
		}
		quorumRefuses(t, b, quorumRequest(slots), dlock.ReasonFull)
		for _, g := range grants {
			quorumRelease(t, b, dlock.GrantOK, g) // by the token, from anywhere
			quorumRelease(t, a, dlock.GrantLost, g)
		}
		quorumEmpty(t, servers...)
	}
}

func TestQuorumKeysAreReadable(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	at := time.Now().Truncate(time.Second)
	mutex, slot := quorumRequest(0), quorumRequest(1)
	slot.Tick = &dlock.Tick{At: at, Max: 1}
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

func TestQuorumLeaseEnds(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	req := quorumRequest(1)
	req.TTL = 1500*time.Millisecond + time.Nanosecond // rounded up, or it would end before it is trusted to
	g := quorumTake(t, q, req)
	for _, s := range servers {
		if ttl := s.TTL("shop:job:slot:0"); ttl < req.TTL {
			t.Errorf("a lease of %v lasts %v", req.TTL, ttl)
		}
		s.FastForward(1500 * time.Millisecond)
	}
	quorumRefuses(t, q, quorumRequest(1), dlock.ReasonFull)
	quorumExtend(t, q, dlock.GrantOK, g)
	for _, s := range servers {
		s.FastForward(14 * time.Second)
	}
	quorumRefuses(t, q, quorumRequest(1), dlock.ReasonFull)
	for _, s := range servers {
		s.FastForward(2 * time.Second)
	}
	quorumExtend(t, q, dlock.GrantLost, g)
	quorumEmpty(t, servers...) // an extension does not bring it back
	quorumTake(t, q, quorumRequest(1))
	quorumRelease(t, q, dlock.GrantLost, g)
	quorumRefuses(t, q, quorumRequest(1), dlock.ReasonFull)
}

func TestQuorumForeignToken(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	for _, slots := range []int{0, 3} {
		g := quorumTake(t, q, quorumRequest(slots))
		for _, slot := range []int{g.Slot, dlock.AnySlot, 7} {
			foreign := g
			foreign.Token, foreign.Slot = rand.Text(), slot
			quorumRelease(t, q, dlock.GrantLost, foreign)
			quorumExtend(t, q, dlock.GrantLost, foreign)
		}
		quorumExtend(t, q, dlock.GrantOK, g)
		g.Slot = dlock.AnySlot
		quorumRelease(t, q, dlock.GrantOK, g)
		quorumRelease(t, q, dlock.GrantLost, g)
	}
}

func TestQuorumAnswersBatchesInOrder(t *testing.T) {
	q := quorumOf(t, quorumAddrs(quorumServers(t, 3))...)
	var grants []dlock.Grant
	var extended, released []dlock.GrantOutcome
	for i := range 60 {
		req := quorumRequest(0)
		req.Name = fmt.Sprintf("job %d", i)
		g := quorumTake(t, q, req)
		if i%3 == 0 {
			g.Token = rand.Text()
			grants, extended, released = append(grants, g), append(extended, dlock.GrantLost), append(released, dlock.GrantLost)
			continue
		}
		// The same one twice: given back by the first.
		grants, extended, released = append(grants, g, g), append(extended, dlock.GrantOK, dlock.GrantOK), append(released, dlock.GrantOK, dlock.GrantLost)
	}
	results, err := q.Extend(quorumContext(t, 10*time.Second), time.Minute, grants...)
	quorumOutcomes(t, results, err, extended...)
	results, err = q.Release(quorumContext(t, 10*time.Second), grants...)
	quorumOutcomes(t, results, err, released...)
	results, err = q.Release(t.Context())
	quorumOutcomes(t, results, err)
}

func TestQuorumSameTokenSameSlot(t *testing.T) {
	servers := quorumServers(t, 3)
	a, b := quorumOf(t, quorumAddrs(servers)...), quorumOf(t, quorumAddrs(servers)...)
	req := quorumRequest(8)
	req.Tick = &dlock.Tick{At: time.Now(), Max: 2}
	first := quorumTake(t, a, req)
	servers[1].FlushAll() // one server forgot it: the token has a majority all the same
	for _, s := range servers {
		s.FastForward(10 * time.Second)
	}
	for _, q := range []*redislock.Quorum{a, b} {
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
	// Both starts of the tick are there once, not three times.
	second, third := quorumRequest(8), quorumRequest(8)
	second.Tick, third.Tick = req.Tick, req.Tick
	quorumTake(t, b, second)
	quorumRefuses(t, b, third, dlock.ReasonTickTaken)
}

func TestQuorumSameTokenFromManySides(t *testing.T) {
	servers := quorumServers(t, 3)
	hosts := []*redislock.Quorum{quorumOf(t, quorumAddrs(servers)...), quorumOf(t, quorumAddrs(servers)...), quorumOf(t, quorumAddrs(servers)...)}
	for range 20 {
		req := quorumRequest(4)
		grants := make([]dlock.Grant, len(hosts))
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
			if g != grants[0] {
				t.Fatalf("one token was granted %+v and %+v", grants[0], g)
			}
		}
		quorumRelease(t, hosts[0], dlock.GrantOK, grants[0])
		quorumEmpty(t, servers...)
	}
}

func TestQuorumTick(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	now := time.Now()
	ask := func(slots int, at time.Time, most int) dlock.Request {
		req := quorumRequest(slots)
		req.Tick = &dlock.Tick{At: at, Max: most}
		return req
	}
	for _, slots := range []int{0, 5} {
		for range 2 { // releasing gives no start back
			quorumRelease(t, q, dlock.GrantOK, quorumTake(t, q, ask(slots, now, 2)))
		}
		quorumRefuses(t, q, ask(slots, now, 2), dlock.ReasonTickTaken)
		quorumRelease(t, q, dlock.GrantOK, quorumTake(t, q, ask(slots, now.Add(time.Microsecond), 1))) // another tick
	}
	quorumRefuses(t, q, ask(5, now.Add(time.Minute), 1), dlock.ReasonTickAhead)
	quorumRefuses(t, q, ask(5, now.Add(-time.Hour), 1), dlock.ReasonTickLate)
	_, err := q.TryAcquire(t.Context(), ask(5, now, 1<<40))
	quorumFails(t, err)
	for _, s := range servers {
		s.FastForward(50 * time.Minute)
	}
	quorumRefuses(t, q, ask(5, now, 2), dlock.ReasonTickTaken)
}

// A tick that ran is not run again as missed, whoever asks: what the quorum cannot tell, it refuses.
//
// Fails when a claim of a missed tick is taken for one of a tick that is due: it may start three times, so it starts again.
func TestQuorumKnowsNoMissedTick(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	at := time.Now().Add(-time.Minute)
	req := quorumRequest(3)
	req.Tick = &dlock.Tick{At: at, Max: 3}
	quorumRelease(t, q, dlock.GrantOK, quorumTake(t, q, req))
	missed := quorumRequest(3)
	for _, when := range []time.Time{at, at.Add(time.Second)} {
		missed.Tick = &dlock.Tick{At: when, Max: 3, Missed: when}
		quorumRefuses(t, q, missed, dlock.ReasonTickFirst)
	}
	missed.Tick = &dlock.Tick{At: at.Add(-time.Hour), Max: 3, Missed: at}
	quorumRefuses(t, q, missed, dlock.ReasonTickLate)
	if _, ok := dlock.DistributedLock(q).(dlock.Controller); ok {
		t.Error("a quorum has no fences to revoke by")
	}
}

func TestQuorumGivesTheTickBack(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	holder := quorumTake(t, q, quorumRequest(1))
	req := quorumRequest(1)
	req.Tick = &dlock.Tick{At: time.Now(), Max: 1}
	quorumRefuses(t, q, req, dlock.ReasonFull)
	next := quorumRequest(1)
	next.Tick = req.Tick
	quorumRefuses(t, q, next, dlock.ReasonFull) // not TickTaken
	quorumRelease(t, q, dlock.GrantOK, holder)
	quorumEmpty(t, servers...)
	quorumTake(t, q, next)
}

func TestQuorumMinorityDown(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	before := quorumTake(t, q, quorumRequest(3))
	servers[0].Close()
	during := quorumTake(t, q, quorumRequest(3))
	quorumExtend(t, q, dlock.GrantOK, before)
	quorumTake(t, q, quorumRequest(3))
	quorumRefuses(t, q, quorumRequest(3), dlock.ReasonFull)
	quorumRelease(t, q, dlock.GrantOK, before)
	foreign := during
	foreign.Token = rand.Text()
	quorumRelease(t, q, dlock.GrantLost, foreign)
	quorumTake(t, q, quorumRequest(3))
	quorumRelease(t, q, dlock.GrantOK, during)
}

func TestQuorumMajorityDown(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	held := quorumTake(t, q, quorumRequest(3))
	servers[0].SetError("LOADING")
	servers[1].Close()
	keys := len(servers[2].Keys())
	for _, slots := range []int{0, 3} {
		req := quorumRequest(slots)
		req.Tick = &dlock.Tick{At: time.Now(), Max: 1}
		_, err := q.TryAcquire(quorumContext(t, time.Second), req)
		quorumFails(t, err)
	}
	if got := len(servers[2].Keys()); got != keys {
		t.Errorf("%d keys, before %d: something was written", got, keys)
	}
	_, err := q.Extend(quorumContext(t, time.Second), time.Second, held)
	quorumFails(t, err)
	anySlot := held
	anySlot.Slot = dlock.AnySlot
	_, err = q.Release(quorumContext(t, time.Second), anySlot)
	quorumFails(t, err)
	servers[0].SetError("")
	quorumExtend(t, q, dlock.GrantOK, held)
}

// A token that has the whole of one slot and, by a late request, a bit of another keeps the whole one.
func TestQuorumSameTokenSweepsUp(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	req := quorumRequest(5)
	g := quorumTake(t, q, req)
	for slot := range req.Slots {
		_ = servers[0].Set(fmt.Sprintf("shop:job:slot:%d", slot), req.Token)
	}
	servers[1].SetError("LOADING") // or the two others might answer first, and show only the whole one
	if again := quorumTake(t, q, req); again.Slot != g.Slot {
		t.Fatalf("asked again for slot %d, was granted slot %d", g.Slot, again.Slot)
	}
	servers[1].SetError("")
	if keys := servers[0].Keys(); len(keys) != 1 {
		t.Errorf("keys %q: want one slot", keys)
	}
	g.Slot = dlock.AnySlot
	quorumRelease(t, q, dlock.GrantOK, g)
	quorumEmpty(t, servers...)
}

// What was taken goes back when the majority cannot be had, whether the others refuse or fail.
func TestQuorumTakesVotesBack(t *testing.T) {
	servers := quorumServers(t, 5)
	q := quorumOf(t, quorumAddrs(servers)...)
	req := quorumRequest(0)
	req.Tick = &dlock.Tick{At: time.Now(), Max: 1}

	for i, holder := range []string{"a", "a", "b"} {
		_ = servers[i].Set("shop:job", holder)
	}
	quorumRefuses(t, q, req, dlock.ReasonFull)
	quorumEmpty(t, servers[3:]...)
	for _, s := range servers[:3] {
		if keys := s.Keys(); len(keys) != 1 {
			t.Errorf("keys %q: want only that of the holder", keys)
		}
		s.FlushAll()
		_, _ = s.Push("shop:job", "not a lease") // looks free, and fails
	}
	_, err := q.TryAcquire(quorumContext(t, 10*time.Second), req)
	quorumFails(t, err)
	quorumEmpty(t, servers[3:]...)
	for _, s := range servers[:3] {
		s.FlushAll()
	}
	quorumTake(t, q, req)
}

// A server that comes back empty, or was away at the start, gets the key with the next heartbeat.
func TestQuorumMendsLeases(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	g := quorumTake(t, q, quorumRequest(1))
	for _, s := range servers { // a rolling restart
		s.FlushAll()
		quorumExtend(t, q, dlock.GrantOK, g)
		if got, err := s.Get("shop:job:slot:0"); err != nil || got != g.Token {
			t.Fatalf("the key is %q, %v: want the token", got, err)
		}
	}
	servers[0].FlushAll()
	servers[1].FlushAll()
	quorumExtend(t, q, dlock.GrantLost, g)
	if servers[0].Exists("shop:job:slot:0") || servers[1].Exists("shop:job:slot:0") {
		t.Error("a lost lease was brought back")
	}
}

func TestQuorumUndecidedIsAnError(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	_ = servers[0].Set("shop:job", "somebody") // who may, or may not, have the server that is away, too
	servers[1].Close()
	_, err := q.TryAcquire(quorumContext(t, time.Second), quorumRequest(0))
	quorumFails(t, err)
	quorumEmpty(t, servers[2])
}

// In each burst somebody gets in, though votes are split, and never two.
func TestQuorumBurst(t *testing.T) {
	servers := quorumServers(t, 3)
	var hosts []*redislock.Quorum
	for range 6 {
		hosts = append(hosts, quorumOf(t, quorumAddrs(servers)...))
	}
	for range 20 {
		var granted atomic.Pointer[dlock.Grant]
		var grants atomic.Int32
		tick := &dlock.Tick{At: time.Now(), Max: 1}
		var wg sync.WaitGroup
		for _, q := range hosts {
			wg.Go(func() {
				req := quorumRequest(6)
				req.Tick = tick
				g, err := q.TryAcquire(quorumContext(t, 10*time.Second), req)
				if err == nil {
					grants.Add(1)
					granted.Store(&g)
				} else if !errors.Is(err, dlock.ErrNotAcquired) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := grants.Load(); n != 1 {
			t.Fatalf("%d starts of a tick, want 1", n)
		}
		quorumRelease(t, hosts[0], dlock.GrantOK, *granted.Load())
	}
}

// frozenServer is a server that accepts connections and never answers.
func frozenServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// quorumInTime fails if the call took longer than its context, and a little for a machine that is busy.
func quorumInTime(t *testing.T, limit time.Duration, call func(context.Context)) {
	t.Helper()
	started := time.Now()
	call(quorumContext(t, limit))
	if took := time.Since(started); took > limit+200*time.Millisecond {
		t.Errorf("took %v, with a context of %v", took, limit)
	}
}

func TestQuorumFrozenServer(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, servers[0].Addr(), frozenServer(t), servers[2].Addr())
	req := quorumRequest(2)
	req.Tick = &dlock.Tick{At: time.Now(), Max: 2}
	var g dlock.Grant
	quorumInTime(t, time.Second, func(ctx context.Context) {
		var err error
		if g, err = q.TryAcquire(ctx, req); err != nil {
			t.Fatal(err)
		}
	})
	quorumInTime(t, time.Second, func(ctx context.Context) {
		results, err := q.Extend(ctx, 15*time.Second, g)
		quorumOutcomes(t, results, err, dlock.GrantOK)
	})
	quorumInTime(t, time.Second, func(ctx context.Context) {
		if _, err := q.TryAcquire(ctx, quorumRequest(2)); err != nil {
			t.Error(err)
		}
	})
	quorumInTime(t, time.Second, func(ctx context.Context) {
		if _, err := q.TryAcquire(ctx, quorumRequest(2)); !errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("got %v, want a refusal", err)
		}
	})
	quorumInTime(t, time.Second, func(ctx context.Context) {
		g.Slot = dlock.AnySlot
		results, err := q.Release(ctx, g)
		quorumOutcomes(t, results, err, dlock.GrantOK)
	})
}

// A heartbeat of many leases waits for the frozen server once, not for each of them.
func TestQuorumFrozenServerHeartbeat(t *testing.T) {
	servers := quorumServers(t, 2)
	q := quorumOf(t, servers[0].Addr(), frozenServer(t), servers[1].Addr())
	grants := make([]dlock.Grant, 100)
	want := make([]dlock.GrantOutcome, len(grants))
	for i := range grants {
		token := rand.Text()
		grants[i], want[i] = dlock.Grant{Name: "many", Slots: len(grants), Slot: i, Token: token}, dlock.GrantOK
		for _, s := range servers {
			_ = s.Set(fmt.Sprintf("shop:many:slot:%d", i), token)
		}
	}
	quorumInTime(t, 2*time.Second, func(ctx context.Context) {
		results, err := q.Extend(ctx, 15*time.Second, grants...)
		quorumOutcomes(t, results, err, want...)
	})
}

func TestQuorumFrozenMajority(t *testing.T) {
	servers := quorumServers(t, 1)
	q := quorumOf(t, frozenServer(t), frozenServer(t), servers[0].Addr())
	quorumInTime(t, time.Second, func(ctx context.Context) {
		_, err := q.TryAcquire(ctx, quorumRequest(2))
		quorumFails(t, err)
	})
	g := dlock.Grant{Name: "job", Slots: 2, Token: rand.Text()}
	quorumInTime(t, time.Second, func(ctx context.Context) {
		_, err := q.Extend(ctx, time.Second, g)
		quorumFails(t, err)
	})
	g.Slot = dlock.AnySlot
	quorumInTime(t, time.Second, func(ctx context.Context) {
		_, err := q.Release(ctx, g)
		quorumFails(t, err)
	})
	quorumEmpty(t, servers...)
}

func TestQuorumEndedContext(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	g := quorumTake(t, q, quorumRequest(0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := q.TryAcquire(ctx, quorumRequest(0))
	quorumFails(t, err)
	_, err = q.Extend(ctx, time.Second, g)
	quorumFails(t, err)
	_, err = q.Release(ctx, g)
	quorumFails(t, err)
	quorumExtend(t, q, dlock.GrantOK, g)
}

func TestQuorumRefusesInvalidRequests(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	for what, spoil := range map[string]func(*dlock.Request){
		"name":  func(r *dlock.Request) { r.Name = "a:slot:0" },
		"slots": func(r *dlock.Request) { r.Slots = -1 },
		"token": func(r *dlock.Request) { r.Token = "" },
		"ttl":   func(r *dlock.Request) { r.TTL = 0 },
		"tick":  func(r *dlock.Request) { r.Tick = &dlock.Tick{At: time.Now(), Max: -1} },
	} {
		req := quorumRequest(1)
		spoil(&req)
		if _, err := q.TryAcquire(t.Context(), req); err == nil || errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("%s: got %v, want an error", what, err)
		}
	}
	_, err := q.Extend(t.Context(), 0, dlock.Grant{Name: "job", Token: "t"})
	quorumFails(t, err)
	_, err = q.Release(t.Context(), dlock.Grant{Name: "job", Token: "*'"})
	quorumFails(t, err)
	quorumEmpty(t, servers...)
}

func TestQuorumCheck(t *testing.T) {
	client := func(addr string) redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"a:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	a, b, c, d := client("a:1"), client("b:1"), client("c:1"), client("d:1")
	list := func(clients ...redis.UniversalClient) []redis.UniversalClient { return clients }
	for _, test := range []struct {
		clients []redis.UniversalClient
		opts    redislock.QuorumOptions
		want    string // in the fault; "": none
	}{
		{clients: list(a, b, c)},
		{clients: list(), want: "a quorum of 0"},
		{clients: list(a), want: "use New"},
		{clients: list(a, b), want: "three servers or more"},
		{clients: list(a, b, c, d), want: "odd number"},
		{clients: list(a, nil, c), want: "client 1 of the quorum is nil"},
		{clients: list(a, (*redis.Client)(nil), c), want: "client 1 of the quorum is nil"},
		{clients: list(a, b, a), want: "clients 0 and 2 of the quorum are the same server, a:1"},
		{clients: list(a, b, cluster), want: "*redis.ClusterClient"},
		{clients: list(a, b, c), opts: redislock.QuorumOptions{Prefix: "x:slot:"}, want: "Prefix"},
		{clients: list(a, b, c), opts: redislock.QuorumOptions{PoolSize: -1}, want: "PoolSize"},
	} {
		q := redislock.NewQuorumWithOptions(test.opts, test.clients...)
		err := q.Check()
		if test.want == "" {
			if err != nil {
				t.Errorf("%d clients: %v", len(test.clients), err)
			}
		} else {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%d clients: %v: want a fault with %q", len(test.clients), err, test.want)
			}
			_, err = q.TryAcquire(t.Context(), quorumRequest(0))
			if err == nil || errors.Is(err, dlock.ErrNotAcquired) {
				t.Errorf("a store with a fault answers %v", err)
			}
			if _, err := q.Extend(t.Context(), time.Second); err == nil {
				t.Error("a store with a fault extends")
			}
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := redislock.NewQuorum(a, b, c).String(); got != "redis-quorum" {
		t.Errorf("String is %q", got)
	}
}

// A session finds a quorum that its options fit to.
func TestQuorumUnderASession(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, servers[0].Addr(), frozenServer(t), servers[2].Addr())
	session, err := dlock.NewSession(q, dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := session.Semaphore("job", 2).TryAcquireTick(t.Context(), dlock.Tick{At: time.Now(), Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !lease.Valid() {
		t.Error("not valid")
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
