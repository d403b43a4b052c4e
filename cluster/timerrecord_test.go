package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
)

// A timer that runs once an hour and always fails is shown as failing since its first failure, with
// all of its failures, even in a fleet of a thousand timers that run continuously.
//
// Fails when the state of a timer is derived from the newest runs of the fleet.
func TestSeldomTimerThatFailsIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const hours, busy = 9, 1000
		f := newFleet(t)
		h := f.start(cluster.Config{TTL: 20 * time.Minute})
		time.Sleep(time.Minute)
		began := time.Now()
		for range hours {
			h.RecordRun(cluster.Run{Timer: "nightly", Outcome: "error", Err: "no paper", Took: time.Second})
			time.Sleep(time.Hour)
			for i := range busy {
				h.RecordRun(cluster.Run{Timer: fmt.Sprint("busy", i), Outcome: "ok", Took: time.Millisecond})
			}
		}
		time.Sleep(10 * time.Minute)
		s := h.snapshot()
		for _, r := range s.Runs {
			if r.Timer == "nightly" {
				t.Error("a run of the timer is among the newest, so this shows nothing")
			}
		}
		timers := map[string]*cluster.FleetTimer{}
		for _, timer := range s.Timers() {
			timers[timer.Name] = timer
		}
		nightly := timers["nightly"]
		if len(timers) != busy+1 || nightly == nil {
			t.Fatalf("%d timers", len(timers))
		}
		failed, since := nightly.Failing()
		if failed != hours || since.Sub(began).Abs() > time.Second ||
			nightly.State(false, false) != cluster.TimerFailing || nightly.Last().Err != "no paper" ||
			len(nightly.History.Outcomes) != hours {
			t.Errorf("%d failures since %v, %+v", failed, since, nightly.History)
		}
		want := "failing since " + began.UTC().Format("15:04") + " UTC, 9 in a row"
		if text := nightly.FailingText(began.Add(time.Second)); text != want {
			t.Errorf("%q, want %q", text, want)
		}
		if text := timers["busy0"].FailingText(time.Now()); text != "" || timers["busy0"].Failed() != 0 {
			t.Errorf("a timer that succeeds: %q", text)
		}
		for timer, want := range map[string]int{"nightly": hours, "": hours * (busy + 1)} {
			count, failures, took := bucketsOf(t, h, timer, cluster.FineBucket)
			if hourly, _, _ := bucketsOf(t, h, timer, cluster.CoarseBucket); count != want || hourly != want ||
				failures != hours {
				t.Errorf("%q: %d runs by five minutes, %d by the hour, %d failed, want %d", timer, count, hourly,
					failures, want)
			}
			if timer == "nightly" && took != hours*time.Second {
				t.Errorf("they took %v", took)
			}
		}
		f.end()
	})
}

// bucketsOf adds up the buckets of one width.
func bucketsOf(t *testing.T, h *host, timer string, width time.Duration) (runs, failed int, took time.Duration) {
	t.Helper()
	list, err := h.Buckets(t.Context(), timer)
	if err != nil {
		t.Fatal(err)
	}
	var last time.Time
	for _, b := range list {
		if b.Interval != width {
			continue
		}
		if !b.StartedAt.After(last) || !b.StartedAt.Equal(b.StartedAt.Truncate(width)) {
			t.Errorf("a bucket began at %v, and the one before at %v", b.StartedAt, last)
		}
		last = b.StartedAt
		runs, failed, took = runs+b.Runs, failed+b.Failed, took+b.Took
	}
	return runs, failed, took
}

// Each run is counted once, even if the reply to a batch is lost and more runs end before it is
// repeated, and even if runs wait for the host's row. If that row was deleted before an answer
// arrived, runs may be left uncounted, but are never counted twice.
//
// Fails when runs join a repeated batch, when a batch that arrived before the row of its host is
// treated as counted, or when a batch is repeated after the row that had counted it was deleted.
func TestRunsAreCountedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.make(cluster.Config{})
		recorded := 0
		record := func(n int) {
			for range n {
				recorded++
				h.RecordRun(cluster.Run{Timer: "orders", Outcome: "error", Took: time.Second})
			}
		}
		counted := func(when string) {
			t.Helper()
			runs, _, _ := bucketsOf(t, h, "orders", cluster.CoarseBucket)
			timers := h.snapshot().Timers()
			if runs != recorded || len(timers) != 1 || timers[0].Failed() != recorded {
				t.Errorf("%s: of %d runs %d are in buckets, and %d failed in a row", when, recorded, runs,
					timers[0].Failed())
			}
		}
		record(3) // before the host has a row
		h.begin()
		time.Sleep(time.Minute)
		counted("runs that ended before the first heartbeat")
		h.link.set(func(l *link) { l.lost = true })
		for range 5 {
			record(cluster.MaxBatch / 3)
			time.Sleep(ttl)
		}
		h.link.heal()
		time.Sleep(2 * time.Minute)
		counted("replies were lost")
		for _, fails := range []func(*link){func(l *link) { l.lost = true }, func(l *link) { l.err = errDown }} {
			h.link.set(fails) // long enough for its row to be deleted
			record(2)
			time.Sleep(2 * ttl)
			h.link.set(func(l *link) { l.lost, l.err = false, errDown })
			record(1)
			time.Sleep(5 * time.Minute)
			if _, err := f.store.Sweep(t.Context(), cluster.Retention{Leases: time.Hour, Events: time.Hour,
				Runs: time.Hour, Hosts: time.Minute}, 10); err != nil {
				t.Fatal(err)
			}
			h.link.heal()
			time.Sleep(2 * time.Minute)
			runs, _, _ := bucketsOf(t, h, "orders", cluster.CoarseBucket)
			if runs > recorded || runs < recorded-2 { // it is unknown whether the two were counted
				t.Errorf("the row of the host was deleted: of %d runs %d are in buckets", recorded, runs)
			}
			recorded = runs
		}
		counted("the row of the host was deleted")
		h.link.set(func(l *link) { l.err = errDown })
		record(3 * cluster.MaxBatch)
		time.Sleep(time.Minute)
		record(1)
		h.link.heal()
		time.Sleep(2 * time.Minute)
		counted("more runs waited than a batch has")
		record(2) // written with the last heartbeat
		f.end()
		time.Sleep(time.Minute)
		counted("the host has stopped")
	})
}

