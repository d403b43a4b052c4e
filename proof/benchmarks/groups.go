package main

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/redislock"
)

// A lab is the state that all groups share.
type lab struct {
	full     bool
	load     float64 // load average of the machine before the benchmark
	commit   string  // tickslot's commit before the plots are written, or ""
	redis    *redisServer
	postgres *postgresServer
}

// window returns how long a case is measured in a round.
func (l *lab) window(short, full time.Duration) time.Duration {
	if l.full {
		return full
	}
	return short
}

// groups returns all groups in the order of the table of targets.
func (l *lab) groups() []Group {
	list := []Group{l.mutex(8), l.mutex(many), l.slot(8), l.slot(many), l.floor(), l.asynq(8), l.oneOfFifty()}
	for _, percent := range []int{0, 90, 100} {
		list = append(list, l.byN(percent))
	}
	list = append(list, l.burst(), l.steady(), l.heartbeat(), l.perFire(100_000), l.million(), l.rows(), l.idle())
	if l.full {
		list = append(list, l.latency(), l.idleAtOnce(), l.millionOfAMinute(), l.mutex(1), l.asynq(1), l.perFire(1_000),
			l.perFire(10_000))
		for _, n := range []int{5, 50, 500} {
			list = append(list, l.naiveByN(n))
		}
		for _, n := range []int{1, 4, 16, 64} {
			list = append(list, l.hosts(n))
		}
	}
	return append(append(list, l.durable()...), l.outboxes()...)
}

// on is a case with cycles on Redis.
func on(name string, open func() (*cycles, error)) Case {
	return Case{Name: name, Open: func() (runner, error) {
		c, err := open()
		if err != nil {
			return nil, err
		}
		return c, nil
	}}
}

// fullOnly marks a case that has no target and is omitted with -short.
func fullOnly(c Case) Case { c.FullOnly = true; return c }

const (
	perSecond = "cycles/s"
	p50       = "µs (p50)"
)

// many is the number of callers in one process from which on sharing round trips pays. Callers
// always share them, so one figure is compared with both targets.
const many = 64

func (l *lab) mutex(c int) Group {
	g := Group{
		Name: fmt.Sprintf("mutex, c=%d", c), Unit: perSecond, Window: l.window(30*time.Millisecond,
			300*time.Millisecond), Begin: l.redis.flush,
		Cases: []Case{
			on("tickslot Mutex", func() (*cycles, error) { return ours{names: each("mutex")}.on(l.redis, c) }),
			on("redsync", func() (*cycles, error) { return redsyncOn(l.redis, c) }),
			on("script of SET NX and INCR", func() (*cycles, error) { return setAndFence(l.redis, c) }),
			fullOnly(on("SET NX PX", func() (*cycles, error) { return setNX(l.redis, c) })),
			fullOnly(on("two PINGs", func() (*cycles, error) { return twoPings(l.redis, c) })),
			fullOnly(on("bsm/redislock", func() (*cycles, error) { return bsmOn(l.redis, c) })),
			fullOnly(on("rueidislock", func() (*cycles, error) { return rueidisOn(l.redis, c) })),
			fullOnly(on("etcd concurrency", func() (*cycles, error) { return etcdOn(c) })),
		},
	}
	if c > 1 {
		g.Claims = []Claim{{Peer: "redsync", Target: 1}}
	}
	if c == many {
		g.Claims = append(g.Claims, Claim{Name: g.Name + ", sharing round trips", Peer: "redsync", Target: 2})
	}
	return g
}

// slotCycle takes a slot with a tick, a fence and a holder, and releases it.
func (l *lab) slotCycle(c int) Case {
	return on("tickslot slot and tick", func() (*cycles, error) {
		return ours{slots: 5, tick: true, names: each("slot")}.on(l.redis, c)
	})
}

func (l *lab) slot(c int) Group {
	g := Group{
		Name: fmt.Sprintf("slot, tick, fence, holder, c=%d", c), Unit: perSecond, Window: l.window(30*time.Millisecond,
			300*time.Millisecond), Begin: l.redis.flush,
		Cases:  []Case{l.slotCycle(c), on("redsync", func() (*cycles, error) { return redsyncOn(l.redis, c) })},
		Claims: []Claim{{Peer: "redsync", Target: 0.75}},
	}
	if c == many {
		g.Claims = append(g.Claims, Claim{Name: g.Name + ", sharing round trips", Peer: "redsync", Target: 1.2})
	}
	return g
}

