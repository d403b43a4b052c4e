//go:build linux && amd64

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/cluster/clustertimer"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

const (
	// look is how often a handler checks whether its run is valid, and piece how often it logs
	// that. What is not logged when the process is killed is lost.
	look  = 5 * time.Millisecond
	piece = 50 * time.Millisecond
	// gap is the longest time between two checks for which the run counts as valid in between.
	gap = 60 * time.Millisecond
	// statusEvery is how often a host reports the state of its ticks.
	statusEvery = 100 * time.Millisecond
)

// A host is one process of the fleet.
type host struct {
	spec  Spec
	log   *torture.Log
	runs  atomic.Int64
	clock *wallClock

	panics, hangs, ignores atomic.Int64 // number of handlers that should do that
}

func runHost(spec Spec, log *torture.Log) error {
	h := &host{spec: spec, log: log}
	var err error
	if h.clock, err = newWallClock(); err != nil {
		return err
	}
	h.clock.jump(spec.Ahead)
	commands := make(chan string)
	go func() { // runs until the process ends
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			commands <- in.Text()
		}
	}()
	runtime.Gosched()
	before := runtime.NumGoroutine()

	d, err := open(spec.Store[0], spec.Timing)
	if err != nil {
		return err
	}
	holder := dlock.NewHolder()
	holder.Host = spec.Name
	all := make([]timer.Timer, len(spec.Timers))
	limits := map[string]timer.Limit{sharedLimit: {Name: sharedLimit, Size: sharedSize}}
	for i, t := range spec.Timers {
		all[i] = timer.Timer{
			Name: t.Name, Schedule: schedule.Every(time.Duration(t.Period)), MaxConcurrency: t.Limit,
			MaxPerTick: t.PerTick, MaxPerHost: t.PerHost,
			MaxRunTime: maxRunTime, OnStoreDown: timer.StoreDownSkip,
			Run: func(ctx context.Context) error { return h.handle(ctx, t) },
		}
		if t.Shared > 0 {
			all[i].Limits = []string{sharedLimit}
		}
		if t.Rated != "" {
			all[i].Limits, all[i].OnFull = []string{t.Rated}, timer.FullWait
			limits[t.Rated] = timer.Limit{Name: t.Rated, Rate: t.Rate, Per: time.Duration(t.Per)}
		} else if local(i) {
			all[i].OnStoreDown = timer.StoreDownRunLocal
		}
	}
	var lock dlock.DistributedLock = d.lock
	var hooks timer.Hooks
	var registry *registryHost
	if spec.Registry != nil {
		if registry, err = startRegistry(spec, d.lock, holder, log); err != nil {
			return err
		}
		lock = registry.Decorate(&timed{DistributedLock: d.lock, most: spec.Timing.StoreTimeout / 2, log: log})
		hooks = clustertimer.Hooks(registry.Registry, hooks)
	}
	session, err := dlock.NewSession(lock, dlock.SessionOptions{TTL: spec.Timing.TTL,
		StoreTimeout: spec.Timing.StoreTimeout, Holder: holder})
	if err != nil {
		return err
	}
	scheduler, err := timer.New(timer.Config{
		Store: lock, TTL: spec.Timing.TTL, StoreTimeout: spec.Timing.StoreTimeout, DrainTimeout: 2 * time.Second,
		Holder: holder, Limits: slices.Collect(maps.Values(limits)),
		Logger: slog.New(slog.DiscardHandler), Hooks: hooks,
	}, all...)
	if err != nil {
		return err
	}
	if registry != nil {
		registry.Add(scheduler)
		registry.Add(session)
	}
	log.Write(torture.Line{Kind: torture.Begin, Timers: spec.Timers})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(ctx) }()
	var background sync.WaitGroup
	led := make(chan error, len(spec.Roles))
	for _, r := range spec.Roles {
		go func() { led <- h.compete(ctx, session, r) }()
	}
	err = h.obey(ctx, stop, scheduler, d, registry, commands, ended, &background)
	stop() // Run may return early if the store is set up wrongly; then leaders must stop, too
	background.Wait()
	errs := []error{err}
	for range spec.Roles {
		errs = append(errs, <-led)
	}
	_ = session.Close(context.Background()) // leases without an answer of the store expire
	if registry != nil {
		errs = append(errs, registry.end())
	}
	d.close()

	end := h.status(scheduler)
	end.Kind = torture.End
	for _, err := range errs {
		_, stuck := errors.AsType[*timer.StuckError](err)
		_, leads := errors.AsType[*leader.StuckError](err)
		switch {
		case stuck || leads:
			end.Stuck += err.Error()
		case err != nil:
			return err
		}
	}
	// pgx closes a cut connection of the registry on a separate goroutine, for up to 15 s.
	_ = testkit.Poll(16*time.Second, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	if end.Leaked = max(0, runtime.NumGoroutine()-before); end.Leaked > 0 {
		stacks := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%d goroutines leaked:\n%s\n", end.Leaked, stacks[:runtime.Stack(stacks, true)])
	}
	end.At = nemesis.Mono()
	log.Write(end)
	return nil
}

