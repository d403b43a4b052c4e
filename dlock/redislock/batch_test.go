package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// gate is a hook that delays single calls until it opens. It counts the commands of each pipeline.
type gate struct {
	opened chan struct{}
	panics bool

	mu        sync.Mutex
	single    int
	pipelines [][]int // number of keys of each command
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			g.mu.Lock()
			g.single++
			g.mu.Unlock()
			<-g.opened
		}
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "evalsha" { // the call sets up a connection
			return next(ctx, cmds)
		}
		if g.panics {
			panic("a hook")
		}
		var keys []int
		for _, c := range cmds {
			var n int
			fmt.Sscan(fmt.Sprint(c.Args()[2]), &n)
			keys = append(keys, n)
		}
		g.mu.Lock()
		g.pipelines = append(g.pipelines, keys)
		g.mu.Unlock()
		return next(ctx, cmds)
	}
}

// crossingTTL is the TTL of leases in a crossing. It is long enough for a busy machine.
const crossingTTL = 5 * time.Second

// A crossing has maxInFlight acquires in flight, and none returns until the gate opens.
type crossing struct {
	t      *testing.T
	gate   *gate
	store  *redislock.Store
	direct *redislock.Store // the same names without the gate
	calls  sync.WaitGroup
}

func newCrossing(t *testing.T, panics bool) *crossing {
	t.Helper()
	prefix := unique("trips")
	direct := open(t, redistest.Shared(t).Client(), redislock.Options{Prefix: prefix, QuarantineTTL: crossingTTL})
	awake(t, direct)
	client := redis.NewClient(&redis.Options{Password: canary, Addr: redistest.Shared(t).Addr(),
		ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	c := &crossing{t: t, gate: &gate{opened: make(chan struct{}), panics: panics}, direct: direct}
	client.AddHook(c.gate)
	c.store = open(t, client, redislock.Options{Prefix: prefix, SharedPool: true, QuarantineTTL: crossingTTL})
	for i := range redislock.MaxInFlight {
		c.acquire(t.Context(), fmt.Sprint("first", i), nil)
	}
	testkit.Eventually(t, 10*time.Second, "as many as may be are in flight", func() bool {
		c.gate.mu.Lock()
		defer c.gate.mu.Unlock()
		return c.gate.single == redislock.MaxInFlight
	})
	return c
}

// acquire requests a mutex and passes the answer to check. If check is nil, the lease must be
// granted.
func (c *crossing) acquire(ctx context.Context, name string, check func(error)) {
	c.calls.Go(func() {
		_, err := c.store.TryAcquire(ctx, driver.Request{Name: name, Token: "t", TTL: crossingTTL})
		switch {
		case check != nil:
			check(err)
		case err != nil:
			c.t.Errorf("%s: %v", name, err)
		}
	})
}

func (c *crossing) waiting(n int) {
	c.t.Helper()
	testkit.Eventually(c.t, 10*time.Second, fmt.Sprint(n, " wait"), func() bool { return c.store.Waiting() == n })
}

// Calls that arrive while maxInFlight are in flight share one round trip. In it, one run of a
// script makes all acquires, and another makes all releases. Each caller gets its own answer. A
// heartbeat does not wait.
//
// Fails when every call is sent alone, when send merges nothing or mixes up the answers, and when
// Extend waits to be sent.
func TestCallsShareRoundTrips(t *testing.T) {
	t.Parallel()
	c := newCrossing(t, false)
	ctx := t.Context()
	const n = 20
	var grants []driver.Grant
	for i := range n {
		g, err := c.direct.TryAcquire(ctx, driver.Request{Name: fmt.Sprint("held", i), Slots: 3,
			Token: fmt.Sprint("held", i), TTL: crossingTTL})
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	if r, err := c.store.Extend(ctx, crossingTTL, grants...); err != nil || r[n-1].Outcome != driver.GrantOK {
		t.Errorf("a heartbeat: %v, %v", r, err)
	}
	for i, g := range grants {
		c.acquire(ctx, fmt.Sprint("new", i), nil)
		lost := i%2 == 1
		if lost {
			g.Token = "other"
		}
		c.calls.Go(func() {
			r, err := c.store.Release(ctx, g)
			if want := map[bool]driver.GrantOutcome{false: driver.GrantOK, true: driver.GrantLost}[lost]; err != nil ||
				r[0].Outcome != want {
				t.Errorf("release %d: %v, %v; want %v", i, r, err, want)
			}
		})
	}
	c.waiting(2 * n)
	close(c.gate.opened)
	c.calls.Wait()
	if got := fmt.Sprint(c.gate.pipelines); got != fmt.Sprintf("[[%d] [%d %d]]", n, n, n) ||
		c.gate.single != redislock.MaxInFlight {
		t.Errorf("%d calls by themselves, and runs of scripts for %v; want %d, a heartbeat of %d, and two for %d "+
			"together", c.gate.single, got, redislock.MaxInFlight, n, n)
	}
	for i := range n {
		held, err := c.direct.List(ctx, fmt.Sprint("held", i), 3)
		if err != nil || len(held) != i%2 {
			t.Errorf("held%d: %v, %v; want %d", i, held, err, i%2)
		}
	}
}

// If a call's context ends while the call waits to be sent, the call returns and is not sent.
//
// Fails when do ignores ctx, and when flush sends calls whose callers have given up.
func TestWaitingCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	c := newCrossing(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	c.acquire(ctx, "left", func(err error) { left <- err })
	c.waiting(1)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) { // must return before the gate opens
		t.Errorf("%v, want that its context has ended", err)
	}
	c.acquire(t.Context(), "stays", nil)
	c.waiting(2)
	close(c.gate.opened)
	c.calls.Wait()
	if held, err := c.direct.List(t.Context(), "left", 0); err != nil || len(held) > 0 {
		t.Errorf("%v, %v: acquired for somebody who has left", held, err)
	}
}

// An ending is a context like a Session's, with an hour left.
type ending struct{ context.Context }

func (e ending) Ends() (context.Context, time.Time) { return e.Context, time.Now().Add(time.Hour) }

// A Session's waiting call also returns when its context ends. That context reports its deadline
// and its parent.
//
// Fails when wait checks only the time, and when it checks only the parent.
func TestWaitingCallsOfASessionEndWithTheirContext(t *testing.T) {
	t.Parallel()
	c := newCrossing(t, false)
	session, err := dlock.NewSession(c.store, dlock.SessionOptions{TTL: quarantineTTL,
		StoreTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 2)
	c.acquire(ending{ctx}, "cancelled", func(err error) { left <- err })
	c.waiting(1)
	cancel()
	c.calls.Go(func() {
		_, err := session.Mutex("late").TryAcquire(t.Context())
		left <- err
	})
	for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
		select { // must return before the gate opens
		case err := <-left:
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("still waits, want %v", want)
		}
	}
	close(c.gate.opened)
	c.calls.Wait()
	if err := session.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"cancelled", "late"} {
		if held, err := c.direct.List(t.Context(), name, 0); err != nil || len(held) > 0 {
			t.Errorf("%s: %v, %v: acquired for somebody who has left", name, held, err)
		}
	}
}

// An error of one name does not affect other names in the same run of the script.
//
// Fails when an attempt's error ends the script.
func TestFaultOfOneNameIsItsOwn(t *testing.T) {
	t.Parallel()
	c := newCrossing(t, false)
	client := redistest.Shared(t).Client()
	prefix := strings.TrimSuffix(c.direct.Key("bad"), "bad")
	client.Set(t.Context(), prefix+"bad:slot:mutex", "x", 0)
	for i := range 3 {
		c.acquire(t.Context(), fmt.Sprint("good", i), nil)
	}
	c.acquire(t.Context(), "bad", func(err error) {
		if !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(), "bad:slot:mutex") {
			t.Errorf("%v, want a fault that names the key", err)
		}
	})
	c.waiting(4)
	close(c.gate.opened)
	c.calls.Wait()
}

// If a hook of the client panics, the calls that were sent together fail, but the process does not.
//
// Fails when send does not recover.
func TestHookThatPanics(t *testing.T) {
	t.Parallel()
	c := newCrossing(t, true)
	for i := range 3 {
		c.acquire(t.Context(), fmt.Sprint("n", i), func(err error) {
			if err == nil || !strings.Contains(err.Error(), "panicked") {
				t.Errorf("%v, want that the client panicked", err)
			}
		})
	}
	c.waiting(3)
	close(c.gate.opened)
	c.calls.Wait()
	if _, err := c.direct.TryAcquire(t.Context(), driver.Request{Name: "after", Token: "t",
		TTL: quarantineTTL}); err != nil {
		t.Error(err)
	}
}
