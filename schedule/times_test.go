package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Times has the first n ticks of its schedule at from or later. The result does not depend on the
// instants for which Next is called, on their order, or on clock changes.
//
// Fails when a tick at from itself is left out, when ticks are counted from the argument of Next,
// or when Except or ForName drops the limit.
func TestTimesEndsAfterTheSameTickForEverybody(t *testing.T) {
	const berlin = "Europe/Berlin"
	from := time.Date(2027, 3, 27, 7, 0, 0, 0, time.UTC) // the clocks change in the following night
	for _, s := range []Schedule{
		Daily("08:00", berlin), Daily("02:30", berlin), Cron("*/30 * * * *", berlin), Cron("30 2 * * *", berlin),
		Every(7 * time.Minute), Every(time.Hour).From(from), Every(time.Hour).From(from.AddDate(0, 1, 0)),
		generic{Every(time.Hour)}, Except(Daily("08:00", berlin), Weekdays(berlin, time.Sunday)),
		At(from.Add(-time.Hour), from, from.Add(time.Hour)), Times(3, from, Daily("08:00", berlin)),
	} {
		for _, n := range []int{1, 2, 50, MaxTimes} {
			s := ForName(s, "orders")
			want, err := NextTicks(s, from.Add(-1), n)
			if err != nil {
				t.Fatal(err)
			}
			last := want[len(want)-1]
			for _, began := range []time.Time{{}, from.AddDate(-1, 0, 0), from.Add(-1)} {
				got, err := NextTicks(Times(n, from, s), began, n+5)
				if err != nil || len(got) != len(want) || !got[0].Equal(want[0]) || !got[len(got)-1].Equal(last) {
					t.Errorf("%d of %v after %v: %d ticks, %v, want %d up to %v", n, s, began, len(got), err, len(want),
						last)
				}
			}
			// A host that starts late has the same last tick as the others.
			late := Times(n, from, s)
			if next, err := Next(late, last.Add(-time.Microsecond)); err != nil || !next.Equal(last) {
				t.Errorf("%v: before its last tick there is %v, %v", late, next, err)
			}
			if next, err := Next(late, last); err != nil || !next.IsZero() {
				t.Errorf("%v: after its last tick there is %v, %v", late, next, err)
			}
			if !Ends(late) || !Ends(Except(late, Dates("", "2027-01-01"))) {
				t.Errorf("%v does not end", late)
			}
		}
	}
	spread := ForName(Except(Times(2, from, Every(time.Hour)), Dates("", "2027-01-01")), "orders")
	if want := RoundUp(Every(time.Hour).of("orders").Next(from)); !spread.Next(from).Equal(want) {
		t.Errorf("%v, want %v", spread.Next(from), want)
	}
}

// Invalid arguments of Times are refused with errors that explain how to fix them, and all faults
// are returned at once.
//
// Fails when Check accepts an invalid n or from, or when CheckShared tests Times instead of the
// schedule inside it. Before from, a Times returns the same tick on every host.
func TestTimesRefuses(t *testing.T) {
	now := time.Now()
	fromNow := sinceAsked{}
	for _, c := range []struct {
		s    Schedule
		want string
	}{
		{Times(3, now, Daily("08:00", "")), ""},
		{Times(3, now.AddDate(-1, 0, 0), Daily("08:00", "")), ""}, // the program starts after the last tick
		{Times(0, now, Daily("08:00", "")), "Times(0): use 1 to 1000"},
		{Times(-1, now, Daily("08:00", "")), "Times(-1): use 1 to"},
		{Times(MaxTimes+1, now, Daily("08:00", "")), "Times(1001): use 1 to"},
		{Times(3, time.Time{}, Daily("08:00", "")), "its from is the zero time: set the instant"},
		{Times(3, now, nil), "its schedule is nil"},
		{Times(3, now, After(time.Hour)), "an After has no ticks to count"},
		{Times(0, time.Time{}, Daily("25:00", "")), "the hour is 00 to 23"},
		{Times(3, now, broken{}), "which is not later"},
		{Times(3, now, generic{badSchedule{}}), "its Next panicked: no"},
		{Times(3, now, Daily("08:00", "Local")), "hosts may differ in their local time"},
		{Times(3, now.AddDate(1, 0, 0), fromNow), "every host would have ticks of its own"},
		{Except(Times(3, now.AddDate(1, 0, 0), fromNow), Dates("", "2027-01-01")), "ticks of its own"},
	} {
		err := errors.Join(Check(c.s)...)
		if err == nil {
			err = CheckShared(c.s)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", Describe(c.s), err, c.want)
		}
	}
}

// sinceAsked is a schedule that counts from the time of the call, as robfig's @every does.
type sinceAsked struct{}

func (sinceAsked) Next(t time.Time) time.Time { return t.Add(time.Hour) }