// obey executes commands and reports the host's status, until the scheduler's Run has returned.
func (h *host) obey(ctx context.Context, stop func(), scheduler *timer.Scheduler, d *door, registry *registryHost,
	commands <-chan string, ended <-chan error, background *sync.WaitGroup) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			h.log.Write(h.status(scheduler))
		case c := <-commands:
			word, rest, _ := strings.Cut(c, " ")
			length, _ := time.ParseDuration(rest) // not all commands have one
			switch word {
			case "drain":
				h.log.Write(torture.Line{Kind: torture.Drain})
				stop()
			case "jump":
				// Logged first, so that no tick is seen before its jump is logged.
				h.log.Write(torture.Line{Kind: torture.Jump, By: int64(length)})
				h.clock.jump(length)
			case "panic":
				h.panics.Add(3)
			case "hang":
				h.hangs.Add(1)
			case "ignore":
				h.ignores.Add(1)
			case "registry":
				background.Go(func() { registry.suffer(ctx, rest) })
			case "exhaust":
				background.Go(func() {
					ctx, cancel := context.WithTimeout(ctx, length)
					defer cancel()
					d.exhaust(ctx)
				})
			}
		}
	}
}

func (h *host) status(scheduler *timer.Scheduler) torture.Line {
	at := nemesis.Mono()
	line := torture.Line{Kind: torture.Status, At: at}
	for _, t := range scheduler.Status().Timers { // by name, in our order
		done := t.Started
		for _, n := range t.Skipped {
			done += n
		}
		line.Ticks, line.Done = append(line.Ticks, t.Ticks), append(line.Done, done)
	}
	return line
}

// take decrements a counter, and reports whether it was positive.
func take(n *atomic.Int64) bool {
	for {
		v := n.Load()
		if v <= 0 {
			return false
		}
		if n.CompareAndSwap(v, v-1) {
			return true
		}
	}
}

// handle works for a while, keeps logging whether it is valid, and sometimes misbehaves.
func (h *host) handle(ctx context.Context, t torture.TimerLine) error {
	r, _ := timer.RunFromContext(ctx)
	began := time.Now()
	period := time.Duration(t.Period)
	work := period*4/10 + rand.N(period/2) + time.Duration(h.spec.Timing.Lingers*float64(period))
	if t.Rated != "" { // it does not wait for slots
		work = look + rand.N(3*look)
	}
	overstay := time.Duration(0)
	if rand.IntN(12) == 0 { // works for long, and may ignore the end of its context
		work = h.spec.Timing.TTL/2 + rand.N(2*h.spec.Timing.TTL)
		overstay = h.spec.Timing.TTL * time.Duration(rand.IntN(3)) * 3 / 4
	}
	w := h.newWitness(ctx, t.Name, r)
	if at := r.Tick(); !at.IsZero() {
		w.line.Tick = at.UnixMicro()
	}
	defer w.write()
	if take(&h.panics) {
		w.look()
		panic("as told")
	}
	if take(&h.ignores) {
		for time.Since(began) <= maxRunTime+h.spec.Timing.TTL {
			w.look()
			time.Sleep(look)
		}
		return nil
	}
	if take(&h.hangs) {
		work, overstay = time.Hour, 0
	}
	return w.work(work, overstay)
}

