package caslock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/caslock/caslocktest"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/timertest"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/linear"
)

func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }

// Timers keep their promises on documents. This test plants no server faults, because each fault
// makes a call take longer, and the promises include times. TestHistoriesAreLinearizable and
// faults_test.go cover the faults.
//
// Fails when a step of the store breaks a promise of timers.
func TestTimers(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	timertest.Run(t, timertest.Harness{New: func(testing.TB) timertest.Store {
		server := &caslocktest.Server{CallDelay: time.Millisecond}
		return timertest.Store{Open: func(testing.TB) dlock.DistributedLock { return caslock.New(server.Client(0)) }}
	}})
}

// late is the delay of a late write.
const late = 40 * time.Millisecond

// all are the faults that a call may have.
var all = []caslocktest.Fault{
	{On: caslocktest.OpPut, Is: caslocktest.FaultLoseReply},
	{On: caslocktest.OpPut, Is: caslocktest.FaultLate, For: late},
	{On: caslocktest.OpGet, Is: caslocktest.FaultLoseReply},
	{On: caslocktest.OpPut, Is: caslocktest.FaultConflict},
	{On: caslocktest.OpPut, Is: caslocktest.FaultThrottle, For: 5 * time.Millisecond},
}

// plant plants a random one of these faults at each interval, until done is closed.
func plant(server *caslocktest.Server, every time.Duration, done <-chan struct{}, faults ...caslocktest.Fault) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			server.Plant(faults[rand.IntN(len(faults))])
		case <-done:
			return
		}
	}
}

// Whatever the faults, some single order of the clients' calls explains what the clients saw. To
// show that the test can fail, it also runs a backend that overwrites other hosts' documents.
// There, no order explains some of the histories.
//
// Fails when the cache keeps a document whose write may have been lost.
func TestHistoriesAreLinearizable(t *testing.T) {
	const ttl = 200 * time.Millisecond
	for range 10 {
		for name, ops := range history(t, ttl, false) {
			if verdict := linear.Check(ops, ttl, nil, time.Minute); verdict != "ok" {
				t.Errorf("%s: the history of %d calls is %s", name, len(ops), verdict)
			}
		}
	}
	for range 100 {
		for _, ops := range history(t, ttl, true) {
			if linear.Check(ops, ttl, nil, 100*time.Millisecond) == "illegal" {
				return
			}
		}
	}
	t.Error("no history of a backend that ignores versions is illegal")
}

// blindBackend writes even if others have written meanwhile.
type blindBackend struct{ caslock.Backend }

func (b blindBackend) Put(ctx context.Context, docs ...caslock.Document) ([]string, error) {
	for i := range docs {
		now, err := b.Get(ctx, docs[i].Key)
		if err != nil {
			return nil, err
		}
		docs[i].Version = now.Version
	}
	return b.Backend.Put(ctx, docs...)
}

