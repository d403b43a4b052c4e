package timer_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/timertest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

var fullClocks = flag.Int("clocks", 0,
	"ticks of one second for which clocks that differ are tested on real servers (1000: 19 minutes); 0: 50 of 200 ms")

// A clockTest runs five hosts with different clocks.
type clockTest struct {
	period time.Duration
	ticks  int
	warm   time.Duration // how long hosts run before the test begins to record
	apart  []float64     // the offsets of the clocks, in periods
	open   func(host int) dlock.DistributedLock
	prefix string // of the timers' names
}

// A clockResult records what the hosts did.
type clockResult struct {
	starts map[string]map[time.Time]int // of the recorded ticks, by timer and tick
	shares map[string][5]int
	mu     sync.Mutex
	slow   atomic.Int64 // the longest call to the store, or stall of a goroutine
	books  string
}

func (r *clockResult) took(d time.Duration) {
	for {
		was := r.slow.Load()
		if int64(d) <= was || r.slow.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}

// runs returns the number of runs, and the largest number of runs of one tick.
func (r *clockResult) runs(name string) (runs, most int) {
	for _, n := range r.starts[name] {
		runs += n
		most = max(most, n)
	}
	return runs, most
}

// A clocked is a store that measures its calls.
type clocked struct {
	dlock.DistributedLock
	r *clockResult
}

func (c clocked) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	defer func(began time.Time) { c.r.took(time.Since(began)) }(time.Now())
	return c.DistributedLock.TryAcquire(ctx, req)
}

func (c clocked) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	defer func(began time.Time) { c.r.took(time.Since(began)) }(time.Now())
	return c.DistributedLock.Release(ctx, grants...)
}

func (c clocked) List(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
	return driver.CapabilitiesOf(c.DistributedLock).Lister.List(ctx, name, slots)
}

// run makes five hosts run timers whose jobs take 10 ms (or a fifth of the period, if that is
// shorter), until each host has tried every recorded tick.
func (c clockTest) run(t *testing.T, timers ...timer.Timer) *clockResult {
	r := &clockResult{starts: map[string]map[time.Time]int{}, shares: map[string][5]int{}}
	var from, to atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var hosts []*timer.Scheduler
	var running sync.WaitGroup
	for i := range 5 {
		own := make([]timer.Timer, len(timers))
		for k, job := range timers {
			job.Schedule, job.OnStoreDown = schedule.Every(c.period).Offset(0), timer.StoreDownSkip
			name := job.Name
			job.Name = c.prefix + name
			job.Run = func(ctx context.Context) error {
				run, _ := timer.RunFromContext(ctx)
				if at := run.Tick().UnixNano(); at >= from.Load() && at < to.Load() {
					r.mu.Lock()
					if r.starts[name] == nil {
						r.starts[name] = map[time.Time]int{}
					}
					r.starts[name][run.Tick()]++
					shares := r.shares[name]
					shares[i]++
					r.shares[name] = shares
					r.mu.Unlock()
				}
				return sleep(ctx, min(10*time.Millisecond, c.period/5))
			}
			own[k] = job
		}
		h, err := timer.New(timer.Config{Store: clocked{c.open(i), r}, TTL: 9 * time.Second,
			StoreTimeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler),
			Holder: dlock.Holder{Host: fmt.Sprint("host", i), PID: 1, ID: rand.Text()}}, own...)
		if err != nil {
			t.Fatal(err)
		}
		timer.SetSkew(h, time.Duration(c.apart[i]*float64(c.period)))
		hosts = append(hosts, h)
		running.Go(func() {
			if err := h.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	begin := time.Now().Add(c.warm + 10*c.period).Truncate(c.period)
	end := begin.Add(time.Duration(c.ticks) * c.period)
	to.Store(end.UnixNano())
	from.Store(begin.UnixNano())
	patience := end.Add(time.Minute)
	for done := false; !done; {
		began := time.Now()
		time.Sleep(c.period / 20)
		r.took(time.Since(began) - c.period/20)
		done = true
		for _, h := range hosts {
			for _, st := range h.Status().Timers {
				done = done && st.Next.After(end)
			}
		}
		if time.Now().After(patience) {
			t.Fatal("the ticks do not come")
		}
	}
	stop()
	running.Wait()
	for i, h := range hosts {
		for _, st := range h.Status().Timers {
			if timertest.Unaccounted(st) != 0 {
				t.Errorf("host %d: %+v", i, st)
			}
			r.books += fmt.Sprintf("\n%s on host %d (clock %+v periods): %d ticks, %d started, skipped %v", st.Name, i,
				c.apart[i], st.Ticks, st.Started, st.Skipped)
		}
	}
	return r
}

var (
	farApart = []float64{-2, 2, 0, 1, -1}
	nearby   = []float64{.4, -.4, 0, .2, -.2}
	agreeing = []float64{0, 0, 0, 0, 0}
)

func limits() []timer.Timer {
	return []timer.Timer{
		{Name: "one"},
		{Name: "three", MaxConcurrency: 3, MaxPerTick: 3},
		{Name: "all", MaxConcurrency: timer.NoLimit, MaxPerTick: timer.NoLimit},
		{Name: "each", MaxConcurrency: 5, MaxPerTick: timer.NoLimit, MaxPerHost: 1},
	}
}

// check checks what must always hold, and what must hold if the machine did not stall.
func (c clockTest) check(t *testing.T, r *clockResult, agree, undisturbed bool) {
	t.Helper()
	for _, want := range []struct {
		name    string
		perTick int
		exactly bool
	}{{"one", 1, true}, {"three", 3, agree}, {"all", 5, true}, {"each", 5, true}} {
		runs, most := r.runs(want.name)
		t.Logf("%s: %d ticks, %d runs, up to %d of a tick", want.name, len(r.starts[want.name]), runs, most)
		if most > want.perTick {
			t.Errorf("%s: %d runs of one tick, want at most %d", want.name, most, want.perTick)
		}
		switch exact := runs == c.ticks*want.perTick; {
		case !want.exactly || exact:
		case undisturbed:
			t.Errorf("%s: %d runs, want exactly %d%s", want.name, runs, c.ticks*want.perTick, r.books)
		// A host that stalled for longer than a period misses ticks, and a slot that is released
		// late makes a tick find all slots held.
		default:
			t.Logf("%s: %d runs instead of %d, because the machine stalled%s", want.name, runs,
				c.ticks*want.perTick, r.books)
		}
	}
}

// Five hosts whose clocks differ by up to two seconds run jobs much shorter than that. MaxPerTick
// holds for each tick, and with MaxPerTick 1 every tick runs. If clocks agree within an interval,
// every start that a tick allows is used. Otherwise hosts whose clocks are ahead claim later ticks
// first. Without a limit every host runs every tick.
//
// Fails when the claim of a tick is anything but its instant (time.Now in acquire), or when memlock
// does not refuse late ticks.
func TestClocksThatDiffer(t *testing.T) {
	for name, clocks := range map[string][]float64{"two seconds": farApart, "within an interval": nearby} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := memlock.New()
				// Until the host whose clock is ahead has had its first tick, a host whose clock is
				// behind may run all ticks.
				c := clockTest{period: time.Second, warm: time.Minute, ticks: testkit.Rounds(t, 60, 1000),
					apart: clocks, open: func(host int) dlock.DistributedLock {
						return &slowStore{DistributedLock: store, away: time.Duration(host) * 200 * time.Microsecond,
							more: mathrand.New(mathrand.NewPCG(uint64(host), 1))}
					}}
				r := c.run(t, limits()...)
				c.check(t, r, clocks[0] != farApart[0], true)
				synctest.Wait()
			})
		})
	}
}

