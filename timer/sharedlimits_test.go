package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// A limitWatch counts the runs in progress of timers that share a limit.
type limitWatch struct {
	mu    sync.Mutex
	runs  map[*timer.Run]time.Time // runs in progress, and when they began
	most  int                      // the most valid runs at the same time
	most2 int                      // the most runs at the same time, valid or not
	over  time.Duration            // the total time of the runs that have ended
	begun int
}

func (w *limitWatch) handler(d func() time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		r, _ := timer.RunFromContext(ctx)
		began := time.Now()
		w.mu.Lock()
		if w.runs == nil {
			w.runs = map[*timer.Run]time.Time{}
		}
		w.runs[r] = began
		w.begun++
		valid := 0
		for other := range w.runs {
			if other.Valid() {
				valid++
			}
		}
		w.most, w.most2 = max(w.most, valid), max(w.most2, len(w.runs))
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.runs, r)
			w.over += time.Since(began)
		}()
		return sleep(ctx, d())
	}
}

// busy returns the total time of all runs until now, and how many runs began.
func (w *limitWatch) busy() (all time.Duration, begun int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all = w.over
	for _, began := range w.runs {
		all += time.Since(began)
	}
	return all, w.begun
}

// seen returns the largest number of simultaneous valid runs, the largest number of simultaneous
// runs, and how many runs began.
func (w *limitWatch) seen() (valid, most, begun int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most, w.most2, w.begun
}

func fixed(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// smtp returns a Config with the limit of these tests, and mailers returns timers that share the
// limit.
func smtp(size int) timer.Config {
	return timer.Config{Limits: []timer.Limit{{Name: "smtp", Size: size}}}
}

func mailers(n int, template timer.Timer) []timer.Timer {
	list := make([]timer.Timer, n)
	for i := range list {
		list[i] = template
		list[i].Name, list[i].Limits = fmt.Sprintf("mail-%d", i), []string{"smtp"}
	}
	return list
}

// I1: 5 hosts have 4 timers that share a limit of 3. The store loses replies, is late, slow or
// silent, and refuses connections, host by host. There are never 4 valid runs. Without faults the
// limit is fully used, and each run costs one acquire and one release.
//
// Fails when TryAcquire omits Shared.
func TestI1SharedLimitIsNeverExceeded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		watch := &limitWatch{}
		for range 5 {
			f.start(smtp(3), mailers(4, timer.Timer{Schedule: schedule.Every(200 * time.Millisecond), MaxConcurrency: 3,
				MaxPerTick:  3,
				OnStoreDown: timer.StoreDownSkip,
				Run:         watch.handler(func() time.Duration { return rand.N(6 * time.Second) })})...)
		}
		faults := []dlocktest.Fault{dlocktest.LostReply, dlocktest.SilentReply, dlocktest.Late(3 * time.Second),
			dlocktest.Late(20 * time.Second), dlocktest.Hang, dlocktest.Slow(400 * time.Millisecond),
			dlocktest.Error(errors.New("connection refused")), dlocktest.Patchy(errors.New("a node is down")),
			dlocktest.Short}
		for range testkit.Rounds(t, 8, 300) {
			h := f.Hosts[rand.IntN(5)]
			if rand.IntN(2) == 0 {
				h.Link.InjectN(1+rand.IntN(5), faults[rand.IntN(len(faults))])
			} else {
				h.Link.Inject(faults[rand.IntN(len(faults))])
			}
			time.Sleep(rand.N(20 * time.Second))
			f.Hosts[rand.IntN(5)].Link.Heal()
		}
		for _, h := range f.Hosts {
			h.Link.Heal()
		}
		if valid, _, _ := watch.seen(); valid != 3 {
			t.Errorf("%d valid runs at once: want exactly 3", valid)
		}
		time.Sleep(time.Minute) // until grants whose replies were lost have ended
		before, first := watch.busy()
		window := time.Duration(testkit.Rounds(t, 2, 5)) * time.Minute
		time.Sleep(window)
		after, last := watch.busy()
		used := float64(after-before) / float64(3*window)
		t.Logf("%d runs, %.1f %% of the limit was used", last-first, 100*used)
		if valid, _, _ := watch.seen(); valid != 3 {
			t.Errorf("%d valid runs at once in the end: want exactly 3", valid)
		}
		if used < 0.95 {
			t.Errorf("%.1f %% of the limit was used: want 95", 100*used)
		}
		f.Stop()
		skipped := map[timer.Reason]uint64{}
		for _, h := range f.Hosts {
			_, s := h.Accounted(t)
			for why, n := range s {
				skipped[why] += n
			}
			if st := h.Status(); len(st.Limits) != 1 || st.Limits[0] != (timer.LimitStatus{Name: "smtp", Size: 3}) {
				t.Errorf("%+v", st.Limits)
			}
		}
		if skipped[timer.ReasonLimitFull] == 0 {
			t.Errorf("skipped: %v", skipped)
		}
		if list, err := f.store.List(t.Context(), "limit:smtp", 3); err != nil || len(list) > 0 {
			t.Errorf("%v, %v are left", list, err)
		}
	})
}

