package redlock_test

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

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redlock"
)

func TestMinorityDown(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	before := quorumTake(t, q, quorumRequest(3))
	servers[0].Close()
	during := quorumTake(t, q, quorumRequest(3))
	quorumExtend(t, q, driver.GrantOK, before)
	quorumTake(t, q, quorumRequest(3))
	quorumRefuses(t, q, quorumRequest(3), driver.ReasonFull)
	quorumRelease(t, q, driver.GrantOK, before)
	foreign := during
	foreign.Token = rand.Text()
	quorumRelease(t, q, driver.GrantLost, foreign)
	quorumTake(t, q, quorumRequest(3))
	quorumRelease(t, q, driver.GrantOK, during)
}

func TestMajorityDown(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	held := quorumTake(t, q, quorumRequest(3))
	servers[0].SetError("LOADING")
	servers[1].Close()
	keys := len(servers[2].Keys())
	for _, slots := range []int{0, 3} {
		req := quorumRequest(slots)
		req.Tick = &driver.Tick{At: time.Now(), Max: 1}
		_, err := q.TryAcquire(quorumContext(t, time.Second), req)
		quorumFails(t, err)
	}
	if got := len(servers[2].Keys()); got != keys {
		t.Errorf("%d keys, before %d: something was written", got, keys)
	}
	_, err := q.Extend(quorumContext(t, time.Second), time.Second, held)
	quorumFails(t, err)
	anySlot := held
	anySlot.Slot = driver.AnySlot
	_, err = q.Release(quorumContext(t, time.Second), anySlot)
	quorumFails(t, err)
	servers[0].SetError("")
	quorumExtend(t, q, driver.GrantOK, held)
}

// If a token has all votes of one slot and, by a late request, some votes of another, it keeps the
// first.
func TestSameTokenSweepsUp(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	req := quorumRequest(5)
	g := quorumTake(t, q, req)
	for slot := range req.Slots {
		_ = servers[0].Set(fmt.Sprintf("shop:job:slot:%d", slot), req.Token)
	}
	servers[1].SetError("LOADING") // otherwise the other two might answer first and show only the first slot
	if again := quorumTake(t, q, req); again.Slot != g.Slot {
		t.Fatalf("asked again for slot %d, was granted slot %d", g.Slot, again.Slot)
	}
	servers[1].SetError("")
	if keys := servers[0].Keys(); len(keys) != 1 {
		t.Errorf("keys %q: want one slot", keys)
	}
	g.Slot = driver.AnySlot
	quorumRelease(t, q, driver.GrantOK, g)
	quorumEmpty(t, servers...)
}

// A request without a majority releases its votes, whether the other servers refuse or fail.
func TestTakesVotesBack(t *testing.T) {
	servers := quorumServers(t, 5)
	q := quorumOf(t, quorumAddrs(servers)...)
	req := quorumRequest(0)
	req.Tick = &driver.Tick{At: time.Now(), Max: 1}

	for i, holder := range []string{"a", "a", "b"} {
		_ = servers[i].Set("shop:job", holder)
	}
	quorumRefuses(t, q, req, driver.ReasonFull)
	quorumEmpty(t, servers[3:]...)
	for _, s := range servers[:3] {
		if keys := s.Keys(); len(keys) != 1 {
			t.Errorf("keys %q: want only that of the holder", keys)
		}
		s.FlushAll()
		_, _ = s.Push("shop:job", "not a lease") // looks free, but taking it fails
	}
	_, err := q.TryAcquire(quorumContext(t, 10*time.Second), req)
	quorumFails(t, err)
	quorumEmpty(t, servers[3:]...)
	for _, s := range servers[:3] {
		s.FlushAll()
	}
	quorumTake(t, q, req)
}

