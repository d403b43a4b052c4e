package simulate

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

var scaleFlag = flag.String("scale", "50x50", "hosts x timers of TestScale")

// A workload is the input of proof/benchmarks/COSTS.md, with its letters: H hosts, each with the
// same timers.
type workload struct {
	hosts int           // H
	ttl   time.Duration // TTL
	kinds []timers
}

// timers are T identical timers.
type timers struct {
	number      int           // T
	every       time.Duration // I
	slots       int           // N, MaxConcurrency
	perTick     int           // M, MaxPerTick; timer.NoLimit
	perHost     int           // P, MaxPerHost
	work        time.Duration // R
	leastRecent bool
}

// A load is a workload's cost for its store per second, when all is well and nothing is overridden.
type load struct {
	asked, granted, refused, released float64 // for ticks
	beats                             float64 // calls that renew leases
	renewals                          float64 // scripts in these calls: one per name that a host holds
	probes                            float64
	lists                             float64
}

// calls returns the round trips, scripts the scripts that Redis runs.
func (l load) calls() float64   { return l.asked + l.released + l.beats + l.probes + l.lists }
func (l load) scripts() float64 { return l.asked + l.released + l.renewals + l.probes + l.lists }

// perBeat is the number of leases renewed by one call.
const perBeat = 500

// load is the formula of proof/benchmarks/COSTS.md.
func (w workload) load() (l load) {
	H, ttl := float64(w.hosts), w.ttl.Seconds()
	running := 0.0
	for _, k := range w.kinds {
		T, I, N, M, P, R := float64(k.number), k.every.Seconds(), float64(k.slots), float64(k.perTick),
			float64(k.perHost), k.work.Seconds()
		if k.perTick == timer.NoLimit {
			M = math.Inf(1)
		}
		K := max(1, math.Ceil(R/I))   // ticks during which a run occupies its slot
		G := min(M, H, min(N, H*P)/K) // runs that a tick starts
		B := 0.0                      // upper bound of hosts that do not call because they have P runs
		if P == 1 {
			B = G * (K - 1)
		}
		l.asked += T / I * (H - B)
		l.granted += T / I * G
		running += T / I * G * R
	}
	l.refused = l.asked - l.granted
	l.released = l.granted
	l.beats = 3 / ttl * H * math.Ceil((1+running/H)/perBeat)
	l.renewals = 3 / ttl * (H + running)
	l.probes = 2 * H / (7.0 / 8 * ttl)
	l.lists = H / (7.0 / 8 * ttl)
	if H > 100 {
		l.lists = H / (60 + ttl/2)
	}
	return l
}

// A counted is a store that counts its calls.
type counted struct {
	*memlock.Store
	asked, granted, released, beats, renewals, probes, lists, others atomic.Int64
}

func (c *counted) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := c.Store.TryAcquire(ctx, req)
	switch {
	case timerName(req.Name) != "":
		c.asked.Add(1)
		if err == nil {
			c.granted.Add(1)
		}
	case strings.HasPrefix(req.Name, "tickslot:probe:"):
		c.probes.Add(1)
	default:
		c.others.Add(1)
	}
	return g, err
}

func (c *counted) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	if timerName(grants[0].Name) != "" {
		c.released.Add(1)
	} else if strings.HasPrefix(grants[0].Name, "tickslot:probe:") {
		c.probes.Add(1)
	} else {
		c.others.Add(1)
	}
	return c.Store.Release(ctx, grants...)
}

func (c *counted) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	c.beats.Add(1)
	names := make(map[string]bool, len(grants))
	for _, g := range grants {
		names[g.Name] = true
	}
	c.renewals.Add(int64(len(names)))
	return c.Store.Extend(ctx, ttl, grants...)
}

func (c *counted) List(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, name, slots)
}

func (c *counted) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	c.others.Add(1)
	return c.Store.Inspect(ctx, names...)
}

// totals returns the counts of all calls so far.
func (c *counted) totals() load {
	n := func(count *atomic.Int64) float64 { return float64(count.Load()) }
	return load{
		asked: n(&c.asked), granted: n(&c.granted), refused: n(&c.asked) - n(&c.granted), released: n(&c.released),
		beats: n(&c.beats), renewals: n(&c.renewals), probes: n(&c.probes), lists: n(&c.lists),
	}
}