// A tick costs one call to the store, and a run costs two. The limit costs no call.
func TestSharedLimitCostsNoCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(smtp(1), mailers(2, timer.Timer{Schedule: schedule.Every(time.Second),
			Run: f.handler(1500 * time.Millisecond)})...)
		time.Sleep(100 * time.Second)
		acquires, releases := h.Link.Calls(dlocktest.OpAcquire), h.Link.Calls(dlocktest.OpRelease)
		var asked, started uint64
		for _, st := range h.Status().Timers {
			asked += st.Started + st.Skipped[timer.ReasonLimitFull]
			started += st.Started
		}
		probes := 30 // about two per TTL, with their releases
		if acquires < int(asked) || acquires > int(asked)+probes || releases > int(started)+probes || started < 45 {
			t.Errorf("%d acquires and %d releases for %d ticks that asked, of which %d ran", acquires, releases, asked,
				started)
		}
		f.Stop()
	})
}

// A host reports who holds the limit that prevented a tick or a Trigger from running.
//
// Fails when the refusal is treated as a refusal of the timer's own slots.
func TestSharedLimitThatIsFullIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		release := make(chan struct{})
		first := f.start(smtp(1), timer.Timer{Name: "holder", Limits: []string{"smtp"},
			Run: func(context.Context) error {
				<-release
				return nil
			}})
		if err := first.Trigger(t.Context(), "holder"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		h := f.start(smtp(1), mailers(1, timer.Timer{Schedule: schedule.Every(time.Second), Run: f.handler(0)})...)
		time.Sleep(10 * time.Second)
		st, _ := h.Status().Timer("mail-0")
		if st.Skipped[timer.ReasonLimitFull] != 10 || st.Started != 0 || len(st.Limits) != 1 {
			t.Errorf("%+v", st)
		}
		x, err := h.Explain(t.Context(), "mail-0", time.Time{})
		if err != nil || x.Reason != timer.ReasonLimitFull || !strings.Contains(x.Text, "limit:smtp") ||
			!strings.Contains(x.Text, first.Status().Holder.String()) || !strings.Contains(x.Text, "since ") {
			t.Errorf("%+v, %v", x, err)
		}
		err = h.Trigger(t.Context(), "mail-0")
		refused, ok := errors.AsType[*timer.RefusedError](err)
		no, named := errors.AsType[*dlock.NotAcquiredError](err)
		if !ok || refused.Reason != timer.ReasonLimitFull || !named || no.Shared.Name != "limit:smtp" {
			t.Errorf("Trigger: %v", err)
		}
		if st := first.Status(); st.Limits[0].Runs != 1 || h.Status().Limits[0].Runs != 0 {
			t.Errorf("%+v", st.Limits)
		}
		close(release)
		time.Sleep(2 * time.Second)
		if st, _ := h.Status().Timer("mail-0"); st.Started == 0 {
			t.Errorf("the limit is free: %+v", st)
		}
		f.Stop()
	})
}

