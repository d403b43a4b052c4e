// Core torments the core in one process: many hosts with many timers on one real Redis, each host behind a proxy of its own.
// Hosts are killed rudely (their connections are reset, nothing is released, a new host takes their place) and paused (their
// connections hold everything back for longer than the TTL and deliver it late), while handlers overstay and ignore their
// context. It prints one JSON object and exits with 1 if a promise was broken, or if it was too weak to tell.
//
// It has found each of these, planted, within ten seconds: one slot more than the limit, a trust window that never closes, a
// release that does not compare tokens.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/redistest"
	"github.com/tickslot/tickslot/internal/servertest"
	"github.com/tickslot/tickslot/internal/torture"
	"github.com/tickslot/tickslot/timer"
)

const (
	ttl          = 600 * time.Millisecond
	storeTimeout = 200 * time.Millisecond
	// onTheWay is how long what a killed host had sent may take to reach the server and be carried out.
	onTheWay = 100 * time.Millisecond
)

type report struct {
	Hosts            int      `json:"hosts"`
	Timers           int      `json:"timers"`
	Seconds          float64  `json:"seconds"`
	Seed             uint64   `json:"seed"`
	Runs             int      `json:"runs"`
	Kills            int64    `json:"kills"`
	Pauses           int64    `json:"pauses"`
	LeasesLost       int64    `json:"leases_lost"`
	NReachedShare    float64  `json:"n_reached_share"`
	OverLimit        int      `json:"over_limit"`
	SameSlot         int      `json:"two_in_one_slot"`
	FenceRegressions int      `json:"fence_regressions"`
	LateRecoveries   int64    `json:"slots_not_grantable_after_ttl"`
	Stuck            int64    `json:"runs_that_did_not_end"`
	TooWeak          []string `json:"too_weak,omitempty"`
	Examples         []string `json:"examples,omitempty"`
}