func (l *lab) floor() Group {
	return Group{
		Name: "slot beside the floor, c=1", Unit: perSecond, Window: l.window(30*time.Millisecond,
			300*time.Millisecond), Begin: l.redis.flush,
		Cases:  []Case{l.slotCycle(1), on("two PINGs", func() (*cycles, error) { return twoPings(l.redis, 1) })},
		Claims: []Claim{{Peer: "two PINGs", Target: 0.75}},
	}
}

// asynq compares semaphores. All workers share one, as asynq's tasks do.
func (l *lab) asynq(c int) Group {
	const slots = 10
	return Group{
		Name: fmt.Sprintf("semaphore, c=%d", c), Unit: perSecond, Window: l.window(30*time.Millisecond,
			300*time.Millisecond), Begin: l.redis.flush,
		Cases: []Case{
			on("tickslot Semaphore", func() (*cycles, error) {
				return ours{slots: slots, names: shared("semaphore")}.on(l.redis, c)
			}),
			on("asynq x/rate", func() (*cycles, error) { return asynqOn(l.redis, c, slots) }),
			on("its script, go-redis v9", func() (*cycles, error) { return sortedSet(l.redis, c, slots) }),
		},
		Claims: []Claim{{Peer: "asynq x/rate", Target: 1}},
	}
}