// compete takes part in the election of a role until ctx ends. A leader leads for a while.
func (h *host) compete(ctx context.Context, session *dlock.Session, r torture.TimerLine) error {
	ttl := h.spec.Timing.TTL
	return leader.Run(ctx, session, leader.Role{Name: r.Name, Max: r.Limit, RetryInterval: ttl / 5,
		Logger: slog.New(slog.DiscardHandler),
		Run: func(ctx context.Context, term *leader.Term) error {
			w := h.newWitness(ctx, r.Name, leading{term})
			defer w.write()
			return w.work(rand.N(4*ttl), ttl*time.Duration(rand.IntN(3))/2)
		}})
}

// A leading host has no equivalent of a degraded run.
type leading struct{ *leader.Term }

func (leading) Degraded() bool { return false }

func (h *host) newWitness(ctx context.Context, of string, r held) witness {
	return witness{h: h, r: r, ctx: ctx, line: torture.Line{Timer: of, Fence: int64(r.Fence()), Slot: r.Slot(),
		Run: h.runs.Add(1)}}
}

// work checks for a duration, or until overstay after the end of the context.
func (w *witness) work(length, overstay time.Duration) error {
	began := time.Now()
	var told time.Time
	for {
		w.look()
		if w.ctx.Err() != nil && told.IsZero() {
			told = time.Now()
			if errors.Is(context.Cause(w.ctx), dlock.ErrLost) {
				w.h.log.Write(torture.Line{Kind: torture.LeaseEnd, Timer: w.line.Timer, Slot: w.r.Slot(),
					Fence: int64(w.r.Fence())})
			}
		}
		switch {
		case !told.IsZero() && time.Since(told) >= overstay:
			return context.Cause(w.ctx)
		// If the lease was lost, the context must end.
		case told.IsZero() && time.Since(began) > length && w.untold == 0:
			return nil
		}
		time.Sleep(look) // simulated work
	}
}

// A held is a run, or a term of a leader.
type held interface {
	Valid() bool
	Degraded() bool
	Slot() int
	Fence() dlock.Fence
}

// A witness logs when one run was valid, and when it was degraded.
type witness struct {
	h    *host
	r    held
	ctx  context.Context
	line torture.Line // the open piece

	looked  int64         // time of the latest check
	untold  time.Duration // time awake while neither valid nor degraded nor canceled
	accused bool
}

// look checks once. The result holds for the moment before the check, because a run that is valid
// has been valid since it started.
func (w *witness) look() {
	lost := w.ctx.Err() != nil && errors.Is(context.Cause(w.ctx), dlock.ErrLost)
	// It continued without the store and now has a slot, for which it claimed no tick.
	if fence := int64(w.r.Fence()); fence != w.line.Fence {
		w.write()
		w.line.Fence, w.line.Slot, w.line.Tick = fence, w.r.Slot(), 0
	}
	now := nemesis.Mono()
	kind := ""
	switch {
	case w.r.Valid():
		kind = torture.Seen
	case w.r.Degraded():
		kind = torture.Degraded
		lost = false
	}
	w.suspect(kind == "" && w.ctx.Err() == nil, now)
	if w.line.Kind != "" && (kind != w.line.Kind || lost != w.line.Lost || now-w.line.Last > int64(gap)) {
		w.write()
	}
	if kind == "" {
		return
	}
	if w.line.Kind == "" {
		w.line.Kind, w.line.First, w.line.Lost = kind, now, lost
	}
	w.line.Last = now
	if w.line.Last-w.line.First >= int64(piece) {
		w.write()
		w.line.Kind, w.line.First, w.line.Lost = kind, now, lost // the next piece begins where this one ends
	}
}

// suspect measures how long the run has not been told. Time in which this process was paused does
// not count.
func (w *witness) suspect(untold bool, now int64) {
	passed := min(time.Duration(now-w.looked), gap)
	w.looked = now
	if !untold {
		w.untold = 0
		return
	}
	if w.untold += passed; w.untold > time.Second && !w.accused {
		w.accused = true
		line := w.line
		line.Kind, line.At = torture.Untold, 0
		w.h.log.Write(line)
	}
}

// write logs the open piece, if there is one.
func (w *witness) write() {
	if w.line.Kind == "" {
		return
	}
	w.line.At = 0
	w.h.log.Write(w.line)
	w.line.Kind = ""
}
