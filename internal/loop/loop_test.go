package loop_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/loop"
)

// Fails when a step comes too late or without a reason, or when a step runs after stop.
func TestStepsComeWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		next := loop.Never
		var at []time.Duration
		began := time.Now()
		l := loop.New("test", time.Minute, 0, func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
			return next
		})
		nextIn := func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			next = d
		}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { l.Run(ctx); close(stopped) }()
		step := func(what string, want time.Duration) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if last := at[len(at)-1]; last != want {
				t.Errorf("%s: the last step was after %v, want %v", what, last, want)
			}
		}
		step("the first", 0)
		time.Sleep(time.Minute)
		step("an interval", time.Minute)
		time.Sleep(10 * time.Second)
		nextIn(5 * time.Second)
		l.Wake()
		step("a wake", 70*time.Second)
		nextIn(loop.Never)
		time.Sleep(5 * time.Second)
		step("what was due", 75*time.Second)
		if took := l.StepTook(); took != 0 {
			t.Errorf("no step is under way, and it takes %v", took)
		}
		stop()
		<-stopped
		n := len(at)
		l.Wake()
		time.Sleep(time.Hour)
		if len(at) != n {
			t.Error("a step after stop")
		}
	})
}

// Fails when a pause differs from the interval by more than its share.
func TestJittered(t *testing.T) {
	t.Parallel()
	least, most := time.Hour, time.Duration(0)
	for range 10_000 {
		d := loop.Jittered(time.Second, .2)
		least, most = min(least, d), max(most, d)
	}
	if least < 800*time.Millisecond || most > 1200*time.Millisecond || least > 810*time.Millisecond ||
		most < 1190*time.Millisecond || loop.Jittered(time.Second, 0) != time.Second {
		t.Errorf("%v to %v", least, most)
	}
}