// Like TestClocksThatDiffer, on real servers: 50 ticks of 200 ms with clocks that differ by up to
// 400 ms, or, with -clocks 1000, ticks of a second with clocks that differ by up to two seconds.
// The test also logs how evenly hosts share the ticks if their clocks agree.
//
// Fails when TestClocksThatDiffer does.
func TestClocksThatDifferOnServers(t *testing.T) {
	if *fullClocks == 0 {
		testkit.Long(t)
	}
	for name, server := range map[string]func(t *testing.T) func() dlock.DistributedLock{"redis": onRedis,
		"postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := server(t)
			awaitGrants(t, open())
			for _, fleet := range []struct {
				name   string
				clocks []float64
				timers []timer.Timer
			}{
				{"apart", farApart, limits()},
				{"close", nearby, limits()},
				{"equal", agreeing, append(limits(), timer.Timer{Name: "first come"},
					timer.Timer{Name: "least recent", LeastRecentFirst: true})},
			} {
				t.Run(fleet.name, func(t *testing.T) {
					t.Parallel()
					c := clockTest{period: 200 * time.Millisecond, ticks: 50,
						apart: fleet.clocks, prefix: fleet.name + " ",
						open: func(int) dlock.DistributedLock { return open() }}
					if *fullClocks > 0 {
						c.period, c.ticks, c.warm = time.Second, *fullClocks, 100*time.Second
					}
					for round := 1; ; round++ {
						c.prefix = fmt.Sprintf("%s %d ", fleet.name, round)
						r := c.run(t, fleet.timers...)
						slow := time.Duration(r.slow.Load())
						undisturbed := slow < c.period/4
						t.Logf("round %d: the slowest call or pause took %v", round, slow)
						c.check(t, r, fleet.name != "apart", undisturbed)
						for _, name := range []string{"first come", "least recent"} {
							if shares, ok := r.shares[name]; ok {
								runs, most := r.runs(name)
								t.Logf("%s: %d runs, up to %d of a tick, by hosts %v", name, runs, most, shares)
								for i, n := range shares {
									if *fullClocks > 0 && name == "least recent" && undisturbed &&
										(n < c.ticks*12/100 || n > c.ticks*30/100) {
										t.Errorf("least recent: host %d had %d of %d runs", i, n, runs)
									}
								}
							}
						}
						if undisturbed || round == 3 || *fullClocks > 0 {
							return
						}
					}
				})
			}
		})
	}
}

func onRedis(t *testing.T) func() dlock.DistributedLock {
	server := redistest.Shared(t)
	client := redis.NewClient(&redis.Options{Password: servertest.Canary, Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	prefix := rand.Text() + ":"
	return func() dlock.DistributedLock {
		store := redislock.New(client, redislock.Options{Prefix: prefix, QuarantineTTL: 9 * time.Second})
		t.Cleanup(func() { store.Close() })
		return store
	}
}

func onPostgres(t *testing.T) func() dlock.DistributedLock {
	server := sqltest.SharedPostgres(t)
	config, err := pgxpool.ParseConfig(server.DSN("", "", server.NewDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	open := func() dlock.DistributedLock {
		store := pgxlock.New(pool, sqllock.Options{})
		t.Cleanup(func() { store.Close() })
		return store
	}
	if err := open().(*sqllock.Store).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return open
}

// awaitGrants waits until the quarantine of a server that has just started is over.
func awaitGrants(t *testing.T, store dlock.DistributedLock) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "a grant", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := store.TryAcquire(ctx, driver.Request{Name: "awake", Token: rand.Text(), TTL: time.Millisecond})
		return err
	})
}