// partlyHeld is tickslot's semaphore with some slots held.
func (l *lab) partlyHeld(o ours, workers, held int,
	value func([]time.Duration) float64) (*cycles, error) {
	c, err := o.on(l.redis, workers)
	if err != nil {
		return nil, err
	}
	c.value, c.allHeld = value, held == o.slots
	for _, name := range o.nameList(workers) {
		if err := l.holdOnce(name, o.slots, held); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// holdOnce holds slots of a name unless they are already held. A case and its control share them.
func (l *lab) holdOnce(name string, slots, held int) error {
	store := l.redis.store(redislock.Options{})
	defer store.Close()
	list, err := store.List(ctx, name, slots)
	if err != nil || len(list) >= held {
		return err
	}
	return hold(store, name, slots, held)
}

func (l *lab) oneOfFifty() Group {
	const slots, held = 50, 45
	return Group{
		Name: "1 of 50, 90 % held, c=1", Unit: perSecond, Window: l.window(60*time.Millisecond, 300*time.Millisecond),
		Begin: l.redis.flush,
		Cases: []Case{
			on("tickslot Semaphore", func() (*cycles, error) {
				return l.partlyHeld(ours{slots: slots, names: shared("fifty")}, 1, held, nil)
			}),
			on("naive loop", func() (*cycles, error) { return naiveLoop{slots, held, shared("fifty")}.on(l.redis, 1) }),
		},
		Claims: []Claim{{Peer: "naive loop", Target: 18}},
	}
}

func (l *lab) byN(percent int) Group {
	g := Group{
		Name: fmt.Sprintf("p50 by N, %d %% held", percent), Unit: p50, Less: true, Window: l.window(25*time.Millisecond,
			300*time.Millisecond), Begin: l.redis.flush, Plot: "n",
		Claims: []Claim{{Name: fmt.Sprintf("p50 at N=10000 vs N=5, %d %% held", percent), Peer: "N=5", Target: 1.3,
			AtMost: true}},
	}
	for _, n := range []int{10_000, 5, 50, 500} {
		c := on(fmt.Sprintf("N=%d", n), func() (*cycles, error) {
			return l.partlyHeld(ours{slots: n, names: shared(fmt.Sprint("n", n))}, 1, n*percent/100, medianTime)
		})
		if n == 50 || n == 500 {
			c = fullOnly(c)
		}
		g.Cases = append(g.Cases, c)
	}
	return g
}

// naiveByN is plotted next to byN.
func (l *lab) naiveByN(n int) Group {
	name := fmt.Sprintf("N=%d", n)
	return Group{
		Name: fmt.Sprintf("p50 of the naive loop, N=%d, 90 %% held", n), Unit: p50, Less: true,
		Window: 300 * time.Millisecond, Begin: l.redis.flush, Plot: "n-naive",
		Cases: []Case{
			on(name, func() (*cycles, error) {
				return l.partlyHeld(ours{slots: n, names: shared("n")}, 1, n*90/100, medianTime)
			}),
			on(name+" naive", func() (*cycles, error) {
				c, err := naiveLoop{n, n * 90 / 100, shared("n")}.on(l.redis, 1)
				if err == nil {
					c.value = medianTime
				}
				return c, err
			}),
		},
	}
}

// The timers of one host, each with slots of which some are held.
const dueTimers, dueSlots, dueHeld = 64, 50, 45

func (l *lab) dueOurs() (*cycles, error) {
	return l.partlyHeld(ours{slots: dueSlots, tick: true, names: each("burst")}, dueTimers, dueHeld, nil)
}

func (l *lab) dueNaive() (*cycles, error) {
	return naiveLoop{dueSlots, dueHeld, each("burst")}.on(l.redis, dueTimers)
}

// burst measures timers that are due at the same moment.
func (l *lab) burst() Group {
	atOnce := func(name string, open func() (*cycles, error)) Case {
		return Case{Name: name, Open: func() (runner, error) {
			c, err := open()
			if err != nil {
				return nil, err
			}
			return burst{c}, nil
		}}
	}
	return Group{
		Name: "64 due timers, N=50, 90 % held", Unit: "ms until all are answered", Less: true,
		Window: l.window(80*time.Millisecond, 300*time.Millisecond), Begin: l.redis.flush,
		Cases: []Case{
			atOnce("tickslot slot and tick", l.dueOurs),
			atOnce("naive loop", l.dueNaive),
			fullOnly(atOnce("a PING each", func() (*cycles, error) { return twoPings(l.redis, dueTimers) })),
		},
		Claims: []Claim{{Peer: "naive loop", Target: 40}},
	}
}

// steady measures the same timers, each of which is due again as soon as it has released its slot.
func (l *lab) steady() Group {
	return Group{
		Name: "64 timers again and again, N=50, 90 % held", Unit: perSecond, Window: l.window(60*time.Millisecond,
			300*time.Millisecond), Begin: l.redis.flush,
		Cases: []Case{
			on("tickslot slot and tick", l.dueOurs),
			on("naive loop", l.dueNaive),
			fullOnly(on("two PINGs", func() (*cycles, error) { return twoPings(l.redis, dueTimers) })),
		},
		Claims: []Claim{{Peer: "naive loop", Target: 40}},
	}
}

func (l *lab) heartbeat() Group {
	const leases = 10_000
	beat := l.window(beatTTL/3, 2*beatTTL/3)
	hearts := func(name, kind string) Case {
		return Case{Name: name, Open: inChild(spec{Kind: kind, N: leases, Redis: l.redis.Addr(), Every: beat})}
	}
	g := Group{
		Name: "heartbeats of 10,000 leases", Unit: "ms CPU per 10,000", Less: true, Sharing: together, Window: beat,
		Begin: l.redis.agedFor(3 * beat),
		Cases: []Case{
			hearts("tickslot", "heartbeat-tickslot"),
			hearts("bsm/redislock, a goroutine each", "heartbeat-bsm"),
			fullOnly(hearts("redsync, a goroutine each", "heartbeat-redsync")),
		},
		Claims: []Claim{
			{Peer: "bsm/redislock, a goroutine each", Target: 30},
			{Name: "goroutines of 10,000 heartbeats", Key: "goroutines", Unit: "goroutines", Bound: 1, Target: 1,
				AtMost: true},
		},
	}
	return g
}

// warm returns how long schedulers run before the measurement: until each timer has fired once and
// made its first-call allocations. With -short there is no time for that, and the figure includes
// them.
func (l *lab) warm() time.Duration { return l.window(1500*time.Millisecond, 11*time.Second) }

func (l *lab) perFire(n int) Group {
	fires := func(name, kind string) Case {
		return Case{Name: name, Open: inChild(spec{Kind: kind, N: n, Metrics: true, Warm: l.warm(), Value: "µs/fire"})}
	}
	g := Group{
		Name: fmt.Sprintf("scheduler CPU per fire, %d timers", n), Unit: "µs CPU per fire", Less: true,
		Sharing: caseByCase,
		Window:  l.window(120*time.Millisecond, 2*time.Second), Plot: "timers",
		Cases: []Case{fires("tickslot, metrics on", "tickslot"), fires("robfig/cron", "robfig"),
			fires("gocron", "gocron")},
	}
	if n == 100_000 && l.full {
		g.Sharing = reopened
	}
	if n == 100_000 {
		g.Claims = []Claim{
			{Peer: "robfig/cron", Target: 8, OnTime: true},
			{Peer: "gocron", Target: 4, OnTime: true},
			{Name: "p99 lateness, 100,000 timers", Key: "p99 ms", Unit: "ms", Bound: 3, Target: 1, AtMost: true,
				OnTime: true},
		}
	}
	return g
}

func (l *lab) million() Group {
	s := spec{Kind: "tickslot", N: 1_000_000, Bytes: true, Fired: l.full, Warm: l.warm(), Value: "p99 ms"}
	g := Group{
		Name: "1,000,000 timers", Unit: "ms (p99)", Less: true, Sharing: caseByCase, NoControl: !l.full,
		Window: l.window(120*time.Millisecond, 3*time.Second), Plot: "million",
		Cases: []Case{{Name: "tickslot, metrics off", Open: inChild(s)}},
		Claims: []Claim{
			{Name: "p99 lateness, 1,000,000 timers", Bound: 10, Target: 1, AtMost: true, OnTime: true},
			{Name: "bytes per timer, 1,000,000 timers", Key: "bytes waiting", Unit: "B", Bound: 1000, Target: 1,
				AtMost: true},
		},
	}
	return g
}

// millionOfAMinute has a million timers at a rate that a two-core machine can handle: 16,667 fires
// a second. In the group million they fire 256,000 times.
func (l *lab) millionOfAMinute() Group {
	s := spec{Kind: "tickslot", N: 1_000_000, Every: time.Minute, Warm: 65 * time.Second, Value: "p99 ms"}
	return Group{
		Name: "1,000,000 timers of 1 min", Unit: "ms (p99)", Less: true, Sharing: caseByCase, Window: 10 * time.Second,
		Cases: []Case{{Name: "tickslot, metrics off", Open: inChild(s)}},
		Claims: []Claim{{Name: "p99 lateness, 1,000,000 timers of 1 min", Bound: 10, Target: 1, AtMost: true,
			OnTime: true}},
	}
}

func (l *lab) rows() Group {
	const slots, held, workers = 50, 45, 16
	return Group{
		Name: "Postgres, N=50, 90 % held, 16 workers", Unit: perSecond, Window: l.window(100*time.Millisecond,
			500*time.Millisecond),
		Begin: func() error { return l.postgres.prepare(slots, held) },
		Cases: []Case{
			{Name: "tickslot Semaphore", Open: func() (runner, error) { return l.postgres.oursOn(slots, workers) }},
			{Name: "naive loop", Open: func() (runner, error) { return l.postgres.naiveOn(slots, workers) }},
		},
		Claims: []Claim{{Peer: "naive loop", Target: 5}},
	}
}

// An idle process has a thousand timers with a period of a minute, and nothing else to do.
var idleTimers = spec{Kind: "tickslot", N: 1000, Every: time.Minute, Metrics: true, Warm: time.Second, Value: "core %"}

const (
	onRedis = "tickslot on Redis"
	local   = "tickslot without a store"
)

func (l *lab) idleCases(s spec) []Case {
	stored := s
	stored.Redis = l.redis.Addr()
	return []Case{{Name: onRedis, Open: inChild(stored)}, {Name: local, Open: inChild(s)}}
}

func idleClaims(how string) []Claim {
	return []Claim{
		{Name: "idle with 1,000 timers of 1 min, " + how + ", on Redis", Bound: 0.1, Target: 1, AtMost: true},
		{Name: "idle with 1,000 timers of 1 min, " + how + ", without a store", Ours: local, Bound: 0.1, Target: 1,
			AtMost: true},
	}
}

// idle measures Every(time.Minute). Its names spread the timers over the minute, so the process
// wakes up 17 times a second.
func (l *lab) idle() Group {
	bare := idleTimers
	bare.Kind = "wakes"
	pinging := bare
	pinging.Redis = l.redis.Addr()
	return Group{
		Name: "1,000 timers of 1 min", Unit: "% of a core", Less: true, Sharing: together,
		Window: l.window(600*time.Millisecond, 5*time.Second), Begin: l.redis.agedFor(beatTTL),
		Cases: append(l.idleCases(idleTimers),
			fullOnly(Case{Name: "one time.Timer that wakes as often, and two PINGs", Open: inChild(pinging)}),
			fullOnly(Case{Name: "one time.Timer that wakes as often", Open: inChild(bare)})),
		Claims: idleClaims("spread over it"),
	}
}

// idleAtOnce measures a cron expression or an Offset: all timers are due at the same instant, and
// the window contains one such instant.
func (l *lab) idleAtOnce() Group {
	s := idleTimers
	s.AtOnce = true
	return Group{
		Name: "1,000 timers of 1 min, all at once", Unit: "% of a core", Less: true, Sharing: together,
		Window: time.Minute, Rounds: 3, Begin: l.redis.agedFor(beatTTL),
		Cases:  l.idleCases(s),
		Claims: idleClaims("all at once"),
	}
}
