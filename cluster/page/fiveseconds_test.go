package page_test

import (
	"context"
	"html"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A fault is planted in a fleet of its own. The four expressions are what the first screen has to
// say about it, all of them in one place.
type fault struct {
	name                   string
	plant                  func(t *testing.T, f *fleet)
	what, since, why, todo string
}

// healthy is the row of a host beside the one that has the page.
func (f *fleet) healthy(name string, timers ...string) (cluster.Heartbeat, cluster.HostDetail) {
	f.t.Helper()
	s, err := f.registry.Snapshot(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	h := cluster.Heartbeat{Holder: dlock.Holder{Host: name, PID: 1, ID: "x"}, AppVersion: "v1", Version: s.Self.Version,
		TTL: 10 * time.Second, UpFor: 3 * time.Minute}
	d := cluster.HostDetail{}
	for _, timer := range timers {
		d.Timers = append(d.Timers, cluster.TimerDetail{Name: timer, MaxConcurrency: 1})
	}
	return h, d
}

// add writes the row of a host, and that it was last seen a while ago.
func (f *fleet) add(h cluster.Heartbeat, d cluster.HostDetail, seenAgo time.Duration) {
	f.t.Helper()
	f.host(h.Holder.Host, h, d)
	if seenAgo > 0 {
		change := func(rows *cluster.Rows) {
			for i := range rows.Hosts {
				if rows.Hosts[i].Holder == h.Holder {
					rows.Hosts[i].SeenAgo, rows.Hosts[i].UpFor = seenAgo, h.UpFor+seenAgo
				}
			}
		}
		f.rows.change.Store(&change)
	}
}

// fails writes the records of timers whose runs fail.
func (f *fleet) fails(err string, since time.Duration, failures int, timers ...string) {
	f.t.Helper()
	h, d := f.healthy("web-1", timers...)
	f.add(h, d, 0)
	succeeded := since + time.Minute
	b := cluster.Batch{Host: &h, Number: 1}
	b.Host.UpFor += time.Second
	for _, name := range timers {
		b.Timers = append(b.Timers, cluster.TimerRecord{Last: cluster.Run{Timer: name, Holder: h.Holder,
			Outcome: "error", Err: err, EndedAgo: 8 * time.Second}, SucceededAgo: &succeeded, Failures: failures,
			FailingFor: since, FailedAgo: 8 * time.Second, Outcomes: "oooeee"})
	}
	if _, err := f.rows.Write(f.t.Context(), b); err != nil {
		f.t.Fatal(err)
	}
}

// runs runs a timer on the page's own host.
func (f *fleet) runs(one timer.Timer) {
	f.t.Helper()
	s, err := timer.New(timer.Config{Store: f.registry.Decorate(f.locks), Holder: f.registry.Holder(),
		Logger: slog.New(slog.DiscardHandler)}, one)
	if err != nil {
		f.t.Fatal(err)
	}
	f.registry.Add(s)
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := s.Run(ctx); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(func() { stop(); ended.Wait() })
	f.page, err = page.New(page.Config{Registry: f.registry, Authorize: allow(operator), Timers: s,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatal(err)
	}
}

// A breaking schedule works at first, and panics later.
type breaking struct{ asked atomic.Int32 }

func (b *breaking) Next(t time.Time) time.Time {
	if b.asked.Add(1) > 100 {
		panic("the calendar is down")
	}
	return t.Truncate(50 * time.Millisecond).Add(50 * time.Millisecond)
}

var faults = []fault{
	{"a timer fails", func(_ *testing.T, f *fleet) {
		f.fails("index out of range [3] with length 3", 34*time.Minute, 104, "parse-feeds")
	}, `parse-feeds failing`, `since \d\d:\d\d UTC \(34 min\), 104 in a row`, `index out of range \[3\] with length 3`,
		`Pause… Trigger… Open`},
	{"six timers fail for one cause", func(_ *testing.T, f *fleet) {
		f.fails("dial tcp 10.20.30.40:5432: connection refused", 6*time.Minute, 3, "sync-1", "sync-2", "sync-3",
			"sync-4", "sync-5", "sync-6")
	}, `sync-1 and 5 more failing`, `since \d\d:\d\d UTC \(6 min\), 3 in a row, one cause`, `10.20.30.40:5432: connection `,
		`Pause all… Open`},
	{"a run hangs", func(t *testing.T, f *fleet) {
		var runs atomic.Int32
		end := make(chan struct{})
		f.runs(timer.Timer{Name: "import", Schedule: schedule.Every(50 * time.Millisecond), AlarmAfter: 3,
			MaxRunTime: time.Second, Run: func(context.Context) error {
				if runs.Add(1) > 1 {
					<-end // whatever its context says
				}
				return nil
			}})
		t.Cleanup(func() { close(end) })
	}, `import failing`, `since \d\d:\d\d UTC \(.*\), without a success`, `slot 0 is held by host-1, for `,
		`Pause… Trigger… Cancel the run… Open`},
	{"a host is silent", func(_ *testing.T, f *fleet) {
		h, d := f.healthy("web-1")
		f.add(h, d, 12*time.Second)
	}, `web-1/1/x is silent`, `last heartbeat was 12 s ago`, `It hangs, or does not reach the store`, `restart it`},
	{"a host was killed", func(t *testing.T, f *fleet) {
		h, d := f.healthy("web-1")
		f.add(h, d, 40*time.Second)
		if _, err := f.locks.TryAcquire(t.Context(), driver.Request{Name: "timer:report", Slots: 1, TTL: time.Minute,
			Token: "x", Holder: h.Holder}); err != nil {
			t.Fatal(err)
		}
	}, `web-1/1/x is gone`, `last heartbeat was 40 s ago.* It still has 1 lease, the last for another \d+ s`,
		`It was killed, or is cut off`, `start it again`},
	{"a host of another environment was refused", func(_ *testing.T, f *fleet) {
		h, d := f.healthy("web-1")
		h.Environment, d.Refused = "staging", true
		f.add(h, d, 0)
	}, `web-1/1/x .* was refused: it takes no work`, `It started 3 min ago`, `is of environment staging`,
		`Give its environment a store or prefix of its own`},
	{"a host does not reach the store", func(_ *testing.T, f *fleet) {
		h, d := f.healthy("web-1")
		d.Runners = []cluster.RunnerDetail{{Kind: "prober", Name: "redis", State: "store_down",
			ChangedAt: time.Now().Add(-5 * time.Minute), Err: "network is unreachable"}}
		f.add(h, d, 0)
	}, `prober redis on web-1/1/x: store_down`, `for 5 min`, `network is unreachable`, `check the way from that host to`},
	{"a leader cannot lead", func(_ *testing.T, f *fleet) {
		h, d := f.healthy("web-1")
		d.Runners = []cluster.RunnerDetail{{Kind: "leader", Name: "planner", State: "failing",
			ChangedAt: time.Now().Add(-5 * time.Minute), Err: "permission denied for table tickslot_locks"}}
		f.add(h, d, 0)
	}, `leader planner on web-1/1/x: failing`, `for 5 min`, `permission denied for table`, `its log says more.* Show`},
	{"hosts differ in a limit", func(_ *testing.T, f *fleet) {
		h, d := f.healthy("web-1", "report")
		h.UpFor = time.Hour
		f.add(h, d, 0)
		h, d = f.healthy("web-2", "report")
		d.Timers[0].MaxConcurrency, h.UpFor = 4, time.Nanosecond
		f.add(h, d, 0)
	}, `Hosts differ in the limit of report`, `The newest, [a-z0-9-]+, started (now|\d+ m?s ago)`, `1 on 1, 4 on 1`,
		`Finish the deploy, or set one limit`},
	{"a clock is wrong", func(_ *testing.T, f *fleet) {
		h, d := f.healthy("web-1")
		h.ClockOffset = 3 * time.Second
		f.add(h, d, 2*time.Second)
	}, `The clock of web-1/1/x is 3 s off`, `as of its last heartbeat 2(\.\d)? s ago`, `off the store's`, `set it, by NTP`},
	{"a schedule fails", func(_ *testing.T, f *fleet) {
		f.runs(timer.Timer{Name: "report", Schedule: &breaking{}, Run: func(context.Context) error { return nil }})
	}, `report has no next tick`, `Its last run on this host started (now|\d+ m?s ago)`, `the calendar is down`,
		`Fix the schedule`},
}

// block is one place of the overview: the outage, a card, a notice, or the line of what is folded.
var block = regexp.MustCompile(`(?s)<p class="outage".*?</p>|<article class="card">.*?</article>|<li class="urgent">.*?</li>|` +
	`<summary>.*?</summary>`)

// sentences returns what stands on the first screen of the overview: above the numbers of the
// fleet. What is folded is not seen.
func sentences(t *testing.T, overview string) (list []string) {
	t.Helper()
	first, _, found := strings.Cut(overview, `<section aria-labelledby="numbers">`)
	if !found {
		t.Fatalf("the numbers are not on the overview: %s", overview)
	}
	spaces := regexp.MustCompile(`\s+`)
	tags := regexp.MustCompile(`(?s)<title>.*?</title>|<[^>]*>`)
	for _, text := range block.FindAllString(first, -1) {
		text = strings.NewReplacer("</li>", " ", "</p>", " ", "</h3>", " ").Replace(text)
		text = html.UnescapeString(tags.ReplaceAllString(text, ""))
		list = append(list, strings.TrimSpace(spaces.ReplaceAllString(text, " ")))
	}
	return list
}

// says returns the sentence about a fault, or what is missing.
func (f *fault) says(all []string) (sentence, missing string) {
	missing = "the fault"
	for _, text := range all {
		lacks := ""
		for i, part := range []string{f.what, f.since, f.why, f.todo} {
			if !regexp.MustCompile(part).MatchString(text) {
				lacks += []string{" what", " since", " why", " todo"}[i]
			}
		}
		if lacks == "" {
			return text, ""
		}
		if !strings.Contains(lacks, "what") {
			missing = lacks
		}
	}
	return "", missing
}

// Five seconds have to be enough: for each of twelve faults the first screen of the overview says
// in one place what is wrong, since when, why, and what to do. Run it with -v to read the
// sentences.
//
// Fails when one of the four is taken from a sentence, or a fault moves below the first screen.
func TestFiveSecondsAreEnough(t *testing.T) {
	told := make([]string, len(faults)+1)
	t.Run("faults", func(t *testing.T) {
		for i, fault := range faults {
			t.Run(fault.name, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, page.Config{Authorize: allow(operator)})
				fault.plant(t, f)
				var all []string
				missing := ""
				err := testkit.Poll(15*time.Second, "it is said", func() bool {
					all = sentences(t, f.get(""))
					told[i], missing = fault.says(all)
					return missing == ""
				})
				if err != nil {
					t.Fatalf("%s is missing: %q", missing, all)
				}
			})
		}
		t.Run("the store does not answer", func(t *testing.T) {
			inStillFleet(t, func(f *stillFleet) {
				time.Sleep(20 * time.Second)
				f.get("")
				f.stop()
				time.Sleep(2 * time.Minute)
				f.get("")
				time.Sleep(20 * time.Second)
				outage := fault{what: "Redis has not answered", since: "for 2 min", why: "has not answered",
					todo: "up to 12 runs at once of thumbnails instead of 3.* Bring it back"}
				missing := ""
				if told[len(faults)], missing = outage.says(sentences(t, f.get(""))); missing != "" {
					t.Errorf("%s is missing: %s", missing, f.get(""))
				}
			})
		})
	})
	for i, text := range told {
		name := "the store does not answer"
		if i < len(faults) {
			name = faults[i].name
		}
		t.Logf("| %d | %s | %s |", i+1, name, text)
	}
}