// measure runs the hosts and, after warm, counts their store calls for a window. It does not begin
// at a tick or a heartbeat, because calls at the window's edge would count only sometimes.
func (w workload) measure(t *testing.T, warm, window time.Duration) (calls load, others int64) {
	store := &counted{Store: memlock.New()}
	var all []timer.Timer
	for i, k := range w.kinds {
		for n := range k.number {
			all = append(all, timer.Timer{
				Name: fmt.Sprintf("kind-%d-%d", i, n), Schedule: schedule.Every(k.every), MaxConcurrency: k.slots,
				MaxPerTick: k.perTick, MaxPerHost: k.perHost,
				LeastRecentFirst: k.leastRecent, Run: func(ctx context.Context) error { wait(ctx, k.work); return nil },
			})
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var hosts sync.WaitGroup
	for i := range w.hosts {
		s, err := timer.New(timer.Config{
			Store: store, TTL: w.ttl, DrainTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
			Holder: dlock.Holder{Host: fmt.Sprint("host-", i), PID: i},
		}, all...)
		if err != nil {
			t.Fatal(err)
		}
		hosts.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(warm + w.ttl/6)
	before, others := store.totals(), store.others.Load()
	time.Sleep(window)
	after := store.totals()
	others = store.others.Load() - others
	if testing.Verbose() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		t.Logf("%d hosts × %d timers: %d MB of heap, %d goroutines", w.hosts, len(all), m.HeapAlloc>>20,
			runtime.NumGoroutine())
	}
	stop()
	hosts.Wait()
	return load{
		asked: after.asked - before.asked, granted: after.granted - before.granted,
		refused:  after.refused - before.refused,
		released: after.released - before.released, beats: after.beats - before.beats,
		renewals: after.renewals - before.renewals,
		probes:   after.probes - before.probes, lists: after.lists - before.lists,
	}, others
}

// compare checks the calls of a window against the formula. Calls that follow from the schedules
// alone must match exactly.
func compare(t *testing.T, w workload, calls load, window time.Duration) {
	t.Helper()
	want, s := w.load(), window.Seconds()
	for _, c := range []struct {
		what         string
		is, want, by float64 // by: the allowed relative difference
	}{
		{"asked", calls.asked, want.asked * s, 0},
		{"granted", calls.granted, want.granted * s, 0},
		{"refused", calls.refused, want.refused * s, 0},
		{"released", calls.released, want.released * s, 0},
		{"beats", calls.beats, want.beats * s, 0},
		{"renewals", calls.renewals, want.renewals * s, 0.03}, // a short run may or may not meet a beat
		{"probes", calls.probes, want.probes * s, 0.03},       // their pauses are random
		{"lists", calls.lists, want.lists * s, 0.1},
		{"calls", calls.calls(), want.calls() * s, 0.01},
		{"scripts", calls.scripts(), want.scripts() * s, 0.02},
	} {
		off := 0.0
		if c.want != 0 {
			off = c.is/c.want - 1
		}
		t.Logf("%-9s %11.0f in %v, formula %13.1f: %+.2f %%", c.what, c.is, window, c.want, 100*off)
		if math.Abs(c.is-c.want) > c.by*c.want+1e-6*c.want {
			t.Errorf("%s: %.0f, the formula says %.1f: %+.2f %%", c.what, c.is, c.want, 100*off)
		}
	}
}

// The hosts' store calls match COSTS.md: real schedulers, five kinds of timers, and two intervals
// of virtual time. make proof WHAT=scale has a thousand hosts with a thousand timers each.
//
// Fails when the formula ignores the duration of runs (B = 0, or K = 1), when submit does not check
// the local limit, when a run is released twice, when the prober calls every third of a TTL, when
// hosts count each other every ten seconds, and when a beat makes a call for each lease.
func TestScale(t *testing.T) {
	hosts, number, ok := strings.Cut(*scaleFlag, "x")
	h, err1 := strconv.Atoi(hosts)
	n, err2 := strconv.Atoi(number)
	if !ok || err1 != nil || err2 != nil || h < 5 || n < 5 {
		t.Fatalf("-scale %q: want hosts x timers, at least 5x5, such as 1000x1000", *scaleFlag)
	}
	const every = 5 * time.Minute
	each := n / 5
	w := workload{hosts: h, ttl: dlock.DefaultTTL, kinds: []timers{
		{number: n - 4*each, every: every, slots: 1, perTick: 1, perHost: 1, work: 2 * time.Second},
		{number: each, every: every, slots: 3, perTick: 3, perHost: 3, work: 20 * time.Second, leastRecent: true},
		{number: each, every: every, slots: 4, perTick: 1, perHost: 1, work: every * 3 / 2},
		{number: each, every: every, slots: 3, perTick: 3, perHost: 1, work: every * 3 / 2},
		{number: each, every: every, slots: 2, perTick: timer.NoLimit, perHost: 2, work: 30 * time.Second},
	}}
	synctest.Test(t, func(t *testing.T) {
		calls, others := w.measure(t, 2*every, 2*every)
		compare(t, w, calls, 2*every)
		if others != 0 {
			t.Errorf("%d calls that the formula does not know", others)
		}
	})
}

// A host that holds more than 500 leases renews them with more than one call.
//
// Fails when beatBatch is 499 or 501; then COSTS.md must change, too.
func TestScaleOfManyLeases(t *testing.T) {
	for number, each := range map[int]float64{perBeat - 1: 1, perBeat: 2} { // plus the host's own
		w := workload{hosts: 1, ttl: dlock.DefaultTTL, kinds: []timers{
			{number: number, every: time.Minute, slots: 1, perTick: 1, perHost: 1, work: 30 * time.Minute},
		}}
		synctest.Test(t, func(t *testing.T) {
			// With two calls per beat, the window would otherwise begin at one of them.
			calls, _ := w.measure(t, 2*time.Minute-w.ttl/12, 2*time.Minute)
			if want := w.load().beats * 120; calls.beats != 24*each || math.Round(want) != 24*each {
				t.Errorf("%.0f calls for %d leases in 24 beats, the formula says %.0f", calls.beats, number+1, want)
			}
		})
	}
}

// A queue is a store that answers acquires one at a time, each after the same delay, including
// those whose callers have given up.
type queue struct {
	*memlock.Store
	each time.Duration
	mu   sync.Mutex
	free time.Time
	asks int // of timers
}

func (q *queue) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	q.mu.Lock()
	now := time.Now()
	if q.free.Before(now) {
		q.free = now
	}
	q.free = q.free.Add(q.each)
	turn := q.free.Sub(now)
	if timerName(req.Name) != "" {
		q.asks++
	}
	q.mu.Unlock()
	if !wait(ctx, turn) {
		return driver.Grant{}, ctx.Err()
	}
	return q.Store.TryAcquire(ctx, req)
}

// If timers are all due at once, each costs a call, and runs start late, provided that the store
// answers the attempts in flight within half of StoreTimeout. Otherwise the attempts are repeated,
// which makes it worse, and most ticks find the store down, as docs/operate.md says. There are 20
// hosts, 200 timers, and 64 concurrent attempts.
//
// Fails when maxAttempts is 32 or 128.
func TestScaleOfPeaks(t *testing.T) {
	const hosts, number = 20, 200
	bound := hosts * 64 / (dlock.DefaultStoreTimeout.Seconds() / 2) // scripts per second
	for _, c := range []struct {
		speed float64 // as a multiple of bound
		down  bool
	}{{1.1, false}, {0.9, true}} {
		t.Run(fmt.Sprint(c.speed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &queue{Store: memlock.New(), each: time.Duration(float64(time.Second) / (c.speed * bound))}
				var all []timer.Timer
				for n := range number {
					all = append(all, timer.Timer{
						Name: fmt.Sprint("cron-", n), Schedule: schedule.Cron("30 * * * *", "UTC"),
						CatchUp: timer.CatchUp{Policy: timer.CatchUpSkip}, OnStoreDown: timer.StoreDownSkip,
						Run: func(context.Context) error { return nil },
					})
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var running sync.WaitGroup
				var schedulers []*timer.Scheduler
				for i := range hosts {
					s, err := timer.New(timer.Config{Store: store, Logger: slog.New(slog.DiscardHandler),
						Holder: dlock.Holder{Host: fmt.Sprint("host-", i)}}, all...)
					if err != nil {
						t.Fatal(err)
					}
					schedulers = append(schedulers, s)
					running.Go(func() { _ = s.Run(ctx) })
				}
				time.Sleep(35 * time.Minute)
				var ticks, started, down uint64
				for _, s := range schedulers {
					for _, st := range s.Status().Timers {
						ticks, started, down = ticks+st.Ticks, started+st.Started,
							down+st.Skipped[timer.ReasonStoreDown]
					}
				}
				stop()
				running.Wait()
				t.Logf("%.0f per second: %d asks for %d ticks, %d started, %d found the store down", c.speed*bound,
					store.asks, ticks, started, down)
				if !c.down && (store.asks != hosts*number || started != number) {
					t.Error("want every tick to be asked for once, and to start once")
				}
				if (down > 0) != c.down {
					t.Errorf("down: %v", down > 0)
				}
			})
		})
	}
}