// The calls that write runs also write their totals: a host that runs a timer every ten seconds
// makes as many calls as one that runs none.
//
// Fails when records or buckets are written by a separate call.
func TestCountingRunsTakesNoCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(cluster.Config{})
		calls := func(runs bool) (all int) {
			time.Sleep(time.Minute)
			h.link.count()
			for range 60 {
				for i := range 20 {
					if runs {
						h.RecordRun(cluster.Run{Timer: fmt.Sprint("timer", i), Outcome: "ok",
							Took: time.Duration(i*i) * time.Millisecond}) // of many bins
					}
				}
				time.Sleep(10 * time.Second)
			}
			n := h.link.count()
			return n["write"]
		}
		// With something to write, a read happens between two writes instead of replacing one.
		if none, some := calls(false), calls(true); some > 60*int(10*time.Second)/int(ttl/3)*10/9+1 {
			t.Errorf("%d writes with runs, %d without", some, none)
		} else {
			t.Logf("%d writes with runs, %d without", some, none)
		}
		if runs, _, _ := bucketsOf(t, h, "timer7", cluster.FineBucket); runs < 50 {
			t.Errorf("%d runs are counted", runs)
		}
		f.end()
	})
}

// The percentiles of what runs took are those of all runs of a bucket, of all hosts together, and
// exact if the runs took different bins, or equally long. An estimate is off by less than a third.
// Those of all timers together are not known.
//
// Fails when binOf puts all durations into one bin, when TookPercentile counts from the longest or
// returns the mean of a bin for all of its runs, and when Add forgets the bins.
func TestPercentilesOfDurations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		a, b := f.start(cluster.Config{}), f.start(cluster.Config{})
		time.Sleep(time.Minute)
		run := func(h *host, timer string, took ...time.Duration) {
			for _, d := range took {
				h.RecordRun(cluster.Run{Timer: timer, Outcome: "ok", Took: d})
			}
		}
		const ms = time.Millisecond
		run(a, "apart", ms, 5*ms, 30*ms)
		run(b, "apart", 700*ms, time.Hour)
		for range 19 {
			run(a, "equal", 1500*ms)
		}
		run(b, "equal", 40*time.Second)
		run(a, "one", 0)
		var steps []time.Duration
		for i := range 100 {
			steps = append(steps, time.Duration(1+i)*10*ms)
		}
		run(a, "steps", steps[:50]...)
		run(b, "steps", steps[50:]...)
		time.Sleep(time.Minute)
		for _, c := range []struct {
			timer       string
			percent     int
			least, most time.Duration
		}{
			{"apart", 1, ms, ms}, {"apart", 20, ms, ms}, {"apart", 21, 5 * ms, 5 * ms}, {"apart", 50, 30 * ms, 30 * ms},
			{"apart", 80, 700 * ms, 700 * ms}, {"apart", 95, time.Hour, time.Hour},
			{"apart", 100, time.Hour, time.Hour},
			{"equal", 50, 1500 * ms, 1500 * ms}, {"equal", 95, 1500 * ms, 1500 * ms},
			{"equal", 96, 40 * time.Second, 40 * time.Second},
			{"one", 50, 0, 0}, {"one", 95, 0, 0},
			{"steps", 50, 450 * ms, 550 * ms}, {"steps", 95, 900 * ms, time.Second}, {"steps", 25, 200 * ms, 300 * ms},
			{"", 50, 0, 0}, {"", 95, 0, 0},
		} {
			for _, width := range []time.Duration{cluster.FineBucket, cluster.CoarseBucket} {
				var all cluster.HistoryBucket
				list, err := a.Buckets(t.Context(), c.timer)
				if err != nil {
					t.Fatal(err)
				}
				seen := map[time.Time]bool{}
				for _, bucket := range list {
					if bucket.Interval != width {
						continue
					}
					if seen[bucket.StartedAt] {
						t.Errorf("%q has two buckets of %v", c.timer, bucket.StartedAt)
					}
					seen[bucket.StartedAt] = true
					all.Add(bucket)
				}
				if got := all.TookPercentile(c.percent); got < c.least || got > c.most {
					t.Errorf("%q: p%d by %v: %v, want %v to %v", c.timer, c.percent, width, got, c.least, c.most)
				}
			}
		}
		f.end()
	})
}