// I2: a run that loses its permit has lost its lease before the permit is granted to another run.
//
// Fails when the lease covers only the slot.
func TestI2RunThatLosesItsPermitEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		ended := make(chan error, 1)
		h := f.start(smtp(1), timer.Timer{Name: "a", Limits: []string{"smtp"}, Run: func(ctx context.Context) error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		}})
		if err := h.Trigger(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		list, err := f.store.List(t.Context(), "limit:smtp", 1)
		if err != nil || len(list) != 1 || list[0].Holder != h.Status().Holder {
			t.Fatal(list, err)
		}
		by := driver.Cause{By: "ana", Note: "smtp is down"}
		if err := f.store.Revoke(t.Context(), "limit:smtp", 0, list[0].Fence, by); err != nil {
			t.Fatal(err)
		}
		lost, ok := errors.AsType[*dlock.LostError](<-ended)
		if !ok || lost.Name != "limit:smtp" || lost.RevokedBy == nil || *lost.RevokedBy != by {
			t.Errorf("%v", lost)
		}
		synctest.Wait()
		if last := h.Status().Timers[0].Last; last == nil || last.Outcome != timer.OutcomeCanceled {
			t.Errorf("%+v", last)
		}
		f.Stop()
	})
}

// Hosts with different sizes together never exceed the larger size. Each host reports the
// difference in the log, in Status, in a check and in a metric.
//
// Fails when the size is part of the name.
func TestHostsDisagreeAboutALimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		watch := &limitWatch{}
		var log testkit.Log
		reg := newRegistry()
		work := mailers(3, timer.Timer{Schedule: schedule.Every(time.Second), MaxConcurrency: 5, MaxPerTick: 5,
			Run: watch.handler(fixed(2500 * time.Millisecond))})
		old := f.start(smtp(3), work...)
		config := smtp(5)
		config.Logger, config.Registerer = textLogger(&log), reg
		h := f.start(config, work...)
		f.start(smtp(5), work...)
		time.Sleep(time.Minute)
		if valid, most, _ := watch.seen(); valid != 5 || most != 5 {
			t.Errorf("%d valid runs and %d runs at once: want 5", valid, most)
		}
		if n := old.Status().Limits[0].SizeElsewhere; n != 5 {
			t.Errorf("the host with 3 reports %d on other hosts", n)
		}
		if st := h.Status().Limits[0]; st.Size != 5 || st.SizeElsewhere != 3 {
			t.Errorf("%+v", st)
		}
		if err := h.LimitsAgree(); err == nil || err.Error() != `limit "smtp" has Size 5 here and 3 on other hosts` {
			t.Errorf("LimitsAgree: %v", err)
		}
		if n := strings.Count(log.String(), "hosts disagree about the size of a limit"); n != 1 {
			t.Errorf("%d lines in the log:\n%s", n, log.String())
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(`
			# HELP tickslot_limit_size Size of the limit on this host: runs that may hold it in the fleet.
			# TYPE tickslot_limit_size gauge
			tickslot_limit_size{limit="smtp"} 5
			# HELP tickslot_limit_size_elsewhere Size of the limit on other hosts while they disagree; else 0.
			# TYPE tickslot_limit_size_elsewhere gauge
			tickslot_limit_size_elsewhere{limit="smtp"} 3
			`), "tickslot_limit_size", "tickslot_limit_size_elsewhere"); err != nil {
			t.Error(err)
		}
		f.Stop(old)
		time.Sleep(2 * time.Minute)
		if err := h.LimitsAgree(); err != nil {
			t.Errorf("the other host is gone: %v", err)
		}
		f.Stop(f.Hosts[1:]...)
	})
}

