package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/robfig/cron/v3"

	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Every scheduler gets the same timers: random periods between 1 and 10 s, to the millisecond, and
// a handler that counts.

func periods(s spec) []time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	list := make([]time.Duration, s.N)
	for i := range list {
		list[i] = s.Every
		if s.Every == 0 {
			list[i] = time.Second + time.Duration(random.IntN(9001))*time.Millisecond
		}
	}
	return list
}

// onTime is the percentage of due ticks that fired in a window. A scheduler that fires less needs
// less CPU time.
const onTime = "fired %"

// fires counts a scheduler's calls to its handlers, and their delays.
type fires struct {
	spec
	periods  []time.Duration
	start    time.Time // when all periods began, for schedulers that count from there; zero: ticks are at any instant
	count    atomic.Int64
	late     histogram
	waiting  float64 // bytes per timer before any has fired
	loaded   float64 // bytes per timer before the first window; 0: not yet measured
	baseline uint64
	keep     any // must not be collected before memory is measured
}

func newFires(s spec, list []time.Duration) *fires {
	f := &fires{spec: s, periods: list}
	f.baseline = inUse()
	return f
}

// ready is called when everything is registered and nothing has fired yet.
func (f *fires) ready() {
	if f.Bytes {
		f.waiting = f.perTimer()
	}
}

func (f *fires) perTimer() float64 { return (float64(inUse()) - float64(f.baseline)) / float64(f.N) }

// inUse returns the bytes in use after a garbage collection.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// expected returns the number of calls that are due in a window.
func (f *fires) expected(began time.Time, elapsed time.Duration) (n float64) {
	for _, period := range f.periods {
		if f.start.IsZero() {
			n += elapsed.Seconds() / period.Seconds()
		} else {
			n += float64(began.Add(elapsed).Sub(f.start)/period - began.Sub(f.start)/period)
		}
	}
	return n
}

func (f *fires) fired(late time.Duration) {
	f.count.Add(1)
	f.late.add(late)
}

func (f *fires) close() error { return nil }

func (f *fires) measure(window time.Duration) (sample, error) {
	if f.Fired && f.loaded == 0 {
		f.loaded = f.perTimer()
		// The collection takes a while and loads the whole machine, so let the delayed ticks pass.
		time.Sleep(2 * time.Second)
	}
	f.late.reset()
	count, used, began := f.count.Load(), cpu(), time.Now()
	time.Sleep(window)
	fired, usedNow, elapsed := float64(f.count.Load()-count), cpu()-used, time.Since(began)
	expected := f.expected(began, elapsed)
	s := sample{Did: fired, Extra: map[string]float64{
		"p50 ms":     f.late.quantile(0.5),
		"p99 ms":     f.late.quantile(0.99),
		"core %":     100 * usedNow.Seconds() / elapsed.Seconds(),
		onTime:       100 * fired / expected,
		"goroutines": float64(runtime.NumGoroutine()),
	}}
	if fired == 0 {
		return s, fmt.Errorf("nothing fired, of %.0f", expected)
	}
	s.Extra["µs/fire"] = usedNow.Seconds() * 1e6 / fired
	s.Value = s.Extra[f.Value]
	if f.Bytes {
		s.Extra["bytes waiting"] = f.waiting
	}
	if f.Fired {
		s.Extra["bytes fired"] = f.loaded
	}
	return s, nil
}

// tickslotFires has no store unless the spec names one.
func tickslotFires(s spec) (runner, error) {
	list := periods(s)
	names := make([]string, s.N) // allocated before memory is measured, because they belong to the user
	for i := range names {
		names[i] = fmt.Sprintf("timer-%07d", i)
	}
	f := newFires(s, list)
	run := func(ctx context.Context) error {
		if r, ok := timer.RunFromContext(ctx); ok {
			f.fired(time.Since(r.Tick()))
		}
		return nil
	}
	// Processes that are measured together must not be due at the same instants.
	instant := time.Duration(os.Getpid()*17%60) * time.Second
	timers := make([]timer.Timer, s.N)
	for i := range timers {
		every := schedule.Every(list[i])
		if s.AtOnce {
			every = every.Offset(instant)
		}
		timers[i] = timer.Timer{Name: names[i], Schedule: every, Run: run}
	}
	config := timer.Config{Logger: slog.New(slog.NewTextHandler(io.Discard,
		&slog.HandlerOptions{Level: slog.LevelWarn}))}
	if s.Metrics {
		config.Registerer = prometheus.NewRegistry()
	}
	if s.Redis != "" {
		config.TTL = beatTTL // short, because a server that has just started does not grant longer ones yet
		config.Store = redislock.New(newClient(s.Redis), redislock.Options{
			QuarantineTTL: config.TTL,
			Prefix:        fmt.Sprint(os.Getpid(), ":"), // separates it from its control, which has the same timers
		})
	}
	scheduler, err := timer.New(config, timers...)
	if err != nil {
		return nil, err
	}
	clear(timers)
	timers = nil
	f.keep = []any{scheduler, names}
	f.ready()
	go func() {
		if err := scheduler.Run(ctx); err != nil {
			panic(err)
		}
	}()
	for scheduler.Started() != nil {
		time.Sleep(time.Millisecond)
	}
	return f, nil
}

