package page_test

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// A still registry does not answer while it stands still.
type stillRegistry struct {
	cluster.Store
	still atomic.Bool
	reads atomic.Int32
}

func (s *stillRegistry) wait(ctx context.Context) error {
	if !s.still.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *stillRegistry) Read(ctx context.Context, q cluster.Query) (cluster.Rows, error) {
	s.reads.Add(1)
	if err := s.wait(ctx); err != nil {
		return cluster.Rows{}, err
	}
	return s.Store.Read(ctx, q)
}

func (s *stillRegistry) Runs(ctx context.Context, timer string) ([]cluster.Run, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Store.Runs(ctx, timer)
}

func (s *stillRegistry) Write(ctx context.Context, b cluster.Batch) (cluster.Written, error) {
	if err := s.wait(ctx); err != nil {
		return cluster.Written{}, err
	}
	return s.Store.Write(ctx, b)
}

// Still locks are those of a Redis that can be had not to answer.
type stillLocks struct {
	*dlocktest.Faulty
	still *atomic.Bool
}

func (*stillLocks) String() string { return "redis" }

func (l *stillLocks) Enumerate(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
	if l.still.Load() {
		<-ctx.Done()
		return driver.LeasePage{}, ctx.Err()
	}
	return l.Faulty.Enumerate(ctx, after, limit)
}

// A still fleet has a page of one host, which leads, and whose stores can stand still. It is run in
// a bubble.
type stillFleet struct {
	t     *testing.T
	rows  *stillRegistry
	locks *stillLocks
	page  *page.Page
	asked atomic.Int32                  // how often the section called Slow was
	hang  atomic.Pointer[chan struct{}] // until it is closed, that section does not answer; nil: it does
}

