package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// Daily returns a schedule that is due once a day, at the given time of day in the zone:
// Daily("02:30", "Europe/Berlin"), or with seconds, Daily("02:30:15", ""). It handles zones and
// clock changes as Cron does.
func Daily(clock, zone string) Schedule {
	d := daily{clock: clock, calendar: calendar{zone: zone}}
	at, clockErr := parseClock("Daily", clock)
	loc, zoneErr := loadZone(zone)
	d.loc, d.err = loc, errors.Join(clockErr, zoneErr)
	d.wall = onceADay(at)
	return d
}

type daily struct {
	clock string
	calendar
}

func (d daily) String() string { return fmt.Sprintf("daily at %s in %s", d.clock, zoneName(d.zone)) }

// onceADay is due once a day at this time after midnight, on clocks that never change.
type onceADay time.Duration

func (o onceADay) Next(t time.Time) time.Time {
	next := t.Truncate(24 * time.Hour).Add(time.Duration(o))
	if !next.After(t) {
		next = next.Add(24 * time.Hour)
	}
	return next
}

// At returns a schedule that is due at each of the given times and never again. Times in the past
// are valid, because a program must still start after the last of them. A timer runs a past tick
// only if a host already had the timer at that time (timer.CatchUp), or with timer.RunOnStartOnce.
func At(times ...time.Time) Schedule {
	in := make(instants, 0, len(times))
	for _, t := range times {
		in = append(in, t.Round(0)) // drops the monotonic clock reading, which is meaningless on other hosts
	}
	slices.SortFunc(in, time.Time.Compare)
	return in
}

type instants []time.Time

// Check implements Checker.
func (i instants) Check() error {
	if len(i) == 0 {
		return errors.New("At(): it never fires: give it an instant")
	}
	if i[0].IsZero() {
		return errors.New("At: one of its instants is the zero time, which is no instant: set it, or take it out")
	}
	return nil
}

// Next implements Schedule.
func (i instants) Next(t time.Time) time.Time {
	index, _ := slices.BinarySearchFunc(i, t, func(at, t time.Time) int {
		if at.After(t) {
			return 1
		}
		return -1
	})
	if index == len(i) {
		return time.Time{}
	}
	return i[index]
}

func (i instants) String() string {
	const shown = 3
	var s []string
	for _, t := range i[:min(shown, len(i))] {
		s = append(s, t.Format(time.RFC3339Nano))
	}
	if more := len(i) - len(s); more > 0 {
		s = append(s, fmt.Sprintf("%d more", more))
	}
	return "at " + strings.Join(s, ", ")
}

// CatchesUp reports whether a timer runs a missed tick of this schedule late by default. It does
// for calendars (Cron, Daily, At), because the next tick may be a day or a year away, for an Every
// of a day or longer, and for an Except or Times of one of these. With a shorter interval the next
// tick makes up for the missed one. For user-defined schedules CatchesUp returns false.
func CatchesUp(s Schedule) bool {
	switch s := s.(type) {
	case crontab, daily, instants:
		return true
	case Interval:
		return s.period >= 24*time.Hour
	case except:
		return CatchesUp(s.schedule)
	case counted:
		return CatchesUp(s.schedule)
	}
	return false
}

// Ends reports whether a schedule has a last tick: an At, a Times, or an Except of one of these.
// Such schedules may have no ticks left. For user-defined schedules Ends returns false.
func Ends(s Schedule) bool {
	switch s := s.(type) {
	case instants, counted:
		return true
	case except:
		return Ends(s.schedule)
	}
	return false
}

// A calendar is a schedule in the wall time of a zone. Its wall schedule ignores zones and treats
// wall time as UTC. The type defines what happens when clocks change, for all calendars:
//
//   - A time that the clocks skip is due at the first instant after the gap. The whole gap adds one
//     tick.
//   - A time that the clocks show twice is due the first time.
//   - An hourly calendar is due whenever the clocks show its time, and a gap of whole hours adds no
//     tick.
type calendar struct {
	zone   string
	loc    *time.Location
	wall   cron.Schedule // the ticks in wall time
	hourly bool          // whether the calendar allows every hour of the day
	err    error
}

// Check implements Checker.
func (c calendar) Check() error { return c.err }

// maxSegments bounds the loop over clock changes. Even with a clock change every month it covers 80
// years.
const maxSegments = 1000

