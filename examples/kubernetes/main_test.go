//go:build unix

package main

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/examples/internal/fleettest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) {
	fleettest.Main(main)
	servertest.Main(m)
}

// The test acts as the kubelet: it starts the pod, probes it, waits like a preStop hook, and sends
// SIGTERM between two runs. The pod is unready immediately, serves requests and runs its timer for
// -prestop, and ends when the last run has written.
//
// Fails without PreStopDelay, when the server shuts down before the timers, and when the last run
// is canceled before it has written.
func TestThePodIsDeleted(t *testing.T) {
	const preStop = 700 * time.Millisecond // the next run starts within half a second and takes as long
	server := sqltest.SharedPostgres(t)
	url := server.DSN("", "", server.NewDatabase(t))
	pod := fleettest.Start(t, 1, []string{"DATABASE_URL=" + url}, "-addr", "127.0.0.1:0", "-probes", "127.0.0.1:0",
		"-prestop", preStop.String())
	fields := pod.Await(t, "serving", 1).Fields
	get := func(url string) (status int) {
		answer, err := http.Get("http://" + url)
		if err != nil {
			return 0
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	probe := func(path string) int { return get(fields["probes"] + path) }
	for path, want := range map[string]int{"/": http.StatusOK, "/metrics": http.StatusNotFound,
		"/readyz": http.StatusNotFound} {
		if status := get(fields["addr"] + path); status != want {
			t.Errorf("a request for %s is answered with %d, want %d", path, status, want)
		}
	}
	testkit.Eventually(t, testkit.Patience, "started", func() bool { return probe("/startupz") == http.StatusOK })
	testkit.Eventually(t, testkit.Patience, "ready", func() bool { return probe("/readyz") == http.StatusOK })

	period := time.Tick(10 * time.Millisecond)
	for range 10 { // a preStop hook that sleeps
		<-period
		if status := probe("/readyz"); status != http.StatusOK {
			t.Fatalf("before SIGTERM /readyz answers %d", status)
		}
	}
	pod.Await(t, "settle ends", 1)
	pod.Terminate(t)
	var unready time.Duration // how long requests were answered while the pod was not ready
	for since := time.Now(); ; <-period {
		ready, live := probe("/readyz"), probe("/livez")
		if live == 0 {
			break // it has ended
		}
		if live != http.StatusOK {
			t.Errorf("/livez answers %d: Kubernetes would restart it", live)
		}
		if ready == http.StatusServiceUnavailable {
			unready = time.Since(since)
		}
	}
	if unready < preStop {
		t.Errorf("it served for %v after it was unready, want -prestop, %v", unready, preStop)
	}
	pod.End(t) // with exit status 0
	runs := pod.Runs(t, "settle")

	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var settled, fence int64
	if err := pool.QueryRow(t.Context(), "SELECT settled, fence FROM account").Scan(&settled, &fence); err != nil {
		t.Fatal(err)
	}
	if last := runs[len(runs)-1]; settled != int64(len(runs)) || fence != last.Fence {
		t.Errorf("settled %d times, the last time with fence %d: want it after each run of %+v", settled, fence, runs)
	}
	if err := book(t.Context(), pool, dlock.Fence(fence-1)); !errors.Is(err, errReplaced) {
		t.Errorf("a late write of the run before: %v, want %v", err, errReplaced)
	}
}

// The pods of a first rollout start at the same time, and each ensures that the account exists.
//
// Fails when one of them gets an error because another is creating the table.
func TestPodsThatBeginAtOnce(t *testing.T) {
	server := sqltest.SharedPostgres(t)
	for range 5 {
		pool, err := pgxpool.New(t.Context(), server.DSN("", "", server.NewDatabase(t)))
		if err != nil {
			t.Fatal(err)
		}
		var pods sync.WaitGroup
		for range 4 {
			pods.Go(func() {
				if err := createAccount(t.Context(), pool); err != nil {
					t.Error(err)
				}
			})
		}
		pods.Wait()
		pool.Close()
	}
}