// The next heartbeat restores the key on a server that restarted empty or was down at the acquire.
func TestMendsLeases(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	g := quorumTake(t, q, quorumRequest(1))
	for _, s := range servers { // a rolling restart
		s.FlushAll()
		quorumExtend(t, q, driver.GrantOK, g)
		if got, err := s.Get("shop:job:slot:0"); err != nil || got != g.Token {
			t.Fatalf("the key is %q, %v: want the token", got, err)
		}
	}
	servers[0].FlushAll()
	servers[1].FlushAll()
	quorumExtend(t, q, driver.GrantLost, g)
	if servers[0].Exists("shop:job:slot:0") || servers[1].Exists("shop:job:slot:0") {
		t.Error("a lost lease was brought back")
	}
}

func TestUndecidedIsAnError(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	_ = servers[0].Set("shop:job", "somebody") // another client, which may or may not have the server that is down
	servers[1].Close()
	_, err := q.TryAcquire(quorumContext(t, time.Second), quorumRequest(0))
	quorumFails(t, err)
	quorumEmpty(t, servers[2])
}

// In each burst, exactly one attempt succeeds even if votes are split.
func TestBurst(t *testing.T) {
	servers := quorumServers(t, 3)
	var hosts []*redlock.Store
	for range 6 {
		hosts = append(hosts, quorumOf(t, quorumAddrs(servers)...))
	}
	for range 20 {
		var granted atomic.Pointer[driver.Grant]
		var grants atomic.Int32
		tick := &driver.Tick{At: time.Now(), Max: 1}
		var wg sync.WaitGroup
		for _, q := range hosts {
			wg.Go(func() {
				req := quorumRequest(6)
				req.Tick = tick
				g, err := q.TryAcquire(quorumContext(t, 10*time.Second), req)
				if err == nil {
					grants.Add(1)
					granted.Store(&g)
				} else if !errors.Is(err, driver.ErrNotAcquired) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := grants.Load(); n != 1 {
			t.Fatalf("%d starts of a tick, want 1", n)
		}
		quorumRelease(t, hosts[0], driver.GrantOK, *granted.Load())
	}
}

// frozenServer starts a server that accepts connections and never answers.
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

// quorumInTime reports an error if the call takes longer than limit, plus some time for a busy
// machine.
func quorumInTime(t *testing.T, limit time.Duration, call func(context.Context)) {
	t.Helper()
	started := time.Now()
	call(quorumContext(t, limit))
	if took := time.Since(started); took > limit+200*time.Millisecond {
		t.Errorf("took %v, with a context of %v", took, limit)
	}
}

func TestFrozenServer(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, servers[0].Addr(), frozenServer(t), servers[2].Addr())
	req := quorumRequest(2)
	req.Tick = &driver.Tick{At: time.Now(), Max: 2}
	var g driver.Grant
	quorumInTime(t, time.Second, func(ctx context.Context) {
		var err error
		if g, err = q.TryAcquire(ctx, req); err != nil {
			t.Fatal(err)
		}
	})
	quorumInTime(t, time.Second, func(ctx context.Context) {
		results, err := q.Extend(ctx, 15*time.Second, g)
		quorumOutcomes(t, results, err, driver.GrantOK)
	})
	quorumInTime(t, time.Second, func(ctx context.Context) {
		if _, err := q.TryAcquire(ctx, quorumRequest(2)); err != nil {
			t.Error(err)
		}
	})
	quorumInTime(t, time.Second, func(ctx context.Context) {
		if _, err := q.TryAcquire(ctx, quorumRequest(2)); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("got %v, want a refusal", err)
		}
	})
	quorumInTime(t, time.Second, func(ctx context.Context) {
		g.Slot = driver.AnySlot
		results, err := q.Release(ctx, g)
		quorumOutcomes(t, results, err, driver.GrantOK)
	})
}

// A heartbeat with many leases waits only once for a frozen server, not once per lease.
func TestFrozenServerHeartbeat(t *testing.T) {
	servers := quorumServers(t, 2)
	q := quorumOf(t, servers[0].Addr(), frozenServer(t), servers[1].Addr())
	grants := make([]driver.Grant, 100)
	want := make([]driver.GrantOutcome, len(grants))
	for i := range grants {
		token := rand.Text()
		grants[i], want[i] = driver.Grant{Name: "many", Slots: len(grants), Slot: i, Token: token}, driver.GrantOK
		for _, s := range servers {
			_ = s.Set(fmt.Sprintf("shop:many:slot:%d", i), token)
		}
	}
	quorumInTime(t, 2*time.Second, func(ctx context.Context) {
		results, err := q.Extend(ctx, 15*time.Second, grants...)
		quorumOutcomes(t, results, err, want...)
	})
}

func TestFrozenMajority(t *testing.T) {
	servers := quorumServers(t, 1)
	q := quorumOf(t, frozenServer(t), frozenServer(t), servers[0].Addr())
	quorumInTime(t, time.Second, func(ctx context.Context) {
		_, err := q.TryAcquire(ctx, quorumRequest(2))
		quorumFails(t, err)
	})
	g := driver.Grant{Name: "job", Slots: 2, Token: rand.Text()}
	quorumInTime(t, time.Second, func(ctx context.Context) {
		_, err := q.Extend(ctx, time.Second, g)
		quorumFails(t, err)
	})
	g.Slot = driver.AnySlot
	quorumInTime(t, time.Second, func(ctx context.Context) {
		_, err := q.Release(ctx, g)
		quorumFails(t, err)
	})
	quorumEmpty(t, servers...)
}

func TestEndedContext(t *testing.T) {
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
	quorumExtend(t, q, driver.GrantOK, g)
}

func TestRefusesInvalidRequests(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, quorumAddrs(servers)...)
	for what, spoil := range map[string]func(*driver.Request){
		"name":  func(r *driver.Request) { r.Name = "a:slot:0" },
		"slots": func(r *driver.Request) { r.Slots = -1 },
		"token": func(r *driver.Request) { r.Token = "" },
		"ttl":   func(r *driver.Request) { r.TTL = 0 },
		"tick":  func(r *driver.Request) { r.Tick = &driver.Tick{At: time.Now(), Max: -1} },
	} {
		req := quorumRequest(1)
		spoil(&req)
		if _, err := q.TryAcquire(t.Context(), req); err == nil || errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%s: got %v, want an error", what, err)
		}
	}
	_, err := q.Extend(t.Context(), 0, driver.Grant{Name: "job", Token: "t"})
	quorumFails(t, err)
	_, err = q.Release(t.Context(), driver.Grant{Name: "job", Token: "*'"})
	quorumFails(t, err)
	quorumEmpty(t, servers...)
}

