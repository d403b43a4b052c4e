package schedule

import (
	"strings"
	"testing"
	"time"
)

// A malformed expression is refused with an error that explains how to fix it and marks the place
// with a caret.
//
// Fails when parseCron relies on the library alone. The library reads *-5 as *, 61-2 as 1-2 and
// 100-5 as nothing, does not notice a missing value in a list, and counts Sunday twice in a step
// over the end of a week.
func TestCronRefuses(t *testing.T) {
	const fiveOrSix = "use five fields (minute, hour, day of month, month, day of week), or six with the second " +
		"in front"
	for _, c := range []struct{ spec, want string }{
		{"", "cron \"\": it is empty: use five fields (minute, hour, day of month, month, day of week), as in \"30 2 " +
			"* * *\"\n\t\n\t^"},
		{" \t", "cron \" \\t\": it is empty: use five fields (minute, hour, day of month, month, day of week), as in " +
			"\"30 2 * * *\"\n\t  \n\t^"},
		{"* * * *", "cron \"* * * *\": it ends after 4 of 5 fields: " + fiveOrSix + "\n\t* * * *\n\t       ^"},
		{"0 0 2 * * * 2027", "cron \"0 0 2 * * * 2027\": it has 7 fields: " + fiveOrSix +
			"\n\t0 0 2 * * * 2027\n\t            ^"},
		{"61 2 * * *", "cron \"61 2 * * *\": minute: \"61\" is not one of its values: use 0 to 59\n\t61 2 * * *\n\t^"},
		{"60 0 2 * * *", "cron \"60 0 2 * * *\": second: \"60\" is not one of its values: use 0 to 59\n" +
			"\t60 0 2 * * *\n\t^"},
		{"0 24 * * *", "cron \"0 24 * * *\": hour: \"24\" is not one of its values: use 0 to 23\n\t0 24 * * *\n\t  ^"},
		{"0 2 0 * *", "cron \"0 2 0 * *\": day of month: \"0\" is not one of its values: use 1 to 31, L, L-2, 15W or " +
			"LW\n\t0 2 0 * *\n\t    ^"},
		{"0 2 * foo *", "cron \"0 2 * foo *\": month: \"foo\" is not one of its values: use 1 to 12 or jan to dec\n" +
			"\t0 2 * foo *\n\t      ^"},
		{"0 2 * * mon,fri#6",
			"cron \"0 2 * * mon,fri#6\": day of week: \"fri#6\" is not one of its values: use 0 to 7 (both are " +
				"Sunday), sun to sat, fri#2 or fri#L\n\t0 2 * * mon,fri#6\n\t            ^"},
		{"0 2 * * 5L", "cron \"0 2 * * 5L\": day of week: \"5L\" is not one of its values: use 0 to 7 (both are " +
			"Sunday), sun to sat, fri#2 or fri#L\n\t0 2 * * 5L\n\t        ^"},
		{"*-5 * * * *", "cron \"*-5 * * * *\": minute: * is not allowed in a range\n\t*-5 * * * *\n\t^"},
		{"61-2 * * * *", "cron \"61-2 * * * *\": minute: \"61\" is not one of its values: use 0 to 59\n" +
			"\t61-2 * * * *\n\t^"},
		{"0 9-100 * * *", "cron \"0 9-100 * * *\": hour: \"100\" is not one of its values: use 0 to 23\n" +
			"\t0 9-100 * * *\n\t    ^"},
		{"0 100-5 * * *", "cron \"0 100-5 * * *\": hour: \"100\" is not one of its values: use 0 to 23\n" +
			"\t0 100-5 * * *\n\t  ^"},
		{"1-2-3 * * * *", "cron \"1-2-3 * * * *\": minute: \"1-2-3\" is not a range: write one as 1-5\n" +
			"\t1-2-3 * * * *\n\t    ^"},
		{"5- * * * *", "cron \"5- * * * *\": minute: a value is missing: use 0 to 59\n\t5- * * * *\n\t  ^"},
		{"-5 * * * *", "cron \"-5 * * * *\": minute: a value is missing: use 0 to 59\n\t-5 * * * *\n\t^"},
		{"1,,2 * * * *", "cron \"1,,2 * * * *\": minute: a value is missing in the list\n\t1,,2 * * * *\n\t  ^"},
		{"0 , * * *", "cron \"0 , * * *\": hour: a value is missing in the list\n\t0 , * * *\n\t  ^"},
		{"*/60 * * * *", "cron \"*/60 * * * *\": minute: \"60\" is not a step here: use a number from 1 that is less " +
			"than the number of values in the range\n\t*/60 * * * *\n\t  ^"},
		{"*/0 * * * *", "cron \"*/0 * * * *\": minute: \"0\" is not a step here: use a number from 1 that is less " +
			"than the number of values in the range\n\t*/0 * * * *\n\t  ^"},
		{"*/ * * * *", "cron \"*/ * * * *\": minute: \"\" is not a step here: use a number from 1 that is less than " +
			"the number of values in the range\n\t*/ * * * *\n\t  ^"},
		{"*/5/2 * * * *", "cron \"*/5/2 * * * *\": minute: there is more than one step\n\t*/5/2 * * * *\n\t   ^"},
		{"0 2 * * fri-mon/2",
			"cron \"0 2 * * fri-mon/2\": day of week: steps over the end of a week are not supported: list the days\n" +
				"\t0 2 * * fri-mon/2\n\t        ^"},
		{"0 2 * * 7-3/2", "cron \"0 2 * * 7-3/2\": day of week: steps over the end of a week are not supported: list " +
			"the days\n\t0 2 * * 7-3/2\n\t        ^"},
		{"0 2 L-31 * *", "cron \"0 2 L-31 * *\": day of month: \"L-31\" is not a range: write one as 1-5\n" +
			"\t0 2 L-31 * *\n\t      ^"},
		{"+5 * * * *", "cron \"+5 * * * *\": a cron expression has no such character\n\t+5 * * * *\n\t^"},
		{"0 2 * * *;", "cron \"0 2 * * *;\": a cron expression has no such character\n\t0 2 * * *;\n\t         ^"},
		{"0\u00a02 * * *", "cron \"0\\u00a02 * * *\": a cron expression has no such character\n\t0 2 * * *\n\t ^"},
		{"0 2 \xff * *", "cron \"0 2 \\xff * *\": a cron expression has no such character\n\t0 2 ? * *\n\t    ^"},
		{"H * * * *", "cron \"H * * * *\": minute: \"H\" is not one of its values: use 0 to 59\n\tH * * * *\n\t^"},
		{"0 2 30 2 *", "cron \"0 2 30 2 *\": it never fires, because there is no such date: change the day of month " +
			"or the month\n\t0 2 30 2 *\n\t    ^"},
		{"0 0 2 31 4,6,9,nov *",
			"cron \"0 0 2 31 4,6,9,nov *\": it never fires, because there is no such date: change the day of month " +
				"or the month\n\t0 0 2 31 4,6,9,nov *\n\t      ^"},
		{"TZ=Europe/Berlin 0 2 * * *",
			"cron \"TZ=Europe/Berlin 0 2 * * *\": the time zone is the second argument of Cron: take it out here\n" +
				"\tTZ=Europe/Berlin 0 2 * * *\n\t^"},
		{" CRON_TZ=UTC", "cron \" CRON_TZ=UTC\": the time zone is the second argument of Cron: take it out here\n" +
			"\t CRON_TZ=UTC\n\t ^"},
		{"TZ=0", "cron \"TZ=0\": the time zone is the second argument of Cron: take it out here\n\tTZ=0\n\t^"},
		{"@every 5m", "cron \"@every 5m\": an interval is not cron: use schedule.Every\n\t@every 5m\n\t^"},
		{"@reboot", "cron \"@reboot\": a fleet has no start that all hosts agree on: call Trigger, or do it before " +
			"Run\n\t@reboot\n\t^"},
		{"@manual", "cron \"@manual\": there is no such macro: use one of @yearly, @annually, @monthly, @weekly, " +
			"@daily, @midnight, @hourly\n\t@manual\n\t^"},
		{"@daily 5", "cron \"@daily 5\": @daily takes no further field\n\t@daily 5\n\t       ^"},
		{strings.Repeat("0,", 400) + "0 x * * *", "cron \"" + strings.Repeat("0,", 30) +
			"\"…: hour: \"x\" is not one of its values: use 0 to 23\n\t…" +
			strings.Repeat("0,", 24) + "0 x * * *\n\t" + strings.Repeat(" ", 51) + "^"},
		{strings.Repeat("0", 2000), "cron \"" + strings.Repeat("0", 60) +
			"\"…: it is 2000 bytes long: use at most 1024\n\t…" +
			strings.Repeat("0", 90) + "…\n\t" + strings.Repeat(" ", 51) + "^"},
	} {
		s := Cron(c.spec, "")
		err := s.(Checker).Check()
		if err == nil || err.Error() != c.want {
			t.Errorf("%q:\n%v\nwant\n%s", c.spec, err, c.want)
		}
		if next := s.Next(time.Now()); err != nil && !next.IsZero() {
			t.Errorf("%q: it is refused, and due at %v", c.spec, next)
		}
	}
}

