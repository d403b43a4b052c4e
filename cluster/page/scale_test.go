package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A fleet of 200 hosts with 1,000 timers each is shown within 100 ms, and costs as many calls to
// stores as a small one.
//
// Fails when a page reads a host or a timer at a time, or goes through all hosts for each timer.
func TestALargeFleetIsShownSoon(t *testing.T) {
	f := newFleetThatReads(t, page.Config{Authorize: allow(operator)}, cluster.DefaultSnapshotAge)
	var detail cluster.HostDetail
	for i := range 1000 {
		detail.Timers = append(detail.Timers, cluster.TimerDetail{Name: fmt.Sprint("timer-", i), MaxConcurrency: 3})
	}
	for i := range 200 {
		f.host(fmt.Sprint("host-", i), cluster.HostStamp{TTL: time.Hour, AppVersion: "v1"}, detail)
	}
	for i := range 500 {
		if _, err := f.session.Semaphore(fmt.Sprint("timer:timer-", i), 3).TryAcquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.has("hosts?q=host-199", "host-199/1/x")
	limit := 100 * time.Millisecond
	if testkit.RaceDetector {
		limit *= 10
	}
	for _, target := range []string{"", "timers", "timers?q=99", "timer?name=timer-7", "hosts", "leases", "leaders",
		"events"} {
		calls := f.rows.calls.Load() + f.locks.calls.Load()
		best, worst := time.Hour, time.Duration(0)
		first := time.Now()
		for range 5 { // the best of some: now and then one waits until the fleet was read anew
			began := time.Now()
			f.get(target)
			took := time.Since(began)
			best, worst = min(best, took), max(worst, took)
		}
		if best > limit {
			t.Errorf("%q takes %v", target, best)
		}
		if calls = f.rows.calls.Load() + f.locks.calls.Load() - calls; calls > 5*(1+int64(time.Since(first)/time.Second)) {
			t.Errorf("%q costs %d calls", target, calls)
		}
		t.Logf("%q: %v to %v, %d calls", target, best, worst, calls)
	}
}

// 500 who follow a page cost no more calls to stores than one does: as many as what was read is
// shared for. When they have gone, nothing is left, no goroutine either (TestMain looks).
//
// Fails when each viewer renders by himself what is not shared, and when leave is not called.
func TestManyFollowersCostWhatOneDoes(t *testing.T) {
	followed := time.Duration(testkit.Rounds(t, 2, 60)) * time.Second
	f := newFleetThatReads(t, page.Config{RefreshInterval: 200 * time.Millisecond}, cluster.DefaultSnapshotAge)
	mux := http.NewServeMux()
	mux.Handle("/ops/", f.page)
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, many := range []int{1, 500} {
		began, calls := time.Now(), f.rows.calls.Load()+f.locks.calls.Load()
		var viewers []*viewer
		for range many {
			viewers = append(viewers, follow(t, server, "timers"))
		}
		<-time.After(followed) // what counts is how much is asked meanwhile
		for _, v := range viewers {
			v.sees(t, "event: page")
		}
		if topics, n := f.page.Followers(); topics != 1 || n != many {
			t.Errorf("%d pages are followed by %d, not 1 by %d", topics, n, many)
		}
		took := time.Since(began)
		calls = f.rows.calls.Load() + f.locks.calls.Load() - calls
		if most := 2 * (2 + int64(took/cluster.DefaultSnapshotAge)); calls > most || calls < 2 {
			t.Errorf("%d calls within %v for %d viewers, at most %d", calls, took, many, most)
		}
		t.Logf("%d viewers: %d calls within %v", many, calls, took)
		for _, v := range viewers {
			v.stop()
			<-v.ended
		}
		testkit.Eventually(t, testkit.Patience, "nothing is left", func() bool {
			topics, n := f.page.Followers()
			return topics == 0 && n == 0
		})
	}
	server.Client().CloseIdleConnections()
}