// bareWakes is a lower bound for a scheduler that is due equally often: one time.Timer and, with
// Redis, two PINGs per tick instead of an acquire and a release.
func bareWakes(s spec) (runner, error) {
	f := newFires(s, periods(s))
	work := func() error { return nil }
	if s.Redis != "" {
		client := newClient(s.Redis)
		work = func() error { return errors.Join(client.Ping(ctx).Err(), client.Ping(ctx).Err()) }
	}
	pause := s.Every / time.Duration(s.N)
	go func() {
		due := time.Now()
		for timer := time.NewTimer(pause); ; timer.Reset(time.Until(due)) {
			due = due.Add(pause)
			<-timer.C
			if err := work(); err != nil {
				panic(err)
			}
			f.fired(max(0, time.Since(due)))
		}
	}()
	return f, nil
}

// A delay is robfig's constant delay, to the millisecond instead of the second. It measures how
// late robfig's loop asks for the next time.
type delay struct {
	period time.Duration
	fires  *fires
	due    time.Time
}

func (d *delay) Next(now time.Time) time.Time {
	if !d.due.IsZero() && !now.Before(d.due) {
		d.fires.late.add(now.Sub(d.due))
	}
	d.due = now.Add(d.period)
	return d.due
}

// robfigFires has no wrappers around its jobs, which is the default.
func robfigFires(s spec) (runner, error) {
	list := periods(s)
	f := newFires(s, list)
	c := cron.New()
	for _, period := range list {
		c.Schedule(&delay{period: period, fires: f}, cron.FuncJob(func() { f.count.Add(1) }))
	}
	f.keep = c
	f.ready()
	f.start = time.Now()
	c.Start()
	return f, nil
}

// gocronFires uses the defaults. Its jobs do not know when they were due, so their delay is not
// measured.
func gocronFires(s spec) (runner, error) {
	list := periods(s)
	f := newFires(s, list)
	c, err := gocron.NewScheduler()
	if err != nil {
		return nil, err
	}
	for _, period := range list {
		if _, err := c.NewJob(gocron.DurationJob(period), gocron.NewTask(func() { f.count.Add(1) })); err != nil {
			return nil, err
		}
	}
	f.keep = c
	f.ready()
	f.start = time.Now()
	c.Start()
	return f, nil
}

// A histogram of durations is accurate to one part in 32.
type histogram struct{ buckets [64 + 32*58]atomic.Int64 }

func bucket(us uint64) int {
	if us < 64 {
		return int(us)
	}
	e := bits.Len64(us) - 6
	return 64 + (e-1)*32 + int(us>>e) - 32
}

// lower returns the lower bound of a bucket.
func lower(i int) uint64 {
	if i < 64 {
		return uint64(i)
	}
	e := (i-64)/32 + 1
	return uint64((i-64)%32+32) << e
}

func (h *histogram) add(d time.Duration) { h.buckets[bucket(uint64(max(0, d.Microseconds())))].Add(1) }

func (h *histogram) reset() {
	for i := range h.buckets {
		h.buckets[i].Store(0)
	}
}

// quantile returns a quantile in milliseconds, or 0 if the histogram is empty.
func (h *histogram) quantile(q float64) float64 {
	var total, seen int64
	for i := range h.buckets {
		total += h.buckets[i].Load()
	}
	for i := range h.buckets {
		seen += h.buckets[i].Load()
		if total > 0 && float64(seen) >= q*float64(total) {
			return float64(lower(i)) / 1000
		}
	}
	return 0
}