func main() {
	length := flag.Duration("for", time.Minute, "how long")
	hosts := flag.Int("hosts", 8, "how many hosts")
	timers := flag.Int("timers", 20, "how many timers")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the choice of faults")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	redis.SetLogger(silence{}) // go-redis tells of every connection that we break
	r, err := run(ctx, *length, *hosts, *timers, *seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out, err := json.Marshal(r)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(out))
	if r.OverLimit+r.SameSlot+r.FenceRegressions > 0 || r.LateRecoveries+r.Stuck > 0 || len(r.TooWeak) > 0 {
		os.Exit(1)
	}
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// A tormentor has the hosts and what is known of them.
type tormentor struct {
	server  *redistest.Server
	journal torture.Journal
	limits  map[string]int
	names   []string
	running []atomic.Int64 // valid runs per timer, now
	kills   atomic.Int64
	pauses  atomic.Int64
	lost    atomic.Int64
	late    atomic.Int64
	stuck   atomic.Int64
	checks  sync.WaitGroup
	inspect *redislock.Store
}

func run(ctx context.Context, length time.Duration, hosts, timers int, seed uint64) (report, error) {
	server, err := redistest.Start(redistest.Options{})
	if err != nil {
		return report{}, err
	}
	defer server.Close()
	t := &tormentor{server: server, limits: map[string]int{}, running: make([]atomic.Int64, timers)}
	for i := range timers {
		name := fmt.Sprintf("timer-%02d", i)
		t.names = append(t.names, name)
		t.limits[name] = 1 + i%5
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	t.inspect = redislock.New(client, redislock.Options{})
	defer t.inspect.Close()

	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var group sync.WaitGroup
	for i := range hosts {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		group.Go(func() { t.tormentOneAfterAnother(ctx, i, random) })
	}
	reached := t.sample(ctx)
	group.Wait()
	t.checks.Wait()

	v := t.journal.Check(t.limits)
	r := report{
		Hosts: hosts, Timers: timers, Seconds: time.Since(began).Seconds(), Seed: seed, Runs: v.Runs,
		Kills: t.kills.Load(), Pauses: t.pauses.Load(), LeasesLost: t.lost.Load(), NReachedShare: reached,
		OverLimit: v.OverLimit, SameSlot: v.SameSlot, FenceRegressions: v.FenceRegressions,
		LateRecoveries: t.late.Load(), Stuck: t.stuck.Load(), Examples: v.Examples,
	}
	minutes := length.Minutes()
	for what, weak := range map[string]bool{
		"runs":            float64(r.Runs) < 20_000*minutes,
		"kills":           float64(r.Kills) < 100*minutes,
		"n_reached_share": r.NReachedShare < 0.2,
	} {
		if weak {
			r.TooWeak = append(r.TooWeak, what)
		}
	}
	return r, nil
}

// sample returns in which share of the moments a timer had all its slots in valid use.
func (t *tormentor) sample(ctx context.Context) float64 {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var samples, full int
	for {
		select {
		case <-ctx.Done():
			return float64(full) / float64(max(samples, 1))
		case <-tick.C:
		}
		for i, name := range t.names {
			samples++
			if t.running[i].Load() >= int64(t.limits[name]) {
				full++
			}
		}
	}
}

// tormentOneAfterAnother lets hosts live one after the other until ctx ends.
func (t *tormentor) tormentOneAfterAnother(ctx context.Context, number int, random *rand.Rand) {
	for generation := 0; ctx.Err() == nil; generation++ {
		h, err := t.newHost(fmt.Sprintf("host-%d.%d", number, generation))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		h.live(ctx, random)
	}
}

// A host lives behind its proxy until it is killed.
type host struct {
	t         *tormentor
	holder    dlock.Holder
	proxy     *servertest.Proxy
	client    *redis.Client
	lock      *redislock.Store
	scheduler *timer.Scheduler
	dead      atomic.Bool
	died      chan struct{}
}

func (t *tormentor) newHost(name string) (*host, error) {
	proxy, err := servertest.NewProxy(t.server.Addr())
	if err != nil {
		return nil, err
	}
	h := &host{t: t, holder: dlock.NewHolder(), proxy: proxy, died: make(chan struct{})}
	h.holder.Host = name
	h.client = redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	// The server has just started: its quarantine is short here, or the first half minute would be idle.
	h.lock = redislock.New(h.client, redislock.Options{QuarantineTTL: ttl})
	var timers []timer.Timer
	for i, name := range t.names {
		timers = append(timers, timer.Timer{
			Name: name, Schedule: timer.Every(time.Duration(80+10*(i%4)) * time.Millisecond), MaxConcurrency: t.limits[name], MaxRunTime: 10 * time.Second,
			OnStoreDown: timer.Skip, Run: func(ctx context.Context) error { return h.handle(ctx, i) },
		})
	}
	h.scheduler, err = timer.New(timer.Config{
		Lock: h.lock, TTL: ttl, StoreTimeout: storeTimeout, DrainTimeout: time.Second, Holder: h.holder, Logger: slog.New(slog.DiscardHandler),
	}, timers...)
	return h, err
}

// handle works for a while, and now and then overstays the loss of its lease.
func (h *host) handle(ctx context.Context, number int) error {
	r, _ := timer.RunFromContext(ctx)
	work := time.Duration(20+rand.IntN(80)) * time.Millisecond
	overstay := time.Duration(0)
	if rand.IntN(20) == 0 {
		work = time.Duration(300+rand.IntN(900)) * time.Millisecond
		overstay = 2 * ttl
	}
	ends := time.Now().Add(work)
	counted := false
	if r.Valid() && !h.dead.Load() {
		h.t.running[number].Add(1)
		counted = true
	}
	h.t.journal.Witness(
		torture.Stretch{Timer: r.Timer(), Slot: r.Slot(), Fence: int64(r.Fence()), Host: h.holder.Host},
		r.Valid,
		func() bool { return !h.dead.Load() && time.Now().Before(ends) },
		func() { time.Sleep(5 * time.Millisecond) },
	)
	if counted {
		h.t.running[number].Add(-1)
	}
	if cause := context.Cause(ctx); cause != nil && !h.dead.Load() {
		h.t.lost.Add(1)
		select { // it ignores that
		case <-time.After(overstay):
		case <-h.died:
		}
	}
	return nil
}

// live runs the host, pauses it now and then, and kills it.
func (h *host) live(ctx context.Context, random *rand.Rand) {
	defer h.proxy.Close()
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	done := make(chan error, 1)
	go func() { done <- h.scheduler.Run(run) }()

	life := time.NewTimer(2*time.Second + time.Duration(random.Int64N(int64(3*time.Second))))
	defer life.Stop()
	if random.IntN(3) == 0 {
		h.pause(ctx, life, random)
	}
	select {
	case <-life.C:
		h.kill()
	case <-ctx.Done():
	}
	stop()
	if err := <-done; err != nil {
		h.t.stuck.Add(1)
		fmt.Fprintln(os.Stderr, h.holder.Host, err)
	}
	h.lock.Close()
	h.client.Close()
}

// pause holds back whatever the host sends and is sent, for longer than its leases last, and then delivers it.
func (h *host) pause(ctx context.Context, life *time.Timer, random *rand.Rand) {
	wait := func(d time.Duration) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	wait(time.Duration(random.Int64N(int64(time.Second))))
	h.t.pauses.Add(1)
	h.proxy.BlackHole(true)
	wait(ttl + time.Duration(random.Int64N(int64(ttl))))
	h.proxy.BlackHole(false)
}

// kill ends the host rudely: nothing that it sends arrives any more, its handlers are gone, nothing is released. One TTL later
// none of its slots may still be held.
func (h *host) kill() {
	h.proxy.Cut()
	h.dead.Store(true)
	close(h.died)
	killed := time.Now()
	h.t.kills.Add(1)
	h.t.checks.Go(func() {
		time.Sleep(time.Until(killed.Add(ttl + onTheWay)))
		for _, name := range h.t.names {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			list, err := h.t.inspect.List(ctx, "timer:"+name, h.t.limits[name])
			cancel()
			if err != nil {
				h.t.late.Add(1)
				fmt.Fprintln(os.Stderr, err)
			}
			for _, held := range list {
				if held.Holder == h.holder {
					h.t.late.Add(1)
					fmt.Fprintf(os.Stderr, "%s: slot %d still held by %s, %v after it was killed\n", name, held.Slot, held.Holder, time.Since(killed))
				}
			}
		}
	})
}
