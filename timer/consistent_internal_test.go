package timer

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
)

// watching is how long these tests look for a state that must not be visible. Such a state lasts
// only for a moment and needs two goroutines, so the tests run in real time.
const watching = time.Second

func running(t *testing.T, c Config, timers ...Timer) *Scheduler {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	s, err := New(c, timers...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-s.Running()
	return s
}

// When Status shows that a run has ended, its place is free, and so is its place in a limit.
//
// Fails when a run that ends frees them after Status no longer shows it.
func TestRunThatIsNotShownHoldsNoPlace(t *testing.T) {
	t.Parallel()
	run := func(context.Context) error { return nil }
	s := running(t, Config{Limits: []Limit{{Name: "shared", Size: 1}}}, Timer{Name: "a", MaxPerHost: 1, Run: run},
		Timer{Name: "b", Limits: []string{"shared"}, Run: run}, Timer{Name: "c", Limits: []string{"shared"}, Run: run})
	for _, pair := range [][2]string{{"a", "a"}, {"b", "c"}} {
		refused := map[Reason]int{}
		for began := time.Now(); time.Since(began) < watching; {
			first, err := s.Trigger(t.Context(), pair[0], TriggerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for shown := true; shown; {
				st, _ := s.Status().Timer(pair[0])
				shown = len(st.Running) > 0
			}
			second, err := s.Trigger(t.Context(), pair[1], TriggerOptions{})
			if no, is := errors.AsType[*RefusedError](err); is {
				refused[no.Reason]++
			} else {
				<-second.Done()
			}
			<-first.Done()
		}
		if len(refused) > 0 {
			t.Errorf("%s after %s: refused %v", pair[1], pair[0], refused)
		}
	}
}

// A tick that waits is not also shown as running, nor counted as started or skipped.
//
// Fails when Status reads the waiting tick and the other fields one after the other.
func TestTickIsShownOnce(t *testing.T) {
	s := running(t, Config{}, Timer{Name: "a", MaxPerHost: 1, OnFull: FullWait,
		Schedule: schedule.Every(time.Millisecond), Run: func(context.Context) error {
			time.Sleep(300 * time.Microsecond)
			return nil
		}})
	twice, decided := 0, 0
	for began := time.Now(); time.Since(began) < watching; {
		st, _ := s.statusOf(s.registry.get("a"))
		if st.WaitingTick.IsZero() {
			continue
		}
		for _, r := range st.Running {
			if r.Tick.Equal(st.WaitingTick) {
				twice++
			}
		}
		sum := st.Started
		for _, n := range st.Skipped {
			sum += n
		}
		if sum == st.Ticks {
			decided++
		}
	}
	if twice > 0 || decided > 0 {
		t.Errorf("the waiting tick was shown as running %d times, and counted already %d times", twice, decided)
	}
}

// curious is a store's error whose methods call the Scheduler.
type curious struct{ ask func() }

func (*curious) Error() string { return "lost" }

func (c *curious) Is(error) bool {
	c.ask()
	return false
}

// If a run that has lost its lease reaches its MaxRunTime, the methods of the store's error are
// called without holding a mutex.
//
// Fails when outOfTime calls them with entry.mu held.
func TestErrorOfALostRunIsAskedWithoutAMutex(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	s := running(t, Config{Store: memlock.New()}, Timer{Name: "a", MaxRunTime: 200 * time.Millisecond,
		MaxConcurrency: 1,
		Run:            func(context.Context) error { <-end; return nil }})
	run, err := s.Trigger(t.Context(), "a", TriggerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := s.registry.get("a").entry
	asked := make(chan bool, 100)
	e.mu.Lock()
	r := e.runs[0]
	e.mu.Unlock()
	r.ctx.lose(&dlock.LostError{Err: &curious{func() {
		free := e.mu.TryLock()
		if free {
			e.mu.Unlock()
		}
		asked <- free
	}}})
	select {
	case free := <-asked:
		if !free {
			t.Error("entry.mu was held")
		}
	case <-time.After(testkit.Patience):
		t.Error("nobody asked")
	}
	close(end)
	<-run.Done()
}