// Without a store the limit holds for this process, and during an outage it holds on each host.
// When the store is back, runs that began during the outage get slots and permits first.
//
// Fails when a run without a lease does not count.
func TestSharedLimitWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		watch := &limitWatch{}
		work := func(w *limitWatch) []timer.Timer {
			return mailers(4, timer.Timer{Schedule: schedule.Every(time.Second), MaxConcurrency: 3, MaxPerTick: 3,
				Run: w.handler(fixed(5 * time.Second))})
		}
		config := smtp(3)
		config.Logger = slog.New(slog.DiscardHandler)
		alone, err := timer.New(config, work(watch)...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- alone.Run(ctx) }()
		time.Sleep(time.Minute)
		if _, most, _ := watch.seen(); most != 3 {
			t.Errorf("without a store: %d runs at once, want 3", most)
		}
		x, err := alone.Explain(t.Context(), "mail-0", time.Time{})
		if st, _ := alone.Status().Timer("mail-0"); st.Skipped[timer.ReasonLimitFull] == 0 || err != nil ||
			x.Reason == timer.ReasonLimitFull && !strings.Contains(x.Text, `"smtp"`) {
			t.Errorf("%+v, %v, %+v", x, err, st)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}

		g := newFleet(t)
		watches := []*limitWatch{{}, {}}
		fleet := &limitWatch{}
		for i := range watches {
			g.start(smtp(3), append(work(watches[i]), timer.Timer{Name: "after", Limits: []string{"smtp"},
				Run: fleet.handler(fixed(0))})...)
		}
		time.Sleep(10 * time.Second)
		for _, h := range g.Hosts {
			h.Link.Inject(dlocktest.Error(errors.New("connection refused")))
		}
		time.Sleep(time.Minute)
		for i, w := range watches {
			if _, most, _ := w.seen(); most != 3 {
				t.Errorf("during the outage: %d runs at once on host %d, want 3", most, i)
			}
		}
		for _, h := range g.Hosts {
			if err := h.Trigger(t.Context(), "after"); err == nil || !strings.Contains(err.Error(), "limit_full") {
				t.Errorf("Trigger during the outage: %v", err)
			}
			h.Link.Heal()
		}
		time.Sleep(2 * time.Minute)
		begun := func() int {
			_, _, a := watches[0].seen()
			_, _, b := watches[1].seen()
			return a + b
		}
		before := begun()
		time.Sleep(time.Minute)
		ran := begun() - before
		if ran > 3*60/5 || ran < 3*60/6-3 {
			t.Errorf("after the outage: %d runs of 5 s in a minute, with a limit of 3", ran)
		}
		g.Stop()
	})
}

// If runs that began during an outage wait for permits, their host starts no runs of other timers
// that share the limit.
//
// Fails when a timer waits only for its own runs.
func TestRunsOfAnOutageGetPermitsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(smtp(1), timer.Timer{Name: "long", Limits: []string{"smtp"}, Run: f.handler(10 * time.Minute)},
			timer.Timer{Name: "short", Limits: []string{"smtp"}, Schedule: schedule.Every(time.Second),
				Run: f.handler(0)})
		h.Link.Inject(dlocktest.Hang)
		time.Sleep(time.Minute)
		for range 3 {
			_ = h.Trigger(t.Context(), "long")
		}
		// Another session holds the permit when the store is back.
		lease, err := otherSession(t, f.store).Semaphore("limit:smtp", 1).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st, _ := h.Status().Timer("short")
		started := st.Started
		h.Link.Heal()
		time.Sleep(20 * time.Second)
		_ = lease.Release(t.Context())
		time.Sleep(time.Minute)
		long, _ := h.Status().Timer("long")
		short, _ := h.Status().Timer("short")
		if len(long.Running) != 1 || !long.Running[0].Valid || short.Started > started+2 ||
			short.Skipped[timer.ReasonRejoining] < 10 {
			t.Errorf("long %+v\nshort %+v, %d before", long, short, started)
		}
		f.Stop()
	})
}

// single is a store that takes only one lock at a time.
type single struct{ dlock.DistributedLock }

// apart is a store whose names are on different nodes.
type apart struct{ *memlock.Store }

func (apart) CheckShared(name string, shared ...string) error {
	return fmt.Errorf("%q and %q are on different nodes", name, shared)
}