// Unknown zones are refused. The host's zone must be spelled exactly Local.
//
// Fails when loadZone accepts "local" as Local. CheckShared compares with "Local" and would not
// notice it.
func TestZonesRefused(t *testing.T) {
	const local = `write "Local" for the zone of this host, which may differ from that of others: name a zone, such as "Europe/Berlin", or "" for UTC, where hosts have to agree`
	const unknown = `there is no such time zone here: use a name of the IANA database, such as "Europe/Berlin"; on systems without zone files, import _ "time/tzdata"`
	for _, c := range []struct{ zone, want string }{
		{"LOCAL", "zone \"LOCAL\": " + local + "\n\tLOCAL\n\t^"},
		{"local", "zone \"local\": " + local + "\n\tlocal\n\t^"},
		{"localtime", "zone \"localtime\": " + local + "\n\tlocaltime\n\t^"},
		{"Europe/Berln", "zone \"Europe/Berln\": " + unknown + "\n\tEurope/Berln\n\t^"},
		{"Europe Berlin", "zone \"Europe Berlin\": " + unknown + "\n\tEurope Berlin\n\t      ^"},
		{"../../etc/passwd", "zone \"../../etc/passwd\": " + unknown + "\n\t../../etc/passwd\n\t^"},
	} {
		for _, v := range []any{Cron("* * * * *", c.zone), Daily("02:30", c.zone),
			DailyWindow("22:00", "06:00", c.zone), Weekdays(c.zone, time.Sunday), Dates(c.zone, "2026-12-25")} {
			if err := v.(Checker).Check(); err == nil || err.Error() != c.want {
				t.Errorf("%v\nwant\n%s", err, c.want)
			}
		}
	}
}