// history returns what four hosts saw of two locks, one with one slot and one with two.
func history(t *testing.T, ttl time.Duration, blind bool) map[string][]torture.Op {
	const clients, calls = 4, 20
	var mu sync.Mutex
	histories := make(map[string][]torture.Op)
	synctest.Test(t, func(t *testing.T) {
		server := &caslocktest.Server{CallDelay: time.Millisecond}
		done := make(chan struct{})
		go plant(server, 15*time.Millisecond, done, all...)
		var ids atomic.Int64
		var wg sync.WaitGroup
		for client := range clients {
			var backend caslock.Backend = server.Client(0)
			if blind {
				backend = blindBackend{backend}
			}
			store := caslock.New(backend)
			wg.Go(func() {
				slots := 1 + client%linear.Slots
				g := driver.Grant{Name: fmt.Sprint("lock-", slots)}
				has := false
				for range calls {
					time.Sleep(rand.N(10 * time.Millisecond))
					if rand.IntN(20) == 0 {
						time.Sleep(ttl)
					}
					if !has || rand.IntN(5) == 0 {
						slots = 1 + rand.IntN(linear.Slots)
						g = driver.Grant{Name: fmt.Sprint("lock-", slots), Slots: slots, Slot: driver.AnySlot}
					}
					op := torture.Op{Client: client, ID: ids.Add(1), Name: g.Name, Slots: slots,
						Call: time.Now().UnixNano()}
					if g.Token == "" {
						g.Token = fmt.Sprint("token-", op.ID)
					}
					op.Token = g.Token
					ask(store, &g, &op, &has, ttl)
					op.Return = time.Now().UnixNano()
					op.Until = op.Return + int64(late)
					mu.Lock()
					histories[op.Name] = append(histories[op.Name], op)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		close(done)
		time.Sleep(time.Second) // until late writes have arrived
	})
	return histories
}

// ask makes one random call and records its result.
func ask(store *caslock.Store, g *driver.Grant, op *torture.Op, has *bool, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var results []driver.Result
	var err error
	switch n := rand.IntN(4); {
	case !*has || g.Slot == driver.AnySlot || n == 0:
		op.Op = "acquire"
		var granted driver.Grant
		granted, err = store.TryAcquire(ctx, driver.Request{Name: g.Name, Slots: op.Slots, Token: g.Token, TTL: ttl,
			Holder: driver.Holder{Host: "host", PID: op.Client, ID: "x"}})
		switch {
		case err == nil:
			op.Result, op.Slot = "ok", granted.Slot
			*g, *has = granted, true
		case errors.Is(err, driver.ErrNotAcquired):
			op.Result, *has = "no", false
		default:
			op.Result, *has = "unknown", true // the next call repeats the request
		}
		return
	case n < 3:
		op.Op = "extend"
		results, err = store.Extend(ctx, ttl, *g)
	default:
		op.Op = "release"
		results, err = store.Release(ctx, *g)
	}
	switch {
	case err != nil || results[0].Outcome == driver.GrantUnknown:
		op.Result = "unknown"
	case results[0].Outcome == driver.GrantOK:
		op.Result = "ok"
	default:
		op.Result = "lost"
	}
	*has = op.Op == "extend" && op.Result != "lost"
}

// When a role's leader is cut off from the server, another host takes over. A lease kept by a
// session's heartbeat outlives many TTLs.
func TestLeaderAndHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		server := &caslocktest.Server{CallDelay: 2 * time.Millisecond, ClockInterval: 100 * time.Millisecond}
		ctx, stop := context.WithCancel(t.Context())
		var leads, most atomic.Int32
		var links []*dlocktest.Faulty
		var sessions []*dlock.Session
		terms := make(chan int, 10)
		var wg sync.WaitGroup
		for i := range 2 {
			link := dlocktest.NewFaulty(caslock.New(server.Client(-1)))
			session, err := dlock.NewSession(link, dlock.SessionOptions{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			links, sessions = append(links, link), append(sessions, session)
			wg.Go(func() {
				lead := func(ctx context.Context, _ *leader.Term) error {
					most.Store(max(most.Load(), leads.Add(1)))
					defer leads.Add(-1)
					terms <- i
					<-ctx.Done()
					return nil
				}
				if err := leader.Run(ctx, session, leader.Role{Name: "relay", Run: lead}); err != nil {
					t.Error(err)
				}
			})
		}
		first := <-terms
		other := sessions[1-first]
		lease, err := other.Semaphore("work", 1).TryAcquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * ttl)
		if len(terms) > 0 || !lease.Valid() {
			t.Errorf("%d more terms; the lease is valid: %t", len(terms), lease.Valid())
		}
		links[first].Inject(dlocktest.Hang)
		cut := time.Now()
		if second := <-terms; second == first || time.Since(cut) > 3*ttl {
			t.Errorf("host %d leads after host %d, %v after that was cut off", second, first, time.Since(cut))
		}
		links[first].Heal()
		time.Sleep(5 * ttl)
		if len(terms) > 0 || !lease.Valid() || most.Load() != 1 {
			t.Errorf("%d more terms, up to %d at once; the lease is valid: %t", len(terms), most.Load(), lease.Valid())
		}
		if err := lease.Release(ctx); err != nil {
			t.Error(err)
		}
		stop()
		wg.Wait()
		for _, s := range sessions {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