// I11: all faults of a limit are returned together, and each error explains the fix. One of the
// faults is that the store cannot enforce the limit.
//
// Fails when New returns only the first fault.
func TestI11FaultsOfLimits(t *testing.T) {
	run := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		config timer.Config
		timer  timer.Timer
		want   []string
	}{
		"fine": {timer.Config{Limits: []timer.Limit{{Name: "smtp", Size: 1}, {Name: "Gpu {0}", Size: 10_000}}},
			timer.Timer{Limits: []string{"Gpu {0}", "smtp"}}, nil},
		"sizes and names": {timer.Config{Limits: []timer.Limit{{Name: "", Size: 1}, {Name: "a", Size: 0},
			{Name: "a", Size: -1}, {Name: "b:slot:1", Size: 10_001}, {Name: strings.Repeat("n", 201), Size: 1},
			{Name: "\x00", Size: timer.NoLimit}}},
			timer.Timer{}, []string{"Limits[0]", "it is empty: give the limit a name",
				`Limits[1] "a": Size: 0: use 1 to 10000`, `Limits[2] "a": Name: two limits have this name`, `Limits[2] "a": Size: -1`, "Limits[3]", "slot:", "10001",
				"201 bytes", "control character", "Limits[5]"}},
		"of timers": {timer.Config{Limits: []timer.Limit{{Name: "a", Size: 1}}},
			timer.Timer{Limits: []string{"a", "b", "a"}, LocalOnly: true}, []string{`there is no limit "b"`,
				`"a" is given twice`, "LocalOnly"}},
		"too many": {timer.Config{}, timer.Timer{Limits: strings.Split("abcdefghijk", "")},
			[]string{"11 limits: use at most 10"}},
		"one lock at a time": {timer.Config{Store: single{memlock.New()}, Limits: []timer.Limit{{Name: "a", Size: 1}}},
			timer.Timer{Limits: []string{"a"}}, []string{"takes one lock at a time", "use redislock"}},
		"one lock, and no limit": {timer.Config{Store: single{memlock.New()},
			Limits: []timer.Limit{{Name: "a", Size: 1}}}, timer.Timer{}, nil},
		"on different nodes": {timer.Config{Store: apart{memlock.New()}, Limits: []timer.Limit{{Name: "a", Size: 1}}},
			timer.Timer{Limits: []string{"a"}}, []string{"limit:a", "on different nodes"}},
	} {
		c.timer.Name, c.timer.Run = "t", run
		_, err := timer.New(c.config, c.timer)
		if len(c.want) == 0 && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nmust say %q", name, err, want)
			}
		}
	}
}

// Two hosts have timers that tick far more often than the rate of their limit allows, and replies
// are lost. In no window do more runs start than the rate allows, and nearly all of the rate is
// used. A waiting tick calls the store at the time that the store has named, so each start takes
// only a few calls.
//
// Fails when the rate is not passed to the store, or when a waiting tick polls.
func TestRateOfALimit(t *testing.T) {
	for _, rate := range []int{10, 100} {
		synctest.Test(t, func(t *testing.T) {
			const per = 10 * time.Second
			store := memlock.New()
			var mu sync.Mutex
			var starts []time.Time
			calls := 0
			work := func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, time.Now())
				return nil
			}
			config := timer.Config{Logger: slog.New(slog.DiscardHandler), MaxWait: time.Minute,
				Limits: []timer.Limit{{Name: "api", Rate: rate, Per: per}}}
			for range 2 {
				link := dlocktest.NewFaulty(store)
				link.Inject(dlocktest.Fault{}, dlocktest.OpAcquire)
				host := config
				host.Store = link
				var timers []timer.Timer
				for i := range 4 {
					timers = append(timers, timer.Timer{Name: fmt.Sprintf("call-%d", i), OnFull: timer.FullWait,
						Schedule: schedule.Every(20 * time.Millisecond), Limits: []string{"api"}, Run: work})
				}
				s, err := timer.New(host, timers...)
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- s.Run(ctx) }()
				defer func() {
					if err := <-done; err != nil {
						t.Error(err)
					}
					for _, st := range s.Status().Timers {
						calls += int(st.Skipped[timer.ReasonLimitRate])
					}
				}()
				defer stop()
			}
			time.Sleep(6 * per)
			mu.Lock()
			defer mu.Unlock()
			for i := rate; i < len(starts); i++ {
				if within := starts[i].Sub(starts[i-rate]); within < per {
					t.Fatalf("%d starts within %v: at most %d in %v", rate+1, within, rate, per)
				}
			}
			if used := float64(len(starts)) / float64(6*rate); used < 0.95 {
				t.Errorf("%.0f %% of a rate of %d was used", 100*used, rate)
			}
		})
	}
}