// Each form of expression means what the documentation says.
//
// Fails when an option of the parser is missing. For example, without DowOrDom "13 * 5" matches
// only Fridays that are the 13th.
func TestCronForms(t *testing.T) {
	for _, c := range []struct{ spec, after, want string }{
		{"0 2 * * *", "2027-01-01T02:00:00", "2027-01-02T02:00:00"},
		{"15 0 2 * * *", "2027-01-01T02:00:15", "2027-01-02T02:00:15"},
		{" 0  2\t* * *\n", "2027-01-01T02:00:00", "2027-01-02T02:00:00"},
		{"@Daily", "2027-01-01T00:00:00", "2027-01-02T00:00:00"},
		{"@midnight", "2027-01-01T00:00:00", "2027-01-02T00:00:00"},
		{"@hourly", "2027-01-01T00:00:00", "2027-01-01T01:00:00"},
		{"@weekly", "2027-01-01T00:00:00", "2027-01-03T00:00:00"},
		{"@monthly", "2027-01-01T00:00:00", "2027-02-01T00:00:00"},
		{"@yearly", "2027-01-01T00:00:00", "2028-01-01T00:00:00"},
		{"@annually", "2027-01-01T00:00:00", "2028-01-01T00:00:00"},
		{"0 0 * JAN-mar Mon", "2027-01-01T00:00:00", "2027-01-04T00:00:00"},
		{"0 0 * * 7", "2027-01-01T00:00:00", "2027-01-03T00:00:00"},
		{"0 0 * * fri-mon", "2027-01-04T00:00:00", "2027-01-08T00:00:00"},
		{"0 22-2 * * *", "2027-01-01T02:00:00", "2027-01-01T22:00:00"},
		{"*/25 * * * *", "2027-01-01T00:25:00", "2027-01-01T00:50:00"},
		{"0 0 ? * ?", "2027-01-01T00:00:00", "2027-01-02T00:00:00"},
		{"0 0 13 * 5", "2027-01-08T00:00:00", "2027-01-13T00:00:00"}, // either day field is enough
		{"0 0 13 * ?", "2027-01-08T00:00:00", "2027-01-13T00:00:00"},
		{"0 0 * * 5", "2027-01-08T00:00:00", "2027-01-15T00:00:00"},
		{"0 0 L * *", "2027-02-01T00:00:00", "2027-02-28T00:00:00"},
		{"0 0 l-2 * *", "2027-02-01T00:00:00", "2027-02-26T00:00:00"},
		{"0 0 LW * *", "2027-02-01T00:00:00", "2027-02-26T00:00:00"},
		{"0 0 15W * *", "2027-05-01T00:00:00", "2027-05-14T00:00:00"},
		{"0 0 * * fri#2", "2027-01-01T00:00:00", "2027-01-08T00:00:00"},
		{"0 0 * * FRI#l", "2027-01-01T00:00:00", "2027-01-29T00:00:00"},
		{"0 0 29 2 *", "2027-01-01T00:00:00", "2028-02-29T00:00:00"},
		{"0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00:00"}, // 2100 is not a leap year
		{"0 0 ? 2 fri#5", "2064-03-01T00:00:00", "2092-02-29T00:00:00"},
	} {
		s := Cron(c.spec, "")
		if err := s.(Checker).Check(); err != nil {
			t.Error(err)
			continue
		}
		after, err := time.Parse("2006-01-02T15:04:05", c.after)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Next(after).Format("2006-01-02T15:04:05"); got != c.want {
			t.Errorf("%q after %s is %s, want %s", c.spec, c.after, got, c.want)
		}
	}
}

