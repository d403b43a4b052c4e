package schedule

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// dstZones are the zones of the DST tests. Each comment names the peculiarity of the zone.
var dstZones = []string{
	"America/New_York",
	"Europe/Berlin",
	"Australia/Lord_Howe", // changes by half an hour
	"America/Sao_Paulo",   // has a gap at midnight
	"America/Havana",      // has a gap and an overlap at midnight
	"Africa/Cairo",        // has four changes in some years, one at midnight
	"Pacific/Apia",        // skipped 30 December 2011
	"Africa/Casablanca",   // suspends summer time during Ramadan
}

var dstSpecs = []string{
	// These follow elapsed time.
	"0 * * * *", "30 * * * 0,3,6", "*/20 * 1-7 * *", "7,37 * * 3,4,9-11 *", "@hourly", "15 * * 4,9,10 *",
	"*/5 * * 3,4,10,11 0",
	"* * * 3 sun", "59 * * 3-4,9-11 *", "0 0-23 1-7 * *", "45 */1 1-7 * *", "20 * 29 * 6", "* * 30,31 dec ?",
	// These are due once per wall time.
	"0 0 * * *", "@daily", "30 0 * * *", "15 1 * * *", "30 1 * * *", "0 2 * * *", "30 2 * * *", "0 3 * * *",
	"*/10 2 * * *", "*/20 0-3 * * *",
	"*/15 1,2 * * 0", "59 23 * * *", "0 12 * * *", "5 0 * * sun", "0 0 1 * *", "@weekly", "@monthly", "@yearly",
	"30 2 L * *", "0 2 LW * *",
	"15 2 15W * *", "30 1 * * sun#L", "30 2 * mar sun#2", "0 0 13 * 5", "30 2 29 2 *", "*/30 22-2 * * *",
	"0 1-23 * 3,4,9-11 *",
	"*/7 */2 * 3,4,10,11 0", "0 0 30 12 *", "0 12 30 dec fri", "30 */3 * 3,10 sat-mon", "10-50/20 2 L-2 * fri-mon",
}

// The ticks of every expression are exactly the ticks that an oracle finds by reading the wall
// clock minute by minute. The result of Next does not depend on when it is called.
//
// Fails when a skipped time is lost or due twice, when a time that is shown twice is due twice,
// when an hourly expression skips the second pass or has an extra tick, or when a year after the
// end of the zone table ends early.
func TestCronIsWhatTheClockShows(t *testing.T) {
	start := time.Now()
	years, zones := testkit.Rounds(t, 1, 10), dstZones
	switch {
	case testing.Short():
		years, zones = 1, []string{"Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"}
	case testkit.RaceDetector:
		years = 1
	}
	var minutes, ticks, asked, changes atomic.Int64
	watch := func(t *testing.T, name string, loc *time.Location, year int) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOracle(t, loc, time.Minute, dstSpecs)
			o.watch(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(year+years, 1, 1, 0, 0, 0, 0, time.UTC))
			minutes.Add(o.steps)
			ticks.Add(o.ticks)
			asked.Add(o.asked)
			changes.Add(o.changes)
		})
	}
	t.Run("zones", func(t *testing.T) {
		for _, zone := range zones {
			loc, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			first := 2010
			if years == 1 {
				first = 2011 // Samoa skips a day
			}
			watch(t, zone, loc, first)
		}
		for name := range rules {
			watch(t, "by rule of "+name, byRule(t, name), 2028)
		}
	})
	fmt.Printf("dst: %d expressions, %d zones, %d years, %d changes of the clock, %d minutes watched, %d ticks, %d "+
		"further questions: no difference unless said above, in %.1f s\n",
		len(dstSpecs), len(zones), years, changes.Load(), minutes.Load(), ticks.Load(), asked.Load(),
		time.Since(start).Seconds())
}

// Like TestCronIsWhatTheClockShows, but second by second around each clock change.
//
// Fails when the seconds of an expression are ignored, or when a skipped time is not due in the
// first second after the gap.
func TestCronWithSecondsIsWhatTheClockShows(t *testing.T) {
	years := testkit.Rounds(t, 2, 10)
	for _, zone := range dstZones {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		o := newOracle(t, loc, time.Second, []string{"*/10 * * * * *", "30 30 2 * * *", "15 0 0 * * *",
			"0,30 */30 1-3 * * *", "59 59 * * * *", "7 * 0-12 * * *"})
		for at := time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC); ; {
			_, at = at.In(loc).ZoneBounds()
			if at.IsZero() || at.Year() >= 2010+years {
				break
			}
			o.watch(at.Add(-100*time.Minute), at.Add(100*time.Minute))
		}
		if o.changes == 0 {
			t.Errorf("%s: the clock was never changed", zone)
		}
	}
}

