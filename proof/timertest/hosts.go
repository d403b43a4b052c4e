package timertest

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer"
)

// A Fleet is several hosts that share a store, each through its own Link. The suite of this package
// runs one on a real store; the tests of package timer run one in virtual time.
type Fleet[Link dlock.DistributedLock] struct {
	Hosts []*Host[Link]

	t        *testing.T
	patience time.Duration
}

// NewFleet returns a fleet without hosts. Patience bounds how long a host's Run may take to return.
func NewFleet[Link dlock.DistributedLock](t *testing.T, patience time.Duration) Fleet[Link] {
	return Fleet[Link]{t: t, patience: patience}
}

// A Host is a running Scheduler.
type Host[Link dlock.DistributedLock] struct {
	*timer.Scheduler
	Link   Link
	Cancel context.CancelFunc // makes Run return

	done  chan struct{} // closed when Run has returned
	err   error         // the result of Run
	began time.Time     // before Run was called
	ready time.Time     // after it had started, in a fleet on a real store
	told  *told
}

// Trigger starts a run without a payload, and does not wait for its result.
func (h *Host[Link]) Trigger(ctx context.Context, name string) error {
	_, err := h.Scheduler.Trigger(ctx, name, timer.TriggerOptions{})
	return err
}

// NewHost returns a host that is not running yet. It logs nothing unless config has a Logger.
func (f *Fleet[Link]) NewHost(link Link, config timer.Config, timers ...timer.Timer) *Host[Link] {
	f.t.Helper()
	config.Store = link
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	told := new(told)
	told.listen(&config.Hooks)
	scheduler, err := timer.New(config, timers...)
	if err != nil {
		f.t.Fatal(err)
	}
	return &Host[Link]{Scheduler: scheduler, Link: link, done: make(chan struct{}), told: told}
}

// Run starts a host, which runs until ctx ends or its Cancel is called, and adds it to the fleet.
func (f *Fleet[Link]) Run(ctx context.Context, h *Host[Link]) {
	ctx, h.Cancel = context.WithCancel(ctx)
	f.Hosts = append(f.Hosts, h)
	h.began = time.Now()
	go func() {
		defer close(h.done)
		h.err = h.Scheduler.Run(ctx)
	}()
}

// Stop stops hosts, or all of them if none is given. It fails the test if a host's Run does not
// return or returns an error, or if its hooks and its counts disagree about ticks.
func (f *Fleet[Link]) Stop(hosts ...*Host[Link]) {
	f.t.Helper()
	if len(hosts) == 0 {
		hosts = f.Hosts
	}
	for _, h := range hosts {
		h.Cancel()
	}
	for i, h := range hosts {
		select {
		case <-h.done:
		case <-time.After(f.patience):
			f.t.Fatalf("not within %v: Run of host %d returns", f.patience, i)
		}
		if h.err != nil {
			f.t.Errorf("host %d: Run returned %v", i, h.err)
		}
		h.told.check(f.t, h.Status())
	}
}

// Done is closed when Run has returned.
func (h *Host[Link]) Done() <-chan struct{} { return h.done }

// Wait waits for Run to return, and returns its error.
func (h *Host[Link]) Wait() error {
	<-h.done
	return h.err
}

// Stopped stops the host and returns how long that took.
func (h *Host[Link]) Stopped(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	h.Cancel()
	if err := h.Wait(); err != nil {
		t.Errorf("Run returned %v", err)
	}
	return time.Since(began)
}

// Accounted fails the test unless each tick of the host is a start or a skip. It returns the sums.
func (h *Host[Link]) Accounted(t *testing.T) (started uint64, skipped map[timer.Reason]uint64) {
	t.Helper()
	skipped = map[timer.Reason]uint64{}
	for _, st := range h.Status().Timers {
		for reason, n := range st.Skipped {
			skipped[reason] += n
		}
		if Unaccounted(st) != 0 {
			t.Errorf("timer %s: %d ticks, %d started, skipped %v", st.Name, st.Ticks, st.Started, st.Skipped)
		}
		started += st.Started
	}
	return started, skipped
}

// Unaccounted returns how many ticks of a timer are neither starts nor skips: 0, or 1 while one is
// being decided.
func Unaccounted(st timer.TimerStatus) int64 {
	left := int64(st.Ticks) - int64(st.Started)
	for _, n := range st.Skipped {
		left -= int64(n)
	}
	return left
}

// Degraded joins the errors of the host's checks.
func (h *Host[Link]) Degraded() error { return Degraded(h.Scheduler) }

// Degraded joins the errors of a Scheduler's checks.
func Degraded(s *timer.Scheduler) error {
	checks := s.Checks()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		errs = append(errs, checks[name]())
	}
	return errors.Join(errs...)
}