// A trigger that the rate of a limit refuses starts when the store has said that it may, not when
// its own back-off ends.
//
// Fails when the time in the refusal is dropped.
func TestTriggerWaitsForARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const per = 25 * time.Second // a back-off would try after 5, 10, 15, 22.5 and 33.75 s
		starts := make(chan time.Time, 3)
		store := memlock.New()
		s, err := timer.New(timer.Config{Store: store, Logger: slog.New(slog.DiscardHandler),
			Limits: []timer.Limit{{Name: "api", Rate: 1, Per: per}}}, timer.Timer{Name: "call", Limits: []string{"api"},
			MaxConcurrency: 1, Run: func(context.Context) error { starts <- time.Now(); return nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(time.Second)
		c := control.New(control.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
		for range 3 {
			if err := c.Trigger(t.Context(), "call", control.TriggerOptions{By: driver.Cause{By: "ann"}}); err != nil {
				t.Fatal(err)
			}
		}
		last := <-starts
		for range 2 {
			next := <-starts
			if gap := next.Sub(last); gap < per || gap > per+7*time.Second { // a host checks every third of a TTL
				t.Errorf("a trigger started %v after the one before, and the rate allowed it after %v", gap, per)
			}
			last = next
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Fails when a Rate without a Per, or a Per without a Rate, is accepted, or when canBound does
// not check whether the store supports rates.
func TestFaultsOfARate(t *testing.T) {
	run := func(context.Context) error { return nil }
	for name, limit := range map[string]timer.Limit{
		"no rate": {Per: time.Minute}, "negative": {Rate: -1, Per: time.Minute}, "no per": {Rate: 1},
		"too many": {Rate: 1e9 + 1, Per: time.Minute}, "too short": {Rate: 1, Per: time.Millisecond},
		"too long": {Rate: 1, Per: 31 * 24 * time.Hour}, "nothing": {},
		"negative size": {Size: -1, Rate: 1, Per: time.Minute},
	} {
		limit.Name = "api"
		_, err := timer.New(timer.Config{Store: memlock.New(), Limits: []timer.Limit{limit}},
			timer.Timer{Name: "x", Limits: []string{"api"}, Run: run})
		if err == nil || !strings.Contains(err.Error(), "use ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	type ratelessStore struct {
		driver.Store
		driver.SharedLimiter
	}
	store := memlock.New()
	_, err := timer.New(timer.Config{Store: ratelessStore{store, store},
		Limits: []timer.Limit{{Name: "api", Rate: 1, Per: time.Minute}}},
		timer.Timer{Name: "x", Limits: []string{"api"}, Run: run})
	if err == nil || !strings.Contains(err.Error(), "cannot bound the rate") {
		t.Errorf("a store that cannot: %v", err)
	}
}

// Without a store a rate holds on this host.
//
// Fails when limits.enter does not count the starts.
func TestRateWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := timer.New(timer.Config{Logger: slog.New(slog.DiscardHandler),
			Limits: []timer.Limit{{Name: "api", Rate: 2, Per: time.Minute}}},
			timer.Timer{Name: "x", Limits: []string{"api"}, Run: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		for _, want := range []bool{true, true, false} {
			_, err := s.Trigger(t.Context(), "x", timer.TriggerOptions{})
			refused, is := errors.AsType[*timer.RefusedError](err)
			if (err == nil) != want || !want && (!is || refused.Reason != timer.ReasonLimitRate) {
				t.Errorf("a trigger: %v", err)
			}
			synctest.Wait()
		}
		time.Sleep(time.Minute + time.Millisecond)
		if _, err := s.Trigger(t.Context(), "x", timer.TriggerOptions{}); err != nil {
			t.Errorf("a minute later: %v", err)
		}
		if l := s.Status().Limits[0]; l.Size != 10_000 || l.Rate != 2 || l.Per != time.Minute {
			t.Errorf("the status has %+v", l)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