// Next implements Schedule. It iterates over the periods between clock changes. In each period,
// wall time minus the zone's offset gives the instant.
func (c calendar) Next(t time.Time) time.Time {
	if c.err != nil || t.Year() > lastYear {
		return time.Time{}
	}
	start, end := segment(t, c.loc)
	offset := offsetAt(t, c.loc)
	from := shown(t, offset)
	if !c.hourly && !start.IsZero() {
		// Times that the clocks showed before they were set back have already been due.
		from = later(from, justBefore(start, offsetAt(start.Add(-1), c.loc)))
	}
	asked, w := from, c.wall.Next(from) // no tick lies between asked and w
	for range maxSegments {
		if w.IsZero() {
			return w
		}
		if due := w.Add(-offset); end.IsZero() || due.Before(end) {
			return due.In(c.loc)
		}
		was := offset
		offset = offsetAt(end, c.loc)
		if gap := offset - was; gap > 0 && w.Before(shown(end, offset)) && (!c.hourly || gap%time.Hour != 0) {
			return end.In(c.loc)
		}
		from = justBefore(end, offset)
		if !c.hourly {
			from = later(from, justBefore(end, was))
		}
		if from.Before(asked) || !from.Before(w) {
			asked, w = from, c.wall.Next(from)
		}
		_, end = segment(end, c.loc)
	}
	return time.Time{}
}

// segment returns the start and end of the period around t in which the zone keeps the offset that
// it has at t. A zero time means that the period is unbounded. After the end of the zone's table,
// Go 1.26 ends a leap year on 31 December at 00:00. Without the correction Next would not advance
// on that day.
func segment(t time.Time, loc *time.Location) (start, end time.Time) {
	start, end = t.In(loc).ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		end = t.Truncate(24 * time.Hour).Add(24 * time.Hour)
	}
	return start, end
}

// offsetAt returns the zone's offset from UTC at t.
func offsetAt(t time.Time, loc *time.Location) time.Duration {
	_, seconds := t.In(loc).Zone()
	return time.Duration(seconds) * time.Second
}

// shown returns the wall time at t for that offset, represented as UTC.
func shown(t time.Time, offset time.Duration) time.Time { return t.Add(offset).UTC().Round(0) }

// justBefore returns the nanosecond before the wall time that shown returns.
func justBefore(t time.Time, offset time.Duration) time.Time { return shown(t, offset).Add(-1) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// localZone is the name of this host's zone.
const localZone = "Local"

// loadZone returns the zone with that name. The empty name is UTC.
func loadZone(zone string) (*time.Location, error) {
	if zone != localZone && (strings.EqualFold(zone, localZone) || zone == "localtime") {
		return time.UTC, fault("zone", zone, 0,
			`write "Local" for the zone of this host, which may differ from that of others: `+
				`name a zone, such as "Europe/Berlin", or "" for UTC, where hosts have to agree`)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		at := strings.IndexFunc(zone, func(r rune) bool {
			return !strings.ContainsRune("/_-+", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') &&
				(r < 'a' || r > 'z')
		})
		return time.UTC, fault("zone", zone, max(at, 0),
			`there is no such time zone here: use a name of the IANA database, such as "Europe/Berlin"; `+
				`on systems without zone files, import _ "time/tzdata"`)
	}
	return loc, nil
}

func zoneName(zone string) string {
	if zone == "" {
		return "UTC"
	}
	return zone
}

// parseClock parses a time of day such as 02:30 or 02:30:15.
func parseClock(kind, text string) (time.Duration, error) {
	const layout = "00:00:00"
	bad := func(at int, format string, args ...any) (time.Duration, error) {
		return 0, fault(kind, text, at, format, args...)
	}
	for i, c := range []byte(text) {
		switch {
		case i == len(layout):
			return bad(i, `something follows the time: write it as "02:30" or "02:30:15"`)
		case layout[i] == ':' && c != ':', layout[i] == '0' && (c < '0' || c > '9'):
			return bad(i, `write the time as "02:30" or "02:30:15", with two digits each`)
		}
	}
	if len(text) != len("00:00") && len(text) != len(layout) {
		return bad(len(text), `write the time as "02:30" or "02:30:15", with two digits each`)
	}
	var at time.Duration
	for i, part := range []struct {
		name  string
		below int
		unit  time.Duration
	}{{"hour", 24, time.Hour}, {"minute", 60, time.Minute}, {"second", 60, time.Second}} {
		if 3*i > len(text) {
			break
		}
		n := int(text[3*i]-'0')*10 + int(text[3*i+1]-'0')
		if n >= part.below {
			return bad(3*i, "the %s is 00 to %d", part.name, part.below-1)
		}
		at += time.Duration(n) * part.unit
	}
	return at, nil
}