// The tables in proof/benchmarks/COSTS.md and docs/operate.md match the formula.
func TestScaleTable(t *testing.T) {
	read := func(path string) string {
		doc, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(doc)
	}
	number := func(s string) float64 {
		x, err := strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	duration := func(s string) time.Duration {
		d, err := time.ParseDuration(strings.ReplaceAll(s, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	row := regexp.MustCompile(`(?m)^\| ([\d,]+) \| ([\d,]+) \| ([\d.]+ [hms]) \| (\d+) \| ([\d.]+ m?[hms]) \| ([\d.]+ [hms]) \|(.*)\|$`)
	rows := row.FindAllStringSubmatch(read("../benchmarks/COSTS.md"), -1)
	if len(rows) < 8 {
		t.Errorf("%d rows", len(rows))
	}
	for _, r := range rows {
		n := int(number(r[4]))
		l := workload{hosts: int(number(r[1])), ttl: duration(r[6]), kinds: []timers{
			{number: int(number(r[2])), every: duration(r[3]), slots: n, perTick: n, perHost: 1, work: duration(r[5])},
		}}.load()
		var says []string
		for _, x := range []float64{l.asked, l.granted, l.beats, l.calls(), l.scripts()} {
			says = append(says, figure(x))
		}
		if is, want := strings.ReplaceAll(r[7], "*", ""), " "+strings.Join(says, " | ")+" "; is != want {
			t.Errorf("%s\nthe formula says |%s|", r[0], want)
		}
	}

	row = regexp.MustCompile(`(?m)^\| ([\d,]+) \| ([\d,]+) \| ([\d.]+ [hms]) \| ([\d,]+) \|$`)
	rows = row.FindAllStringSubmatch(read("../../docs/operate.md"), -1)
	if len(rows) < 2 {
		t.Errorf("docs/operate.md: %d rows", len(rows))
	}
	for _, r := range rows {
		l := workload{hosts: int(number(r[1])), ttl: dlock.DefaultTTL, kinds: []timers{
			{number: int(number(r[2])), every: duration(r[3]), slots: 1, perTick: 1, perHost: 1, work: time.Second},
		}}.load()
		if want := figure(l.calls()); r[4] != want {
			t.Errorf("docs/operate.md: %s\nthe formula says %s", r[0], want)
		}
		// The short formula on that page is within 5 % of the full one.
		H, T, I := number(r[1]), number(r[2]), duration(r[3]).Seconds()
		if short := H*T/I + l.granted + 0.4*H; math.Abs(short/l.calls()-1) > 0.05 {
			t.Errorf("docs/operate.md: %s\nits formula says %s", r[0], figure(short))
		}
	}
}

// figure formats a number with two significant digits, such as 17,000 or 0.36.
func figure(x float64) string {
	if x < 1 {
		return strconv.FormatFloat(x, 'g', 2, 64)
	}
	unit := math.Pow(10, max(0, math.Floor(math.Log10(x))-1))
	digits := strconv.FormatFloat(math.Round(x/unit)*unit, 'f', 0, 64)
	if x < 10 {
		digits = strconv.FormatFloat(x, 'f', 1, 64)
	}
	for i := len(digits) - 3; i > 0 && !strings.Contains(digits, "."); i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