// For instants far outside the usual range of years, Next returns a tick or none, but does not
// panic.
func TestCronAtTheEndsOfTime(t *testing.T) {
	s := Cron("0 2 * * *", "Europe/Berlin")
	for _, at := range []time.Time{{}, time.Unix(-1<<62, 0), time.Unix(1<<62, 0),
		time.Date(-400, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if next := s.Next(at); !next.IsZero() && !next.After(at) {
			t.Errorf("Next(%v) = %v", at, next)
		}
	}
}

// Any expression in any zone is either refused or gives ascending ticks. The ticks do not depend on
// the instants for which Next is called.
func FuzzCron(f *testing.F) {
	for _, spec := range dstSpecs {
		f.Add(spec, "America/New_York", int64(1_700_000_000), int64(3600))
	}
	for _, spec := range []string{"TZ=0", "CRON_TZ=UTC", "@every 1s", "*-5 * * * *", "100-5 * * * *", "1,,2 * * * *",
		"H H * * *", "0 0 30 2 *", "0 0 ? 2 fri#5",
		"0 0 L-30,31W,LW * *", "59 59 23 31 12 *", "\x00", "é * * * *", "* * * * 7-3/2", "99999999999999999999 * * * *",
		"0 0 1-31/30 * *"} {
		f.Add(spec, "Pacific/Apia", int64(1_325_239_200), int64(86400))
	}
	f.Add("0 0 31 12 *", "", int64(1<<40), int64(1))
	f.Add("0 0 31 12 *", "Local", int64(-1<<40), int64(-1))
	f.Add("0 0 31 12 *", "right/Europe/Berlin", int64(-1<<62), int64(1<<62))
	f.Add("*/30 * * * *", "Australia/Lord_Howe", int64(1_743_860_000), int64(900))
	f.Fuzz(func(t *testing.T, spec, zone string, unix, within int64) {
		start := time.Now()
		s := Cron(spec, zone)
		err := s.(Checker).Check()
		_ = Describe(s)
		at := time.Unix(unix, 0)
		if err != nil {
			if !s.Next(at).IsZero() {
				t.Errorf("%q in %q is refused, and due", spec, zone)
			}
			if !strings.Contains(err.Error(), "^") {
				t.Errorf("%q in %q: no caret: %v", spec, zone, err)
			}
			return
		}
		for range 10 {
			next := s.Next(at)
			if next.IsZero() {
				if y := at.UTC().Year(); y > -1000 && y < lastYear-50 {
					t.Errorf("%q in %q: nothing after %v", spec, zone, at)
				}
				break
			}
			if !next.After(at) {
				t.Fatalf("%q in %q: Next(%v) = %v", spec, zone, at, next)
			}
			if gap := next.Sub(at); gap > 1 { // the tick is the same for any instant in between
				between := at.Add(time.Duration(uint64(within) % uint64(gap)))
				if again := s.Next(between); !again.Equal(next) {
					t.Errorf("%q in %q: Next(%v) = %v, but Next(%v) = %v", spec, zone, at, next, between, again)
				}
			}
			at = next
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("%q in %q: it took %v", spec, zone, d)
		}
	})
}

// An expression that is written for Quartz either means the same here or is refused.
//
// Fails when a day of the week is read as a different day than Quartz means.
func TestQuartzWeekdaysAreNotMisread(t *testing.T) {
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) // this is a Friday
	for spec, want := range map[string]string{
		"0 15 10 ? * MON-FRI":     "2027-01-01 10:15",
		"0 15 10 ? * FRI#2":       "2027-01-08 10:15",
		"0 15 10 ? * FRI#L":       "2027-01-29 10:15",
		"0 15 10 ? * */2":         "2027-01-02 10:15",
		"0 15 10 L-2 * ?":         "2027-01-29 10:15",
		"0 15 10 15W * ?":         "2027-01-15 10:15",
		"0 15 10 * * 5":           "2027-01-01 10:15", // not Quartz, which requires a ?
		"15 10 ? * 5":             "2027-01-01 10:15", // not Quartz, which requires seconds
		"0 15 10 ? * 2-6":         "Quartz",
		"0 15 10 ? * MON,6":       "Quartz",
		"0 15 10 ? * 6#3":         "Quartz",
		"0 15 10 ? * 2/2":         "Quartz",
		"0 15 10 ? * 6L":          "fri#L",
		"0 15 10 ? * MON-FRI *":   "7 fields",
		"0 15 10 * * ? 2026-2028": "7 fields",
	} {
		s, err := ParseCron(spec, "")
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", spec, err, want)
			}
			continue
		}
		if got := s.Next(from).Format("2006-01-02 15:04"); got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
}
