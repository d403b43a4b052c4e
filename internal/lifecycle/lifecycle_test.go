package lifecycle_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/lifecycle"
)

// A service begins once, and its phases never go back.
//
// Fails when a second Run begins, or a late step of the first one revives a stopped service.
func TestPhasesGoForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lifecycle.Life{Prefix: "relay", Type: "Relay", CreatedAt: time.Now()}
		is := func(want lifecycle.Phase, since time.Time) {
			t.Helper()
			if got, at := l.Current(); got != want || !at.Equal(since) {
				t.Errorf("%s since %v, want %s since %v", got, at, want, since)
			}
		}
		again := func() {
			t.Helper()
			if err := l.Begin(t.Context()); err == nil ||
				err.Error() != "relay: Run was called before: make another Relay" {
				t.Errorf("it began again: %v", err)
			}
		}
		is(lifecycle.Created, time.Now())
		var none context.Context
		if l.Begin(none) == nil || l.Begun() {
			t.Error("it has begun without a context")
		}
		if err := l.Begin(t.Context()); err != nil || !l.Begun() {
			t.Errorf("it has not begun: %v", err)
		}
		is(lifecycle.Created, time.Now())
		time.Sleep(time.Second)
		l.Enter(lifecycle.Running)
		began := time.Now()
		time.Sleep(time.Second)
		again()
		is(lifecycle.Running, began)
		l.Enter(lifecycle.Draining)
		drained := time.Now()
		time.Sleep(time.Second)
		l.Enter(lifecycle.PreStop)
		l.Enter(lifecycle.Draining)
		is(lifecycle.Draining, drained)
		l.Enter(lifecycle.Stopped)
		l.Enter(lifecycle.Running)
		is(lifecycle.Stopped, time.Now())
		again()
	})
}

// A service works unless it is refused. A later refusal stops it, and it reports the refusal.
//
// Fails when a refused service works, one that is refused later continues, or a late Ask is
// ignored.
func TestRefusals(t *testing.T) {
	no := errors.New("another environment")
	yes := func(context.Context, func(error)) (func(), error) { return func() {}, nil }
	never := func(context.Context, func(error)) (func(), error) { return nil, no }
	run := func(before, during lifecycle.Ask) (worked bool, err error) {
		l := lifecycle.Life{Is: "relay is"}
		l.AdmitBy(before)
		err = l.Work(t.Context(), func(ctx context.Context) error {
			worked = true
			l.Enter(lifecycle.Running)
			if err := l.Ready(); err != nil {
				t.Error(err)
			}
			l.AdmitBy(during)
			<-ctx.Done()
			return nil
		})
		if phase := l.Phase(); phase != lifecycle.Stopped || l.Ready() != no || l.Started("server", true) != no {
			t.Errorf("%s; %v, %v, want %v", phase, l.Ready(), l.Started("server", true), no)
		}
		return worked, err
	}
	if worked, err := run(never, nil); worked || err != no {
		t.Errorf("refused: it has worked (%v), and returned %v", worked, err)
	}
	if worked, err := run(yes, never); !worked || !errors.Is(err, no) {
		t.Errorf("refused later: it has worked (%v), and returned %v", worked, err)
	}
}

// An Ask is users' code: if it panics, the service is refused, and its stop may be nil.
//
// Fails when a panic or a nil stop ends the process.
func TestAsksOfUsers(t *testing.T) {
	var panics lifecycle.Life
	panics.AdmitBy(func(context.Context, func(error)) (func(), error) { panic("oh") })
	err := panics.Work(t.Context(), func(context.Context) error {
		t.Error("it has worked")
		return nil
	})
	if guard.Panicked(err) == nil {
		t.Errorf("%v: must be the panic", err)
	}
	var nothing lifecycle.Life
	nothing.AdmitBy(func(context.Context, func(error)) (func(), error) { return nil, nil })
	if err := nothing.Work(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

// Work in progress first gets the timeout. Then its context ends, and it gets the grace period.
//
// Fails when Drain waits although the part is idle, or waits too long for work that hangs.
func TestDrain(t *testing.T) {
	for name, c := range map[string]struct {
		idleAfter time.Duration
		ends      bool
		ok        bool
		took      time.Duration
	}{
		"idle":             {0, false, true, 0},
		"in time":          {5 * time.Second, false, true, 5 * time.Second},
		"within its grace": {12 * time.Second, true, true, 12 * time.Second},
		"never":            {time.Hour, true, false, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				idle := make(chan struct{})
				if c.idleAfter == 0 {
					close(idle)
				} else {
					timer := time.AfterFunc(c.idleAfter, func() { close(idle) })
					defer timer.Stop()
				}
				began, ended := time.Now(), false
				ok := lifecycle.Drain(idle, 10*time.Second, func() { ended = true }, 5*time.Second)
				if took := time.Since(began); ok != c.ok || ended != c.ends || took != c.took {
					t.Errorf("%v after %v, ended %v; want %+v", ok, took, ended, c)
				}
			})
		})
	}
}

