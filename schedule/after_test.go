package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// Fails when Check accepts a delay that no store can keep.
func TestAfterCheck(t *testing.T) {
	t.Parallel()
	for delay, want := range map[time.Duration]string{
		-time.Second: "must be", 0: "must be", time.Microsecond: "must be", time.Millisecond: "",
		30 * 24 * time.Hour: "", 31 * 24 * time.Hour: "must be",
	} {
		faults := schedule.Check(schedule.After(delay))
		if (want == "") != (len(faults) == 0) || want != "" && !strings.Contains(faults[0].Error(), want) {
			t.Errorf("After(%v): %v, want %q", delay, faults, want)
		}
	}
	if faults := schedule.Check(schedule.FixedDelay{}); len(faults) != 1 {
		t.Errorf("the zero FixedDelay: %v, want one fault", faults)
	}
}

// Fails when CheckShared mistakes After for an interval that counts from the time of the call.
func TestAfterIsShared(t *testing.T) {
	t.Parallel()
	if err := schedule.CheckShared(schedule.After(time.Minute)); err != nil {
		t.Error(err)
	}
}

// A blackout removes ticks, but the ticks of After are not known in advance.
//
// Fails when Except accepts After, or refuses it without giving the reason.
func TestAfterInExcept(t *testing.T) {
	t.Parallel()
	faults := schedule.Check(schedule.Except(schedule.After(time.Minute), schedule.Weekdays("", time.Sunday)))
	if len(faults) != 1 || !strings.Contains(faults[0].Error(), "Timer.Blackouts") {
		t.Errorf("%v: want one fault that names Timer.Blackouts", faults)
	}
}

// Fails when NextTicks invents ticks for After, or when two delays have the same identity.
func TestAfterHasNoTicks(t *testing.T) {
	t.Parallel()
	s := schedule.After(time.Minute)
	if ticks, err := schedule.NextTicks(s, time.Now(), 5); err != nil || len(ticks) != 0 {
		t.Errorf("%v, %v: want none", ticks, err)
	}
	if schedule.Identity(s) == schedule.Identity(schedule.After(time.Hour)) || schedule.CatchesUp(s) ||
		schedule.Ends(s) {
		t.Error("an After is not caught up, nor does it end, and its delay is part of its identity")
	}
}
