package schedule

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// Except has all ticks of its schedule that are in no blackout, in ascending order.
//
// Fails when it skips a tick after the end of a blackout or checks only one of the blackouts.
func TestExceptLeavesOutWhatIsBlackedOut(t *testing.T) {
	const berlin = "Europe/Berlin"
	start := time.Date(2027, 3, 20, 0, 0, 0, 0, time.UTC)
	for _, s := range []Schedule{
		Cron("*/10 * * * *", berlin), Daily("02:30", berlin), Every(7 * time.Minute).Offset(3 * time.Second),
		Every(time.Minute).of("x"), generic{Every(time.Hour)},
		At(start.Add(time.Hour), start.AddDate(0, 0, 1), start.AddDate(0, 0, 2)),
	} {
		for _, bs := range [][]Blackout{
			{DailyWindow("22:00", "06:00", berlin)},
			{Weekdays(berlin, time.Saturday, time.Sunday), Dates(berlin, "2027-03-26", "2027-03-29")},
			{DailyWindow("12:00", "12:30", ""), DailyWindow("12:30", "13:00", ""),
				Between(start.Add(50*time.Hour), start.Add(90*time.Hour))},
			{BlackoutFunc(func(t time.Time) bool { return t.Unix()/3600%3 == 0 })},
		} {
			e := Except(s, bs...)
			if err := e.(Checker).Check(); err != nil {
				t.Fatal(err)
			}
			all, left := RoundUp(s.Next(start)), e.Next(start)
			for n := 0; n < 5000 && !all.IsZero() && all.Before(start.AddDate(0, 0, 30)); n++ {
				if until, _, err := BlackedOut(bs, all); err != nil {
					t.Fatal(err)
				} else if until.IsZero() {
					if !left.Equal(all) {
						t.Fatalf("%v: %v is missing, there is %v", e, all, left)
					}
					if within := left.Add(time.Duration(rand.N(5*60)) * time.Second); !e.Next(within).IsZero() &&
						!e.Next(within).After(within) {
						t.Fatalf("%v: Next(%v) is not later", e, within)
					}
					left = e.Next(left)
				}
				all = RoundUp(s.Next(all))
			}
			if !left.IsZero() && (all.IsZero() || left.Before(all)) {
				t.Fatalf("%v: %v is one too many", e, left)
			}
		}
	}
}

// A BlackoutFunc that covers a weekend is called once a minute, so Except finds the next tick even
// if its schedule has a tick per second.
//
// Fails when Except reaches its limit of attempts before the blackout ends.
func TestExceptGetsOverALongBlackout(t *testing.T) {
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(0, 11, 0)
	e := Except(Every(time.Second).Offset(0), BlackoutFunc(func(t time.Time) bool {
		return !t.Before(from) &&
			t.Before(to)
	}))
	if next := e.Next(from); !next.Equal(to) {
		t.Errorf("%v, want %v", next, to)
	}
}

// Check refuses a schedule without ticks, and returns the faults of all parts at once. Instants in
// the past are valid.
//
// Fails when Except does not check its parts, or when the search for a remaining tick does not end.
func TestExceptRefuses(t *testing.T) {
	now := time.Now()
	past, sunday := At(now.Add(-time.Hour)), Weekdays("", time.Sunday)
	for _, c := range []struct {
		s    Schedule
		want []string
	}{
		{Except(Daily("08:00", ""), sunday), nil},
		{past, nil},
		{Except(past, Between(now, now.Add(time.Hour))), nil},
		{Except(past, Between(now.Add(-2*time.Hour), now)), []string{"never fires"}},
		{Except(Daily("08:00", ""), DailyWindow("07:00", "09:00", "")),
			[]string{"daily at 08:00 in UTC, except daily 07:00 to 09:00 in UTC never fires"}},
		{Except(Cron("0 0 * * *", ""), Weekdays("", 0, 1, 2, 3), Weekdays("", 4, 5, 6)), []string{"never fires"}},
		{Except(Every(time.Hour), BlackoutFunc(func(time.Time) bool { return true })), []string{"never fires"}},
		{Except(nil), []string{"its schedule is nil", "it has no blackout"}},
		{Except(Cron("61 2 * * *", "local"), nil, Dates("", "2026-02-30"), DailyWindow("1", "2", "x"),
			BlackoutFunc(nil)),
			[]string{`minute: "61"`, `zone "local"`, "blackout: it is nil", `Dates "2026-02-30"`, `DailyWindow "1"`,
				`DailyWindow "2"`, `zone "x"`, "BlackoutFunc: it is nil"}},
		{Except(Except(Every(0), sunday), sunday), []string{"Every(0s)"}},
		{Except(broken{}, sunday), []string{"schedule.broken: its Next(", "which is not later"}},
		{Except(Daily("08:00", ""), stuckBlackout{}), []string{"schedule.stuckBlackout: its Until("}},
		{Except(generic{badSchedule{}}, sunday), []string{"its Next panicked: no"}},
		{nil, []string{"it is nil"}},
		{badSchedule{}, []string{"schedule.badSchedule: its Check panicked: no"}},
	} {
		faults := Check(c.s)
		err := errors.Join(faults...)
		if len(c.want) == 0 && err != nil || len(c.want) > 0 && err == nil {
			t.Errorf("%v: %v, want %q", Describe(c.s), err, c.want)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nlacks %s", err, want)
			}
		}
	}
}

type badSchedule struct{}

func (badSchedule) Check() error             { panic("no") }
func (badSchedule) Next(time.Time) time.Time { panic("no") }

// The name also shifts an interval inside Except.
//
// Fails when ForName looks only at the outermost schedule.
func TestExceptIsSpreadByName(t *testing.T) {
	at := time.Date(2027, 5, 3, 9, 0, 0, 0, time.UTC)
	s := ForName(Except(Every(time.Hour), Weekdays("", time.Sunday)), "orders")
	if want := RoundUp(Every(time.Hour).of("orders").Next(at)); !s.Next(at).Equal(want) {
		t.Errorf("%v, want %v", s.Next(at), want)
	}
}

// If a part of an Except fails at run time, the error names the part.
//
// Fails when Next does not recognize a brokenPart.
func TestExceptSaysWhatBroke(t *testing.T) {
	_, err := Next(Except(Every(time.Hour), stuckBlackout{}), time.Date(2027, 5, 3, 9, 30, 0, 0, time.UTC))
	if err == nil || err.Error() != "blackout schedule.stuckBlackout: its Until(2027-05-03T10:00:00Z) returned "+
		"2027-05-03T10:00:00Z, which is not later" {
		t.Error(err)
	}
}