func TestCheck(t *testing.T) {
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
		opts    redlock.Options
		want    string // part of the fault; "" for none
	}{
		{clients: list(a, b, c)},
		{clients: list(), want: "a quorum of 0"},
		{clients: list(a), want: "use redislock"},
		{clients: list(a, b), want: "three servers or more"},
		{clients: list(a, b, c, d), want: "odd number"},
		{clients: list(a, nil, c), want: "client 1 of the quorum is nil"},
		{clients: list(a, (*redis.Client)(nil), c), want: "client 1 of the quorum is nil"},
		{clients: list(a, b, a), want: "clients 0 and 2 of the quorum are the same server, a:1"},
		{clients: list(a, b, cluster), want: "*redis.ClusterClient"},
		{clients: list(a, b, c), opts: redlock.Options{Prefix: "x:slot:"}, want: "Prefix"},
		{clients: list(a, b, c), opts: redlock.Options{PoolSize: -1}, want: "PoolSize"},
	} {
		q := redlock.New(test.clients, test.opts)
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
			if err == nil || errors.Is(err, driver.ErrNotAcquired) {
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
	if got := redlock.New([]redis.UniversalClient{a, b, c}, redlock.Options{}).String(); got != "redlock" {
		t.Errorf("String is %q", got)
	}
}

// A session works with a quorum.
func TestUnderASession(t *testing.T) {
	servers := quorumServers(t, 3)
	q := quorumOf(t, servers[0].Addr(), frozenServer(t), servers[2].Addr())
	session, err := dlock.NewSession(q, dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := session.Semaphore("job", 2).TryAcquireTick(t.Context(), driver.Tick{At: time.Now(), Max: 1})
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