func inStillFleet(t *testing.T, test func(f *stillFleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		logger := slog.New(slog.DiscardHandler)
		f := &stillFleet{t: t, rows: &stillRegistry{Store: cluster.NewMemoryStore()}}
		f.locks = &stillLocks{dlocktest.NewFaulty(memlock.New()), &f.rows.still}
		registry, err := cluster.New(cluster.Config{Store: f.rows, Locks: f.locks, Logger: logger,
			Holder: dlock.Holder{Host: "web-1", PID: 1, ID: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		idle := func(context.Context) error { return nil }
		every := schedule.Every(10 * time.Second)
		var schedulers []*timer.Scheduler
		for i := range 4 {
			holder := registry.Holder()
			if i > 0 {
				holder = dlock.NewHolder()
			}
			s, err := timer.New(timer.Config{Store: f.locks, Holder: holder, Logger: logger},
				timer.Timer{Name: "thumbnails", Schedule: every, MaxConcurrency: 3, MaxPerTick: 3, Run: idle},
				timer.Timer{Name: "report", Schedule: every, MaxConcurrency: 1, Run: idle},
				timer.Timer{Name: "bill", Schedule: every, OnStoreDown: timer.StoreDownSkip, Run: idle},
				timer.Timer{Name: "paused", Schedule: every, Run: idle})
			if err != nil {
				t.Fatal(err)
			}
			schedulers = append(schedulers, s)
		}
		registry.Add(schedulers[0])
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1+len(schedulers))
		go func() { ended <- registry.Run(ctx) }()
		for _, s := range schedulers {
			go func() { ended <- s.Run(ctx) }()
		}
		session, err := dlock.NewSession(registry.Decorate(f.locks), dlock.SessionOptions{Holder: registry.Holder(),
			TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := session.Mutex("leader:planner").TryAcquire(ctx); err != nil {
			t.Fatal(err)
		}
		slow := page.Section{Links: []page.Link{{Title: "Slow", Name: "slow"}},
			Attention: func(context.Context) []page.Notice {
				f.asked.Add(1)
				if stopped := f.hang.Load(); stopped != nil {
					<-*stopped
				}
				return []page.Notice{{Text: "slow is well"}}
			}}
		f.page, err = page.New(page.Config{Registry: registry, Authorize: page.Loopback, Timers: schedulers[0],
			Sections: []page.Section{slow}, Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		ctl := control.New(control.Config{Store: f.locks, Logger: logger})
		if err := ctl.Pause(ctx, "paused", time.Now().Add(time.Hour), driver.Cause{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		test(f)
		f.goOn()
		time.Sleep(time.Minute)
		stop()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := session.Close(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}

func (f *stillFleet) stop() {
	f.rows.still.Store(true)
	f.locks.Inject(dlocktest.Hang)
}

func (f *stillFleet) goOn() {
	f.rows.still.Store(false)
	f.locks.Heal()
}

// get returns a page, and fails the test if it takes long.
func (f *stillFleet) get(target string) string {
	f.t.Helper()
	began := time.Now()
	r := request("GET", target, "").WithContext(f.t.Context()) // with the patience of a viewer
	w := serve(f.page, r)
	if took := time.Since(began); took >= 500*time.Millisecond {
		f.t.Errorf("%q takes %v", target, took)
	}
	if w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable {
		f.t.Errorf("%q: %d", target, w.Code)
	}
	return w.Body.String()
}

// has fails the test if a page lacks a text.
func (f *stillFleet) has(target string, want ...string) {
	f.t.Helper()
	html := f.get(target)
	for _, text := range want {
		if !strings.Contains(html, text) {
			f.t.Errorf("%q lacks %q: %s", target, text, html[strings.Index(html, "<title"):])
		}
	}
}

var allPages = []string{"", "timers", "timer?name=thumbnails", "hosts", "leases", "leaders", "events"}

// While its stores stand still, each page is there within half a second, with what was read last
// and as of when; the stores are asked now and then only, however many pages are loaded. It is the
// same if they stand still from the beginning, with nothing to show.
//
// Fails when a page waits for a store longer than the patience of all its reads, or each viewer has
// a read of his own.
func TestPagesDoNotWaitForAStoreThatStandsStill(t *testing.T) {
	for _, began := range []bool{true, false} {
		inStillFleet(t, func(f *stillFleet) {
			if began {
				time.Sleep(20 * time.Second)
				for _, target := range allPages {
					f.has(target, "All well", "hosts <b>1/1</b>", "Redis: read <b><time", ">now</time></b>",
						"dot-well.svg")
				}
				time.Sleep(time.Minute)
			}
			f.stop()
			reads := f.rows.reads.Load()
			for range 30 {
				for _, target := range allPages {
					html := f.get(target)
					if !strings.Contains(html, "tickslot</title>") {
						t.Errorf("%q: %s", target, html)
					}
				}
				time.Sleep(time.Second)
			}
			if reads = f.rows.reads.Load() - reads; reads > 12 || reads < 3 {
				t.Errorf("it was asked %d times within half a minute", reads)
			}
			if began {
				f.has("timers", "thumbnails", "A store does not answer. This is as of", `class="stale"`)
			} else {
				f.has("hosts", "Nothing was read yet")
			}
			f.goOn()
			time.Sleep(time.Minute) // its loops say so with the next heartbeats
			f.get("")
			time.Sleep(time.Second)
			f.has("", "All well")
		})
	}
}

// During an outage the first thing on each page is that there is one, for how long, how many timers
// run without the store, and by how much they may exceed a limit, once and in plain words. It is
// not said to be live. Ages stop at the instant of the read, and nobody is said to lead whose lease
// has ended.
//
// Fails when the outage is left out, is told again among the notices, or in words of our code; when
// a timer that is paused is counted; when an age is as of now; or when a lease counts after its
// end.
func TestAnOutageIsSaidFirstAndOnce(t *testing.T) {
	inStillFleet(t, func(f *stillFleet) {
		time.Sleep(20 * time.Second)
		f.has("", `<bdi>planner</bdi> is led by <bdi class="holder" title="web-1/1/a">web-1</bdi>`, "All well",
			`data-live="Live"`)
		f.stop()
		time.Sleep(2 * time.Minute)
		f.get("") // it is asked
		time.Sleep(20 * time.Second)
		const sentence = "Redis has not answered for 2 min. 2 timers run without it: up to 12 runs at once of " +
			"thumbnails instead of 3; 1 timer waits for it."
		for _, target := range allPages {
			f.has(target, sentence, "Stale, 2 min", `data-live="Stale, 2 min"`, "<title>(1) ", "dot-stale.svg",
				"as of <time")
		}
		html := f.get("")
		for _, text := range []string{"is led by", "deadline", "cluster:", "context", ">Live<", "problem",
			`class="urgent"`, `class="card"`} {
			if strings.Contains(html, text) {
				t.Errorf("%q is on the overview: %s", text, html)
			}
		}
		if n := strings.Count(html, "answer"); n != 2 { // above the page, and that it is as of then
			t.Errorf("that the store does not answer is said %d times: %s", n, html)
		}
		f.has("", `has no leader that is known: the lease of <bdi class="holder" title="web-1/1/a">web-1</bdi> ended <time`)
		if html := f.get("leaders"); strings.Contains(html, `ok">held<`) {
			t.Errorf("a lease that has ended is held: %s", html)
		}
		ages := regexp.MustCompile(`>(now|[0-9.]+ [a-z0-9 ]+)</time>`)
		before := ages.FindAllString(f.get("hosts"), -1)
		time.Sleep(20 * time.Second)
		if after := ages.FindAllString(f.get("hosts"), -1); len(before) < 2 || !slices.Equal(after, before) {
			t.Errorf("ages went on: %v, then %v", before, after)
		}

		// Only the locks are silent: what else there is is not stale.
		f.goOn()
		time.Sleep(time.Minute)
		f.get("")
		synctest.Wait()
		f.has("", "All well")
		f.locks.Inject(dlocktest.Hang)
		time.Sleep(2 * time.Minute)
		f.get("")
		time.Sleep(20 * time.Second)
		f.has("hosts", "Redis has not answered for 2 min. 2 timers run", "> Outage<", `data-live="Live"`, "read <b><time",
			">now</time></b>", "<title>(1) ")
		if html := f.get(""); strings.Contains(html, `class="urgent"`) {
			t.Errorf("the outage is told again: %s", html)
		}
	})
}

// A section that does not answer holds up nobody: the page says so in its place, and shows what it
// says when it does. It is not asked again while it has not answered.
//
// Fails when a page waits for a section, asks it once more meanwhile, or keeps what it said from
// the page.
func TestASectionThatDoesNotAnswer(t *testing.T) {
	inStillFleet(t, func(f *stillFleet) {
		time.Sleep(20 * time.Second)
		stopped := make(chan struct{})
		f.hang.Store(&stopped)
		for range 20 {
			f.has("", "Slow: no answer yet.", "All well")
		}
		if n := f.asked.Load(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
		f.hang.Store(nil)
		close(stopped)
		synctest.Wait()
		f.has("", "slow is well")
		synctest.Wait()
		f.has("", "slow is well")
		if html := f.get(""); strings.Contains(html, "no answer yet") {
			t.Errorf("it has answered: %s", html)
		}
		stopped = make(chan struct{})
		f.hang.Store(&stopped)
		time.Sleep(time.Minute)
		f.has("", "slow is well", "Slow: no answer yet, so this is what it was 60 s ago")
		f.hang.Store(nil)
		close(stopped)
	})
}

// A page without a scheduler says for the whole fleet what timers do without the store, from what
// hosts have written, and for each host on the timer's page. It cannot know whether the hosts reach
// the store, and says so. A timer that is paused does not count.
//
// Fails when the page knows only the timers of its own process.
func TestAnOutageIsAboutTheWholeFleet(t *testing.T) {
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	for _, host := range []string{"web-1", "web-2"} {
		f.host(host, cluster.Heartbeat{}, cluster.HostDetail{Timers: []cluster.TimerDetail{
			{Name: "thumbnails", MaxConcurrency: 4, MaxPerHost: 3}, {Name: "report", MaxConcurrency: 1},
			{Name: "paused", MaxConcurrency: 1}, {Name: "bill", MaxConcurrency: 1, OnStoreDown: "skip"},
			{Name: "local", MaxConcurrency: 1, OnStoreDown: "none"}}})
	}
	f.has("timers", "thumbnails")
	f.post("do?action=pause&name=paused", map[string][]string{"for": {"1h"}})
	f.has("timers", "<bdi>by ann</bdi>")
	f.has("timer?name=thumbnails", `<td data-label="Without the store">up to 3 runs at once</td>`)
	f.has("timer?name=bill", `<td data-label="Without the store">starts nothing</td>`)
	f.rows.down.Store(true)
	f.has("", "does not answer", "Unless hosts reach the store of their locks, 2 timers run without it: up to 6 runs "+
		"at once of thumbnails instead of 4; 1 timer waits for it.")
}
