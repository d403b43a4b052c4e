package health_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A probe only reads memory. It never calls the store, it is answered while the store hangs, and it
// does not flap.
//
// Fails when a check of the Scheduler calls the store.
func TestI12ProbesCostTheStoreNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		link := dlocktest.NewFaulty(memlock.New())
		timers, err := timer.New(timer.Config{Store: link}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Hour),
			Run: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		h := health.New(timers)
		if w := get(h, "/readyz"); w.Code != 503 || !strings.Contains(w.Body.String(), "not running yet") {
			t.Errorf("before Run: %d %q", w.Code, w.Body)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- timers.Run(ctx) }()
		time.Sleep(90*time.Minute + time.Second) // no heartbeat is due at this moment
		synctest.Wait()
		calls := link.Calls(dlocktest.OpAcquire) + link.Calls(dlocktest.OpExtend) + link.Calls(dlocktest.OpRelease)
		link.Inject(dlocktest.Hang)
		began := time.Now()
		for range 5_000 {
			for _, path := range []string{"/livez", "/readyz", "/readyz?verbose"} {
				if w := get(h, path); w.Code != 200 {
					t.Fatalf("%s: %d %q", path, w.Code, w.Body)
				}
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("probes waited %v", took)
		}
		if n := link.Calls(dlocktest.OpAcquire) + link.Calls(dlocktest.OpExtend) +
			link.Calls(dlocktest.OpRelease); n != calls {
			t.Errorf("15,000 probes made %d calls to the store", n-calls)
		}
		time.Sleep(time.Hour) // a tick finds that the store hangs
		if w := get(h, "/readyz?verbose"); w.Code != 200 || w.Header().Get("X-Health") != "degraded" ||
			!strings.Contains(w.Body.String(), "has not answered") {
			t.Errorf("store down: %d %v %q", w.Code, w.Header(), w.Body)
		}
		link.Heal()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if w := get(h, "/readyz"); w.Code != 503 {
			t.Errorf("after Run: %d", w.Code)
		}
		if w := get(h, "/livez"); w.Code != 200 {
			t.Errorf("livez after Run: %d", w.Code)
		}
	})
}

// Live fails if a schedule blocks the scheduling goroutine.
//
// Fails when Live always succeeds.
func TestLivezFindsAStalledScheduler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		s := &sometimes{wait: stuck}
		timers, err := timer.New(timer.Config{}, timer.Timer{Name: "a", Schedule: s,
			Run: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		h := health.New(timers)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- timers.Run(ctx) }()
		time.Sleep(5 * time.Second)
		if w := get(h, "/livez"); w.Code != 200 {
			t.Errorf("livez: %d", w.Code)
		}
		s.stuck.Store(true)
		time.Sleep(30 * time.Second)
		if w := get(h, "/livez"); w.Code != 503 || !strings.Contains(w.Body.String(), "stalled") {
			t.Errorf("livez of a stalled scheduler: %d %q", w.Code, w.Body)
		}
		s.stuck.Store(false)
		close(stuck)
		stop()
		<-done
	})
}

// sometimes is a schedule whose Next may block.
type sometimes struct {
	stuck atomic.Bool
	wait  chan struct{}
}

func (s *sometimes) Next(t time.Time) time.Time {
	if s.stuck.Load() {
		<-s.wait
	}
	return t.Add(10 * time.Second)
}
