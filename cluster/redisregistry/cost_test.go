package redisregistry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// Measures what the calls of a large fleet cost the server; the package documentation quotes the
// results. The test fails only if a call blocks the server long enough to delay heartbeats.
func TestCostOfALargeFleet(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	server := redistest.New(t)
	store := open(t, client(t, server.Addr()), unique())
	admin := server.Client()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// CPU time of the server's main thread. On a busy machine the elapsed time of a call is longer.
	used := regexp.MustCompile(`used_cpu_(?:sys|user)_main_thread:([0-9.]+)`)
	busy := func() (sum time.Duration) {
		stats, err := admin.Info(ctx, "cpu").Result()
		found := used.FindAllStringSubmatch(stats, -1)
		if err != nil || len(found) != 2 {
			t.Fatal(stats, err)
		}
		for _, m := range found {
			seconds, _ := strconv.ParseFloat(m[1], 64)
			sum += time.Duration(seconds * float64(time.Second))
		}
		return sum
	}
	measure := func(what string, times int, call func(i int)) {
		t.Helper()
		call(0) // loads the script
		before := busy()
		for i := range times {
			call(i)
		}
		cost := (busy() - before) / time.Duration(times)
		t.Logf("%-50s %8v", what, cost.Round(10*time.Microsecond))
		if cost > 500*time.Millisecond {
			t.Errorf("%s: %v", what, cost)
		}
	}
	write := func(b cluster.Batch) {
		if _, err := store.Write(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	read := func(q cluster.Query) func(int) {
		return func(int) {
			if _, err := store.Read(ctx, q); err != nil {
				t.Fatal(err)
			}
		}
	}
	detail := fleetDetail()
	beat := func(i int) *cluster.Heartbeat {
		return &cluster.Heartbeat{Holder: dlock.Holder{Host: fmt.Sprint("web-", i), PID: 4711, ID: "gw6htyep"},
			Environment: "production", AppVersion: "2026.11.3", Version: "v0.9.0", UpFor: time.Hour,
			TTL: 15 * time.Second}
	}
	leases := func(host, n int) (all []cluster.LeaseRecord) {
		for i := range n {
			all = append(all, cluster.LeaseRecord{Name: fmt.Sprintf("timer:process-orders-%d-%d", host, i), Slots: 3,
				Slot: i % 3, Kind: "timer", Holder: beat(host).Holder, Fence: dlock.Fence(1795161862226257 + int64(i)),
				Grant: "4kq2m7sd", HeldFor: time.Minute, RenewedAgo: time.Second, ExpiresIn: 14 * time.Second})
		}
		return all
	}
	memory := func(what string) {
		t.Helper()
		stats, err := admin.Info(ctx, "memory").Result()
		found := regexp.MustCompile(`used_memory_dataset:(\d+)`).FindStringSubmatch(stats)
		if err != nil || found == nil {
			t.Fatal(stats, err)
		}
		bytes, _ := strconv.Atoi(found[1])
		t.Logf("%-50s %6d kB", what, bytes>>10)
	}
	memory("Memory of nothing")
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := w; i < 200; i += 4 {
				h := beat(i)
				h.Detail = detail
				if _, err := store.Write(ctx, cluster.Batch{Host: h}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	memory("Memory of 200 hosts × 1,000 timers")
	measure("Write of a heartbeat", 50, func(i int) { write(cluster.Batch{Host: beat(i)}) })
	measure(fmt.Sprintf("Write of a host with a detail of %d kB", len(detail)>>10), 50, func(i int) {
		h := beat(i)
		h.Detail = detail
		write(cluster.Batch{Host: h})
	})
	held := leases(0, cluster.MaxBatch)
	measure("Write of 500 leases", 20, func(int) { write(cluster.Batch{Leases: held}) })
	run := 0
	measure("Write of 500 runs of 500 timers", 10, func(int) {
		var b cluster.Batch
		for i := range cluster.MaxBatch {
			run++
			b.Runs = append(b.Runs, cluster.Run{ID: fmt.Sprint(run), Timer: fmt.Sprint("process-orders-", i),
				Holder: beat(0).Holder, Tick: time.Now(), Outcome: "ok", Took: time.Second, Attempts: 1})
		}
		write(b)
	})
	number := int64(0)
	count := func(ago time.Duration) {
		number++
		b := cluster.Batch{Host: beat(0), Number: number}
		for i := range cluster.MaxBatch {
			name := fmt.Sprint("process-orders-", i)
			b.Timers = append(b.Timers, cluster.TimerRecord{Last: cluster.Run{Timer: name, Holder: beat(0).Holder,
				Tick: time.Now(), Outcome: "ok", Took: time.Second, Attempts: 1}, Outcomes: "o", SucceededAgo: &ago})
			for _, width := range []time.Duration{cluster.FineBucket, cluster.CoarseBucket} {
				b.Buckets = append(b.Buckets, cluster.Bucket{Timer: name, Interval: width, Bin: 10 + int(number)%3,
					Runs: 1, Took: time.Second, Ago: ago, LongestTook: time.Second})
			}
		}
		write(b)
	}
	measure("Write of what runs of 500 timers add up to", 100, func(i int) {
		count(time.Duration(i) * 15 * time.Minute)
	})
	memory("Memory with a day of buckets of 500 timers")
	measure("Write of 500 events", 10, func(n int) {
		var b cluster.Batch
		for i := range cluster.MaxBatch {
			b.Events = append(b.Events, cluster.Event{ID: fmt.Sprint(n, " ", i), Kind: cluster.EventAcquired,
				Name: "process-orders", Holder: beat(0).Holder})
		}
		write(b)
	})
	measure("Read of 200 hosts × 1,000 timers, 500 leases", 20, read(cluster.Query{Events: 100, Runs: 100}))
	for host := range 19 {
		write(cluster.Batch{Leases: leases(1+host, cluster.MaxBatch)})
	}
	measure("Read of the same with 10,000 leases", 10, read(cluster.Query{Events: 100, Runs: 100}))
	measure("Read of 1,000 events and 1,000 runs with it", 10, read(cluster.Query{Events: 1000, Runs: 1000}))
	measure("Runs of a timer", 50, func(i int) {
		if _, err := store.Runs(ctx, fmt.Sprint("process-orders-", i)); err != nil {
			t.Fatal(err)
		}
	})
	measure("Read of the records of 500 timers", 10, read(cluster.Query{Timers: 10_000}))
	measure("Buckets of a timer", 50, func(i int) {
		if _, err := store.Buckets(ctx, fmt.Sprint("process-orders-", i)); err != nil {
			t.Fatal(err)
		}
	})
	memory("Memory before more runs")
	for range 100 { // 50 runs of 1,000 timers
		var b cluster.Batch
		for range cluster.MaxBatch {
			run++
			b.Runs = append(b.Runs, cluster.Run{ID: fmt.Sprint("4kq2m7sd", run), Holder: beat(0).Holder,
				Timer: fmt.Sprint("orders-", run%1000), Tick: time.Now(), Outcome: "ok", Took: time.Second,
				Attempts: 1})
		}
		write(b)
	}
	memory("Memory with 50,000 runs more")
	day := 24 * time.Hour
	sweep := func(r cluster.Retention) func(int) {
		return func(int) {
			if _, err := store.Sweep(ctx, r, 500); err != nil {
				t.Fatal(err)
			}
		}
	}
	measure("Sweep that finds nothing", 20, sweep(cluster.Retention{Hosts: day, Leases: day, Events: day, Runs: day}))
	measure("Sweep of 500 events and 500 runs", 1, sweep(cluster.Retention{Hosts: day, Leases: day}))
}

// fleetDetail returns the detail of a host with 1,000 timers.
func fleetDetail() json.RawMessage {
	var d cluster.HostDetail
	for i := range 1000 {
		d.Timers = append(d.Timers, cluster.TimerDetail{Name: fmt.Sprint("orders", i), MaxConcurrency: 3})
	}
	text, _ := json.Marshal(d)
	return text
}
