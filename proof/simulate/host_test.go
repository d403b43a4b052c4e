package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A kind is a timer that all hosts have.
type kind struct {
	name              string
	every             time.Duration
	limitNow          int // MaxConcurrency of hosts that start now; guarded by world.mu
	perTick           int
	perHost           int
	down              timer.StoreDownPolicy
	maxRun            time.Duration
	shortest, longest time.Duration // of runs
	naughty           bool          // its handlers panic, exceed MaxRunTime, and ignore their contexts
}

func newKinds() []*kind {
	return []*kind{
		{name: "busy", every: 10 * time.Minute, limitNow: 2, perTick: 2, perHost: 1, down: timer.StoreDownSkip,
			maxRun: time.Hour, shortest: 10 * time.Minute, longest: 30 * time.Minute},
		{name: "hourly", every: time.Hour, limitNow: 5, perTick: timer.NoLimit, perHost: 2, down: timer.StoreDownSkip,
			maxRun: 2 * time.Hour, shortest: time.Minute, longest: 10 * time.Minute},
		{name: "mutex", every: 10 * time.Minute, limitNow: 1, perTick: 1, perHost: 1, down: timer.StoreDownRunLocal,
			maxRun: time.Hour, shortest: time.Second, longest: time.Minute},
		{name: "once", every: 30 * time.Minute, limitNow: 2, perTick: 1, perHost: 1, down: timer.StoreDownRunLocal,
			maxRun: time.Hour, shortest: time.Minute, longest: 15 * time.Minute},
		{name: "resized", every: 20 * time.Minute, limitNow: 2, perTick: timer.NoLimit, perHost: 2,
			down: timer.StoreDownSkip, maxRun: time.Hour, shortest: time.Minute, longest: 8 * time.Minute},
		{name: "naughty", every: 30 * time.Minute, limitNow: 2, perTick: 2, perHost: 2, down: timer.StoreDownSkip,
			maxRun: 3 * time.Minute, shortest: 30 * time.Second, longest: 4 * time.Minute, naughty: true},
		{name: "rare", every: 6 * time.Hour, limitNow: 1, perTick: 1, perHost: 1, down: timer.StoreDownRunLocal,
			maxRun: time.Hour, shortest: 5 * time.Minute, longest: 20 * time.Minute},
	}
}

const (
	drainTimeout = 20 * time.Second
	longestDeaf  = 2 * time.Minute // how long a handler continues after its context has ended
)

// A host is one process, from its start to its end.
type host struct {
	w         *world
	name      string
	link      *link
	scheduler *timer.Scheduler
	firsts    map[string]time.Time // first ticks, by timer
	died      chan struct{}

	mu     sync.Mutex
	random *rand.Rand // for its handlers
}

func (w *world) newHost(name string, seed, number uint64) (*host, error) {
	h := &host{w: w, name: name, died: make(chan struct{}), random: rand.New(rand.NewPCG(seed, 2*number))}
	h.link = &link{w: w, h: h, random: rand.New(rand.NewPCG(seed, 2*number+1))}
	var timers []timer.Timer
	w.mu.Lock()
	for _, b := range w.timers {
		limit := b.limitNow
		timers = append(timers, timer.Timer{
			Name: b.name, Schedule: schedule.Every(b.every), MaxConcurrency: limit, MaxPerTick: b.perTick,
			MaxPerHost: min(b.perHost, limit),
			MaxRunTime: b.maxRun, OnStoreDown: b.down, Run: func(ctx context.Context) error {
				return h.handle(ctx, b, limit)
			},
		})
	}
	w.mu.Unlock()
	slices.SortFunc(timers, func(a, b timer.Timer) int { return strings.Compare(a.Name, b.Name) })
	var err error
	h.scheduler, err = timer.New(timer.Config{
		Store: h.link, TTL: ttl, StoreTimeout: w.storeTimeout, DrainTimeout: drainTimeout,
		Holder: dlock.Holder{Host: name, PID: int(number)}, Logger: slog.New(slog.DiscardHandler),
	}, timers...)
	if err != nil {
		return nil, err
	}
	h.firsts = map[string]time.Time{}
	for _, st := range h.scheduler.Status().Timers {
		h.firsts[st.Name] = st.Next
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grid = h.firsts["busy"]
	return h, nil
}

func (h *host) isDead() bool {
	select {
	case <-h.died:
		return true
	default:
		return false
	}
}

type mood int

const (
	fine mood = iota
	fails
	panics
	overstays // works past MaxRunTime
	deaf      // works after its context has ended
)

func (h *host) handle(ctx context.Context, b *books, limit int) error {
	r, _ := timer.RunFromContext(ctx)
	v := &visit{Run: r, host: h, ctx: ctx, limit: limit}
	h.mu.Lock()
	work := b.shortest + time.Duration(h.random.Int64N(int64(b.longest-b.shortest)))
	m := fine
	if d := h.random.IntN(100); d < 6 || b.naughty && d < 40 {
		m = mood(1 + h.random.IntN(4))
	}
	after := time.Duration(h.random.Int64N(int64(longestDeaf)))
	h.mu.Unlock()
	if m == overstays {
		work = b.maxRun + after
	}
	if m != fine {
		h.w.mu.Lock()
		h.w.report.Faults.count([...]string{"", "handler_fails", "handler_panics", "handler_overstays",
			"handler_deaf"}[m])
		h.w.mu.Unlock()
	}

	h.w.started(v)
	defer h.w.ended(v)
	unwatch := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), dlock.ErrLost) {
			h.w.leaseLost(v)
		}
	})
	defer unwatch()
	ends := time.NewTimer(work)
	defer ends.Stop()
	select {
	case <-ends.C:
	case <-h.died:
		return nil
	case <-ctx.Done():
		if m == deaf || m == overstays {
			ends.Reset(after)
			select {
			case <-ends.C:
			case <-h.died:
			}
		}
		return context.Cause(ctx)
	}
	switch m {
	case fails:
		return errPlanned
	case panics:
		panic(errPlanned)
	}
	return nil
}

