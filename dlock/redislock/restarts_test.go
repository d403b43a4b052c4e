package redislock_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// One of two hosts is repeatedly restarted gracefully, on a real server with 20 ms of additional
// latency. Every tick that the server granted runs. If one host finds a tick taken, the tick runs
// on the host that took it, even if that host was told to stop meanwhile.
//
// Fails when a host that drains gives up a tick that it was granted.
func TestGracefulRestartsLoseNoTick(t *testing.T) {
	t.Parallel()
	_, store := shared(t, unique("restarts:"))
	type tickOf struct {
		timer string
		tick  int64
	}
	var mu sync.Mutex
	ran, taken := map[tickOf]bool{}, map[tickOf]bool{}
	list := make([]timer.Timer, 10)
	for i := range list {
		list[i] = timer.Timer{Name: fmt.Sprint("t", i), Schedule: schedule.Every(100 * time.Millisecond).Offset(0),
			OnStoreDown: timer.StoreDownSkip, Run: func(ctx context.Context) error {
				r, _ := timer.RunFromContext(ctx)
				mu.Lock()
				defer mu.Unlock()
				ran[tickOf{r.Timer(), r.Tick().UnixMicro()}] = true
				return nil
			}}
	}
	start := func() (stop func()) {
		link := dlocktest.NewFaulty(store)
		link.Inject(dlocktest.Slow(20*time.Millisecond), dlocktest.OpAcquire)
		ctx, cancel := context.WithCancel(context.Background())
		h, err := timer.New(timer.Config{Store: link, TTL: quarantineTTL, StoreTimeout: quarantineTTL / 3,
			Logger: slog.New(slog.DiscardHandler), Hooks: timer.Hooks{TickSkipped: func(i timer.SkipInfo) {
				mu.Lock()
				defer mu.Unlock()
				if i.Reason == timer.ReasonTickTaken {
					taken[tickOf{i.Timer, i.Tick.UnixMicro()}] = true
				}
			}}}, list...)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		<-h.Running()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	stop := start()
	restarts := testkit.Rounds(t, 20, 300)
	for i := range restarts {
		stopOther := start()
		time.Sleep(time.Duration(110+7*(i%15)) * time.Millisecond) // at different phases of the ticks
		stopOther()
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	lost := 0
	for tick := range taken {
		if !ran[tick] {
			lost++
		}
	}
	t.Logf("%d restarts, %d ticks ran, %d were taken when a host asked", restarts, len(ran), len(taken))
	if lost > 0 || len(taken) == 0 {
		t.Errorf("%d of %d ticks were taken and ran nowhere", lost, len(ran)+lost)
	}
}