// rules holds the rules of three zones. A zone file has a table, and a rule for the years after the
// table. The zone files that come with Go (time/tzdata) have the shortest possible tables.
var rules = map[string]string{
	"New York":  "EST5EDT,M3.2.0,M11.1.0",
	"Berlin":    "CET-1CEST,M3.5.0,M10.5.0/3",
	"Lord Howe": "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
}

// byRule returns a zone that has only a rule and no table.
func byRule(t *testing.T, name string) *time.Location {
	var file []byte
	for range 2 { // one block for 32-bit readers, one for 64-bit readers
		file = append(file, "TZif2"...)
		file = append(file, make([]byte, 15)...)
		for _, count := range []uint32{0, 0, 0, 0, 1, 4} { // one local time type, whose name has 4 bytes
			file = binary.BigEndian.AppendUint32(file, count)
		}
		file = append(file, 0, 0, 0, 0, 0, 0) // a placeholder for UTC that is never used
		file = append(file, "UTC\x00"...)
	}
	file = append(file, "\n"+rules[name]+"\n"...)
	loc, err := time.LoadLocationFromTZData("by rule of "+name, file)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// An oracle steps through time and reads the wall clock at each step. It has its own code for
// matching expressions. It represents sets of expressions as bits, so that the test takes only
// seconds.
type oracle struct {
	t    *testing.T
	loc  *time.Location
	unit int64 // in seconds
	of   []watched

	clock []uint64 // for each unit of the day, the expressions that match this time of day
	real  uint64   // the expressions that follow elapsed time
	today uint64   // the expressions that are due on this day
	day   int64    // the day that today describes

	steps, ticks, asked, changes int64
	faults                       int
}

type watched struct {
	spec     string
	schedule Schedule
	next     time.Time
	day      naiveDay
}

func newOracle(t *testing.T, loc *time.Location, unit time.Duration, specs []string) *oracle {
	o := &oracle{t: t, loc: loc, unit: int64(unit / time.Second), day: -1 << 62}
	o.clock = make([]uint64, 86400/o.unit)
	if len(specs) > 64 {
		t.Fatal("there are only 64 bits")
	}
	for n, spec := range specs {
		c, ok := Cron(spec, "").(crontab)
		if err := c.Check(); err != nil || !ok {
			t.Fatal(err)
		}
		c.loc = loc
		if word, ok := map[string]string{"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0",
			"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *"}[spec]; ok {
			spec = word
		}
		f := strings.Fields(spec)
		if len(f) == 5 {
			f = append([]string{"0"}, f...)
		}
		real := true
		for h := range 24 {
			real = real && naive(f[2], h, "")
		}
		if real {
			o.real |= 1 << n
		}
		for i := range o.clock {
			if s := i * int(o.unit); naive(f[0], s%60, "") && naive(f[1], s/60%60, "") && naive(f[2], s/3600, "") {
				o.clock[i] |= 1 << n
			}
		}
		o.of = append(o.of, watched{spec: spec, schedule: c, day: naiveDay{f[3], f[4], f[5]}})
	}
	return o
}

// shows returns the set of expressions that are due at a wall time.
func (o *oracle) shows(wall int64) uint64 {
	if day := wall / 86400; day != o.day {
		o.day, o.today = day, 0
		for i, e := range o.of {
			if e.day.is(time.Unix(day*86400, 0).UTC()) {
				o.today |= 1 << i
			}
		}
	}
	return o.today & o.clock[wall%86400/o.unit]
}

// watch compares every tick between two instants. Both must be whole minutes.
func (o *oracle) watch(from, to time.Time) {
	for i := range o.of {
		o.of[i].next = o.of[i].schedule.Next(from.Add(-1))
	}
	_, offset := from.In(o.loc).Zone()
	was := from.Unix() + int64(offset) - o.unit // the wall time one unit ago
	highest, changed := was, int64(-1<<62)
	for now := from.Unix(); now < to.Unix(); now += o.unit {
		o.steps++
		at := time.Unix(now, 0)
		_, offset := at.In(o.loc).Zone()
		wall := now + int64(offset)
		var due uint64
		if wall != was+o.unit {
			o.changes++
			changed = now
			for w := was + o.unit; w < wall; w += o.unit { // the skipped times
				missing := o.shows(w)
				if (wall-was-o.unit)%3600 == 0 {
					missing &^= o.real
				}
				due |= missing
			}
		}
		showing := o.shows(wall)
		if wall <= highest { // the clock has shown this time before
			showing &= o.real
		}
		was, highest = wall, max(highest, wall)
		for due |= showing; due != 0; due &= due - 1 {
			e := &o.of[bits.TrailingZeros64(due)]
			for e.next.Unix() < now {
				o.fault("%s: %q: not due at %v, but Next returns it", o.loc, e.spec, e.next)
				e.next = e.schedule.Next(e.next)
			}
			if e.next.Unix() != now || e.next.Nanosecond() != 0 {
				o.fault("%s: %q: due at %v, but Next returns %v", o.loc, e.spec, at.In(o.loc), e.next)
				continue
			}
			o.ticks++
			if e.next = e.schedule.Next(at); !e.next.After(at) {
				o.t.Fatalf("%s: %q: Next(%v) is %v", o.loc, e.spec, at, e.next)
			}
		}
		if near := now-changed < 3*3600; near && o.steps%13 == 0 || o.steps%997 == 0 {
			asked := at.Add(rand.N(time.Duration(o.unit) * time.Second))
			for i := range o.of {
				e := &o.of[i]
				if !near && int64(i)%5 != o.steps/997%5 || e.next.Unix() <= now {
					continue
				}
				o.asked++
				if next := e.schedule.Next(asked); !next.Equal(e.next) {
					o.fault("%s: %q: Next(%v) is %v, but %v when asked at the tick before", o.loc, e.spec,
						asked.In(o.loc), next, e.next)
				}
			}
		}
	}
	for _, e := range o.of {
		if e.next.Before(to) {
			o.fault("%s: %q: not due at %v, but Next returns it", o.loc, e.spec, e.next)
		}
	}
}

func (o *oracle) fault(format string, args ...any) {
	o.t.Errorf(format, args...)
	if o.faults++; o.faults > 20 {
		o.t.FailNow()
	}
}

// A naiveDay has the three day fields of an expression.
type naiveDay struct{ dayOfMonth, month, dayOfWeek string }

func (d naiveDay) is(date time.Time) bool {
	if !naive(d.month, int(date.Month()), "... jan feb mar apr may jun jul aug sep oct nov dec") {
		return false
	}
	dom, dow := false, false
	last := date.AddDate(0, 1, -date.Day()).Day()
	workday := func(day int) bool {
		wd := date.AddDate(0, 0, day-date.Day()).Weekday()
		return wd != time.Saturday && wd != time.Sunday
	}
	for f := range strings.SplitSeq(d.dayOfMonth, ",") {
		switch {
		case f == "L":
			dom = dom || date.Day() == last
		case f == "LW":
			day := last
			for !workday(day) {
				day--
			}
			dom = dom || date.Day() == day
		case strings.HasPrefix(f, "L-"):
			n, _ := strconv.Atoi(f[2:])
			dom = dom || date.Day() == last-n
		case strings.HasSuffix(f, "W"):
			n, _ := strconv.Atoi(f[:len(f)-1])
			for _, day := range []int{n, n - 1, n + 1, n + 2, n - 2} { // the nearest weekday in the same month
				if day >= 1 && day <= last && workday(day) {
					dom = dom || date.Day() == day
					break
				}
			}
		default:
			dom = dom || naive(f, date.Day(), "")
		}
	}
	const days = "sun mon tue wed thu fri sat sun"
	wd := int(date.Weekday())
	for f := range strings.SplitSeq(d.dayOfWeek, ",") {
		if name, nth, ok := strings.Cut(f, "#"); ok {
			dow = dow || naive(name, wd, days) && (nth == "L" && date.Day()+7 > last ||
				nth == strconv.Itoa((date.Day()+6)/7))
			continue
		}
		dow = dow || naive(f, wd, days) || wd == 0 && naive(f, 7, days)
	}
	if any := "*?"; strings.Contains(any, d.dayOfMonth) || strings.Contains(any, d.dayOfWeek) {
		return dom && dow
	}
	return dom || dow
}

// naive reports whether v matches a field.
func naive(field string, v int, names string) bool {
	value := func(s string) int {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
		return slices.Index(strings.Fields(names), s)
	}
	for element := range strings.SplitSeq(field, ",") {
		span, step, stepped := strings.Cut(element, "/")
		low, high, isRange := strings.Cut(span, "-")
		every := 1
		if stepped {
			every = value(step)
		}
		switch {
		case low == "*" || low == "?":
			if v%every == 0 { // correct for fields that begin at 0; the test uses no others
				return true
			}
		case isRange && value(low) > value(high):
			if v >= value(low) || v <= value(high) {
				return true
			}
		case isRange:
			if v >= value(low) && v <= value(high) && (v-value(low))%every == 0 {
				return true
			}
		case v == value(low):
			return true
		}
	}
	return false
}