// live runs the host until an order ends it, and checks its counts.
func (h *host) live(orders <-chan order) {
	began := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- h.scheduler.Run(ctx) }()
	o := <-orders
	if o == kill {
		h.die()
	}
	ended := time.Now()
	stop()
	err := <-done
	took := time.Since(ended)
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	r := h.w.report
	if _, stuck := errors.AsType[*timer.StuckError](err); err != nil && !stuck {
		h.w.broken(&r.Stuck, "%s: Run: %v", h.name, err)
	}
	// One or two store calls may still be in flight when the handlers have ended.
	if most := drainTimeout + timer.CancelGrace + 3*h.w.storeTimeout; took > most {
		h.w.broken(&r.Stuck, "%s: Run took %v to return", h.name, took)
	}
	for _, st := range h.scheduler.Status().Timers {
		var skipped uint64
		for reason, n := range st.Skipped {
			skipped += n
			r.Skips.add(string(reason), int(n))
		}
		r.Ticks += int(st.Ticks)
		if st.Ticks != st.Started+skipped {
			h.w.broken(&r.Unaccounted, "%s: %s: %d ticks, %d started, %v skipped", h.name, st.Name, st.Ticks,
				st.Started, st.Skipped)
		}
		due := 0
		if first := h.firsts[st.Name]; !first.After(ended) {
			due = int(ended.Sub(first)/h.w.timers[st.Name].every) + 1
		}
		if int(st.Ticks) != due {
			h.w.broken(&r.Unaccounted, "%s: %s: %d ticks, %d were due from %v to %v", h.name, st.Name, st.Ticks, due,
				began, ended)
		}
	}
}

// die simulates a killed process: its requests no longer arrive, its handlers are gone, and nothing
// is released.
func (h *host) die() {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	close(h.died)
	for _, b := range h.w.timers {
		for v := range b.runs {
			if v.host == h {
				delete(b.runs, v)
				h.w.report.KilledRuns++
			}
		}
	}
}

type order int

const (
	restart order = iota
	kill
	end
)

// A place runs one host after another.
type place struct {
	orders chan order
	mu     sync.Mutex
	host   *host // nil if there is none at the moment
}

func (p *place) order(o order) {
	select {
	case p.orders <- o:
	default: // it already has one
	}
}

func (p *place) now() *host {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.host
}

func (p *place) set(h *host) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host = h
}

// inhabit runs one host after another here until ctx ends.
func (p *place) inhabit(ctx context.Context, w *world, seed, number uint64) error {
	random := rand.New(rand.NewPCG(seed, 1<<32+number))
	for generation := uint64(0); ctx.Err() == nil; generation++ {
		h, err := w.newHost(fmt.Sprintf("host-%d.%d", number, generation), seed, number<<20+generation)
		if err != nil {
			return err
		}
		p.set(h)
		unwatch := context.AfterFunc(ctx, func() { p.order(end) })
		h.live(p.orders)
		unwatch()
		p.set(nil)
		wait(ctx, time.Duration(random.Int64N(int64(5*time.Minute))))
	}
	return nil
}
