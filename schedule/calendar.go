package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// Daily is due once a day, when the clocks of the zone show that time of day: Daily("02:30",
// "Europe/Berlin"), or with seconds, Daily("02:30:15", ""). It treats the zone, and the days on
// which clocks change, as Cron does.
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

// onceADay is due at that time after midnight, on clocks that never change.
type onceADay time.Duration

func (o onceADay) Next(t time.Time) time.Time {
	next := t.Truncate(24 * time.Hour).Add(time.Duration(o))
	if !next.After(t) {
		next = next.Add(24 * time.Hour)
	}
	return next
}

// At is due at each of these instants and never again. Instants in the past are not a fault,
// because a program must still start after the last one. If an instant has passed, a timer runs it
// only if a host had the timer before that instant (timer.CatchUp), or with timer.RunOnStartOnce.
func At(times ...time.Time) Schedule {
	in := make(instants, 0, len(times))
	for _, t := range times {
		in = append(in, t.Round(0)) // drops the monotonic clock reading, which only this host has
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

// CatchesUp reports whether a missed tick of a schedule is worth a late run by default. That is so
// for a calendar (a Cron, a Daily, an At), whose next tick may be a day or a year away, for an
// Every of a day or longer, and for an Except or Times of one of these. With a shorter interval the
// next tick makes up for it. For user-defined schedules it returns false, because it cannot know.
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
// Such a schedule may have no tick left. User-defined schedules do not count.
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
// wall time as UTC. calendar decides for all calendars what happens when clocks change:
//
//   - a time that does not exist is due at the first instant after the gap, once for the whole gap;
//   - a time that the clock shows twice is due the first time;
//   - an hourly calendar is due whenever the clock shows its time, and a gap of whole hours adds no
//     tick.
type calendar struct {
	zone   string
	loc    *time.Location
	wall   cron.Schedule // what is due in wall time
	hourly bool          // every hour of the day is allowed
	err    error
}

// Check implements Checker.
func (c calendar) Check() error { return c.err }

// maxSegments bounds the walk over clock changes. Even if the clocks change once a month, they
// change fewer times in 80 years.
const maxSegments = 1000

// Next implements Schedule. It walks from one clock change to the next; between two changes an
// instant is wall time minus offset.
func (c calendar) Next(t time.Time) time.Time {
	if c.err != nil || t.Year() > lastYear {
		return time.Time{}
	}
	start, end := segment(t, c.loc)
	offset := offsetAt(t, c.loc)
	from := shown(t, offset)
	if !c.hourly && !start.IsZero() {
		// times shown before the clock was set back have already come due
		from = later(from, justBefore(start, offsetAt(start.Add(-1), c.loc)))
	}
	asked, w := from, c.wall.Next(from) // no wall time between these two is due
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

// segment returns a period around t in which the clocks of the zone keep the offset that they have
// at t; a zero time is unbounded. For a year after the end of the zone's table, Go (1.26) ends a
// leap year on 31 December at 00:00. Without the correction the walk would not advance on that day.
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

// shown returns the wall time at t on a clock with that offset, represented as UTC.
func shown(t time.Time, offset time.Duration) time.Time { return t.Add(offset).UTC().Round(0) }

// justBefore returns the last wall time before the one that shown returns.
func justBefore(t time.Time, offset time.Duration) time.Time { return shown(t, offset).Add(-1) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// localZone is the zone of this host.
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

// parseClock reads a time of day, 02:30 or 02:30:15.
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