// The first call is repeated, with pauses that grow to two seconds, until the server answers, is
// found to be set up incorrectly, or ctx ends.
//
// Fails when a server that is down ends the service, or one without tables is called forever.
func TestFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		setup, down := errors.New("no such table"), errors.New("connection refused")
		calls := 0
		until := func(n int, then error) func() error {
			calls = 0
			return func() error {
				if calls++; calls < n {
					return down
				}
				return then
			}
		}
		began := time.Now()
		if err := lifecycle.FirstAnswer(t.Context(), setup, until(12, nil)); err != nil || calls != 12 {
			t.Errorf("%v after %d calls", err, calls)
		}
		if took := time.Since(began); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		wrong := errors.Join(setup)
		if err := lifecycle.FirstAnswer(t.Context(), setup, until(2, wrong)); err != wrong || calls != 2 {
			t.Errorf("%v after %d calls", err, calls)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := lifecycle.FirstAnswer(ctx, setup, until(1000, nil)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v at the end of its context", err)
		}
	})
}

// A listening connection is replaced. The pauses grow from a second to a minute, and are short
// again after a connection that has lasted.
//
// Fails when a panic or runtime.Goexit ends the loop, or when a database that is down is called
// without a pause.
func TestKeepListening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began []time.Duration
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		told := 0
		lifecycle.KeepListening(ctx, func(ctx context.Context) error {
			began = append(began, time.Since(start))
			switch len(began) {
			case 3:
				panic("in the driver")
			case 4:
				runtime.Goexit()
			case 10:
				time.Sleep(2 * time.Minute)
			case 12:
				cancel()
			}
			return errors.New("connection refused")
		}, func(err error) {
			if told++; err == nil {
				t.Error("it ended without an error")
			}
		})
		if len(began) != 12 || told != 11 {
			t.Fatalf("began at %v, told %d times", began, told)
		}
		pauses := make([]time.Duration, 11)
		for i := range pauses {
			pauses[i] = began[i+1] - began[i]
		}
		pauses[9] -= 2 * time.Minute // the connection that lasted
		if pauses[0] > 1300*time.Millisecond || pauses[9] > 1300*time.Millisecond ||
			slices.Max(pauses) > 78*time.Second || pauses[8] < 40*time.Second {
			t.Errorf("pauses of %v", pauses)
		}
	})
}

// A connection that does not end with its context is abandoned.
//
// Fails when it keeps a service from stopping.
func TestListenThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		free := make(chan struct{})
		returned := make(chan struct{})
		go func() {
			lifecycle.KeepListening(ctx, func(context.Context) error { <-free; return nil },
				func(err error) { t.Errorf("it has ended: %v", err) })
			close(returned)
		}()
		time.Sleep(time.Hour)
		cancel()
		if _, ok := lifecycle.Await(returned, time.Minute); !ok {
			t.Error("it is waited for")
		}
		close(free)
	})
}

// A sampler returns its last read until that is four intervals old.
//
// Fails when a failed read hides the previous one, or when an outdated read counts as fresh.
func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		var fail atomic.Bool
		s := lifecycle.NewSampler(10*time.Second, func() (int64, error) {
			if fail.Load() {
				return 0, errors.New("connection refused")
			}
			return n.Add(1), nil
		})
		if _, fresh := s.Latest(); fresh {
			t.Error("it has read nothing yet")
		}
		ctx, stop := context.WithCancel(t.Context())
		go s.Run(ctx)
		time.Sleep(100 * time.Second)
		got, fresh := s.Latest()
		if !fresh || got < 8 || got != n.Load() {
			t.Errorf("%d of %d, fresh %t", got, n.Load(), fresh)
		}
		fail.Store(true)
		time.Sleep(20 * time.Second)
		if still, fresh := s.Latest(); !fresh || still != got {
			t.Errorf("%d after failed reads, fresh %t", still, fresh)
		}
		time.Sleep(40 * time.Second)
		if _, fresh := s.Latest(); fresh {
			t.Error("what was read a minute ago counts")
		}
		stop()
	})
}
