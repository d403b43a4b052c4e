package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A fleet of 200 hosts with 1,000 timers each, with charts of a day and of a month, is shown within
// 100 ms, and costs as many calls to stores as a small one.
//
// Fails when a page reads a host or a timer at a time, or goes through all hosts for each timer.
func TestALargeFleetIsShownSoon(t *testing.T) {
	f := newFleetThatReads(t, page.Config{Authorize: allow(operator)}, snapshotAge)
	var detail cluster.HostDetail
	for i := range 1000 {
		detail.Timers = append(detail.Timers, cluster.TimerDetail{Name: fmt.Sprint("timer-", i), MaxConcurrency: 3})
	}
	text, err := json.Marshal(detail)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if _, err := f.rows.Write(t.Context(), cluster.Batch{Host: &cluster.Heartbeat{TTL: time.Hour, AppVersion: "v1",
			Holder: dlock.Holder{Host: fmt.Sprint("host-", i), PID: 1, ID: "x"}, Detail: text}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 {
		if _, err := f.session.Semaphore(fmt.Sprint("timer:timer-", i), 3).TryAcquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	writeHistory(t, f)
	f.has("hosts?q=host-199", "host-199/1/x")
	f.has("timer?name=timer-7", `<path class="p95"`)
	f.has("?chart=month", "within a month: 148")
	limit := 100 * time.Millisecond
	if testkit.RaceDetector {
		limit *= 10
	}
	for _, target := range []string{"", "timers", "timers?q=99", "timer?name=timer-7",
		"timer?name=timer-7&chart=month", "?chart=month", "hosts", "leases", "leaders",
		"events"} {
		calls := f.rows.calls.Load() + f.locks.calls.Load()
		best, worst := time.Hour, time.Duration(0)
		first := time.Now()
		// The best of some: now and then one waits until the fleet was read anew, or for a busy
		// machine.
		for round, few := 0, testkit.Rounds(t, 3, 10); round < few || best > limit && round < 50; round++ {
			began := time.Now()
			f.get(target)
			took := time.Since(began)
			best, worst = min(best, took), max(worst, took)
		}
		if best > limit {
			t.Errorf("%q takes %v", target, best)
		}
		calls = f.rows.calls.Load() + f.locks.calls.Load() - calls
		if calls > 5*(1+int64(time.Since(first)/time.Second)) {
			t.Errorf("%q costs %d calls", target, calls)
		}
		t.Logf("%q: %v to %v, %d calls", target, best, worst, calls)
	}
}

// writeHistory writes how the runs of all timers ended: a day and a month of buckets of one timer
// and of the fleet, each with a thousand runs of five bins.
func writeHistory(t *testing.T, f *fleet) {
	t.Helper()
	b := cluster.Batch{Number: 1, Host: &cluster.Heartbeat{TTL: time.Hour,
		Holder: dlock.Holder{Host: "host-0", PID: 1, ID: "x"}}}
	for i := range 1000 {
		r := cluster.TimerRecord{Last: cluster.Run{Timer: fmt.Sprint("timer-", i), Outcome: "ok",
			EndedAgo: time.Minute}, SucceededAgo: new(time.Minute), Outcomes: strings.Repeat("eo", 15)}
		if i%100 == 0 {
			r.Last.Outcome, r.Last.Err, r.SucceededAgo = "error", "no paper", nil
			r.Failures, r.FailingFor, r.FailedAgo = 7, time.Hour, time.Minute
		}
		b.Timers = append(b.Timers, r)
	}
	for _, span := range []struct{ width, length time.Duration }{
		{cluster.FineBucket, cluster.FineRetention}, {cluster.CoarseBucket, cluster.CoarseRetention}} {
		for ago := time.Duration(0); ago < span.length; ago += span.width {
			for bin := range 6 {
				timer := "timer-7"
				if bin == 0 {
					timer = ""
				}
				b.Buckets = append(b.Buckets, cluster.Bucket{Timer: timer, Interval: span.width, Ago: ago, Bin: bin,
					Runs: 200, Failed: bin, Took: time.Duration(200*bin) * time.Millisecond,
					LongestTook: time.Duration(2*bin) * time.Millisecond})
			}
		}
	}
	if _, err := f.rows.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// 500 viewers who follow a page for a minute cost no more calls to stores than one does, because
// they share each read. When they have gone, nothing is left, no goroutine either (TestMain checks
// that).
//
// Fails when a viewer has a read of his own, and when leave is not called.
func TestManyFollowersCostWhatOneDoes(t *testing.T) {
	followed := time.Duration(testkit.Rounds(t, 2, 65)) * time.Second // a stream ends after a minute
	f := newFleetThatReads(t, page.Config{RefreshInterval: 200 * time.Millisecond}, snapshotAge)
	f.host("h", cluster.Heartbeat{TTL: time.Hour}, cluster.HostDetail{Timers: []cluster.TimerDetail{{Name: "report",
		MaxConcurrency: 1}}})
	f.has("timers", "report")
	mux := http.NewServeMux()
	mux.Handle("/ops/", f.page)
	server := httptest.NewServer(mux)
	defer server.Close()
	for many, followed := range map[int]time.Duration{1: min(followed, 10*time.Second), 500: followed} {
		ctx, stop := context.WithCancel(t.Context())
		began, calls := time.Now(), f.rows.calls.Load()+f.locks.calls.Load()
		var viewers sync.WaitGroup
		var pages atomic.Int64
		for range many {
			viewers.Go(func() {
				for ctx.Err() == nil { // as a browser does
					pages.Add(pagesOf(ctx, server, "timers"))
				}
			})
		}
		everybody := func() bool {
			topics, n := f.page.Followers()
			return topics == 1 && n == many
		}
		testkit.Eventually(t, testkit.Patience, "all are viewers", everybody)
		<-time.After(followed) // what counts is how much is asked meanwhile
		testkit.Eventually(t, testkit.Patience, "all are viewers still, or again", everybody)
		took := time.Since(began)
		calls = f.rows.calls.Load() + f.locks.calls.Load() - calls
		if most := 3 * (2 + int64(took/snapshotAge)); calls > most || calls < 1 {
			t.Errorf("%d calls within %v for %d viewers, at most %d", calls, took, many, most)
		}
		stop()
		viewers.Wait()
		t.Logf("%d viewers: %d calls within %v, %d pages", many, calls, took, pages.Load())
		if pages.Load() < int64(many) {
			t.Errorf("%d viewers have seen %d pages", many, pages.Load())
		}
		testkit.Eventually(t, testkit.Patience, "nothing is left", func() bool {
			topics, n := f.page.Followers()
			return topics == 0 && n == 0
		})
	}
	server.Client().CloseIdleConnections()
}

// pagesOf follows a page until the stream ends, and returns how many pages came.
func pagesOf(ctx context.Context, server *httptest.Server, target string) (n int64) {
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/ops/"+target, nil)
	if err != nil {
		return 0
	}
	r.Header.Set("Accept", "text/event-stream")
	answer, err := server.Client().Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if lines.Text() == "event: page" {
			n++
		}
	}
	return n
}

// 500 viewers of all pages, half of whom follow a page and half load pages again and again, cost no
// more calls within an interval than the pages do: what is read is shared per page, however many
// look at it.
//
// Fails when a load of a page, or a viewer of another page, has a read of its own.
func TestViewersOfAllPagesShareReads(t *testing.T) {
	followed := time.Duration(testkit.Rounds(t, 2, 10)) * time.Second
	f := newFleetThatReads(t, page.Config{Authorize: allow(operator), RefreshInterval: 200 * time.Millisecond},
		snapshotAge)
	f.timersAre("report")
	f.has("timers", "report")
	mux := http.NewServeMux()
	mux.Handle("/ops/", f.page)
	server := httptest.NewServer(mux)
	defer server.Close()
	targets := []string{"", "timers", "timer?name=report", "hosts", "leases", "leaders", "events"}
	most := map[int]int64{}
	for _, many := range []int{len(targets), 500} {
		ctx, stop := context.WithCancel(t.Context())
		began, calls := time.Now(), f.rows.calls.Load()+f.locks.calls.Load()
		var viewers sync.WaitGroup
		var pages atomic.Int64
		for i := range many {
			target := targets[i%len(targets)]
			viewers.Go(func() {
				for ctx.Err() == nil {
					if i%2 == 0 {
						pages.Add(pagesOf(ctx, server, target))
						continue
					}
					f.get(target)
					pages.Add(1)
					select {
					case <-time.After(200 * time.Millisecond): // as one who presses a key does
					case <-ctx.Done():
					}
				}
			})
		}
		<-time.After(followed) // what counts is how much is asked meanwhile
		intervals := 2 + int64(time.Since(began)/snapshotAge)
		most[many] = (f.rows.calls.Load() + f.locks.calls.Load() - calls) / intervals
		stop()
		viewers.Wait()
		t.Logf("%d viewers: %d calls per interval, %d pages", many, most[many], pages.Load())
		if pages.Load() < int64(many) {
			t.Errorf("%d viewers have seen %d pages", many, pages.Load())
		}
	}
	// A snapshot, the locks, pauses, and the timer's runs, triggers and two charts.
	if n := most[500]; n > 9 || n > most[len(targets)]+3 {
		t.Errorf("500 viewers cost %d calls per interval, %d cost %d", n, len(targets), most[len(targets)])
	}
	server.Client().CloseIdleConnections()
}
