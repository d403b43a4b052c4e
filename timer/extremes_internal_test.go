package timer

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
)

const longest = time.Duration(math.MaxInt64) // about 292 years

func nothing(context.Context) error { return nil }

// A CatchUp.Window may have any length, even one that exceeds all ticks of the schedule. The latest
// tick within it is found.
//
// Fails when schedule.Latest multiplies its search range without a bound. It would overflow, and
// New would never return.
func TestMissedWindowsOfAnyLength(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, window := range []time.Duration{1, time.Second, 4 * time.Second, 136 * 365 * 24 * time.Hour, longest / 4,
		longest/4 + 1, longest - 1, longest, NoLimit} {
		for _, past := range []time.Duration{0, time.Minute, 100 * 365 * 24 * time.Hour} {
			at := []time.Time{now.Add(24 * time.Hour)}
			want := time.Time{}
			if past > 0 {
				at = append(at, now.Add(-past))
				if past <= timeOf(window) {
					want = schedule.RoundUp(now.Add(-past))
				}
			}
			found := make(chan time.Time, 1)
			go func() {
				s, err := New(Config{Store: memlock.New()}, Timer{Name: "a", Schedule: schedule.At(at...),
					CatchUp: CatchUp{Window: window}, Run: nothing})
				if err != nil {
					t.Error(err)
				}
				found <- s.planner.schedules.lastDue(s.registry.get("a"), now, timeOf(window))
			}()
			select {
			case got := <-found:
				if !got.Equal(want) {
					t.Errorf("window %v, last tick %v ago: %v, want %v", window, past, got, want)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("window %v, last tick %v ago: New does not return", window, past)
			}
		}
	}
}

// A MaxRunTime may have any length. No slot is reported as held for too long because of an
// overflow.
//
// Fails when MaxRunTime is multiplied.
func TestMaxRunTimesOfAnyLength(t *testing.T) {
	for _, most := range []time.Duration{time.Hour, longest / 3 * 2, longest/3*2 + 2, longest - 1, longest, NoLimit} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			store := memlock.New()
			s, err := New(Config{Store: store, Logger: slog.New(slog.NewTextHandler(&log, nil))},
				Timer{Name: "a", Schedule: schedule.Every(time.Minute), MaxRunTime: most, Run: nothing})
			if err != nil {
				t.Fatal(err)
			}
			set := s.registry.get("a")
			for _, since := range []time.Duration{0, time.Minute, min(timeOf(most), longest/3*2)} {
				s.store.views.warnHeldLong(set, &dlock.NotAcquiredError{Reason: dlock.ReasonFull,
					Holder: dlock.NewHolder(), HeldFor: since})
			}
			if most == time.Hour {
				s.store.views.warnHeldLong(set, &dlock.NotAcquiredError{Reason: dlock.ReasonFull,
					Holder: dlock.NewHolder(), HeldFor: 90*time.Minute + time.Second})
			}
			s.log.flush()
			if told := strings.Contains(log.String(), "held for longer"); told != (most == time.Hour) {
				t.Errorf("MaxRunTime %v: %s", most, log.String())
			}
		})
	}
}

// Two ticks may be thousands of years apart.
//
// Fails when tickTimes.interval multiplies microseconds without a bound.
func TestTicksThatAreFarApart(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ticks := tickTimes{due: now.UnixMicro(), next: time.Date(9990, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()}
	if got := ticks.interval(); got != longest {
		t.Errorf("interval %v", got)
	}
	ticks.next = now.Add(time.Minute).UnixMicro()
	if got := ticks.interval(); got != time.Minute {
		t.Errorf("interval %v", got)
	}
	s, err := New(Config{}, Timer{Name: "a", Schedule: schedule.At(now.Add(-time.Minute),
		time.Date(9990, 1, 1, 0, 0, 0, 0, time.UTC)), Delay: Delay{Jitter: 0.5}, Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	late := s.planner.schedules.delayed(s.registry.get("a"), now, time.Date(9990, 1, 1, 0, 0, 0, 0, time.UTC))
	if !late.Equal(schedule.RoundUp(now.Add(-time.Minute))) { // delayed by up to half of 292 years
		t.Errorf("delayed: %v", late)
	}
}

// A store whose quarantine never ends is not called in a loop.
//
// Fails when waiting.refuse adds to the time that the store returned.
func TestQuarantineWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &forever{}
		s, err := New(Config{Store: store, Logger: slog.New(slog.DiscardHandler)},
			Timer{Name: "a", Schedule: schedule.At(time.Now().Add(time.Second)), Run: nothing})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(10 * time.Second)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if store.asked > 2 { // one of the calls announces the schedule
			t.Errorf("asked %d times", store.asked)
		}
	})
}

type forever struct{ asked int }

func (f *forever) TryAcquire(_ context.Context, req driver.Request) (driver.Grant, error) {
	if strings.HasPrefix(req.Name, "timer:") {
		if f.asked++; f.asked > 1000 {
			time.Sleep(time.Second) // otherwise virtual time would not advance
		}
	}
	return driver.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: dlock.ReasonQuarantine, ExpiresIn: longest}
}

func (f *forever) Extend(_ context.Context, _ time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return make([]driver.Result, len(grants)), nil
}

func (f *forever) Release(_ context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return make([]driver.Result, len(grants)), nil
}
