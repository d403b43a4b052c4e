package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Identity returns a text that identifies a schedule. It is the same in every process that has the
// same schedule. It changes with everything that determines the ticks: a time, a zone, an instant,
// an exception. Describe does not identify a schedule, because its text is abridged, may be
// reworded, and shows times in this host's zone. A user-defined type is identified by its String
// method. Without a String method it is identified only by its type name, because its value may
// contain pointers.
func Identity(s Schedule) string { return identity(s) }

// identity is like Identity, but also accepts blackouts.
func identity(v any) string {
	nanos := func(times ...time.Time) string {
		var s strings.Builder
		for _, t := range times {
			fmt.Fprintf(&s, " %d.%09d", t.Unix(), t.Nanosecond())
		}
		return s.String()
	}
	switch v := v.(type) {
	case Interval:
		return fmt.Sprintf("every %d %t%s", v.period, v.anchored, nanos(v.begin()))
	case FixedDelay:
		return fmt.Sprintf("after %d", v.delay)
	case crontab:
		return fmt.Sprintf("cron %s in %s", strings.Join(strings.Fields(v.spec), " "), zoneName(v.zone))
	case daily:
		return fmt.Sprintf("daily %s in %s", v.clock, zoneName(v.zone))
	case instants:
		return "at" + nanos(v...)
	case counted:
		return fmt.Sprintf("times %d from%s\n%s", v.n, nanos(v.from), identity(v.schedule))
	case except:
		s := "except " + identity(v.schedule)
		for _, b := range v.blackouts {
			s += "\n" + identity(b)
		}
		return s
	case dailyWindow:
		return fmt.Sprintf("window %s %s in %s", v.from, v.to, zoneName(v.zone))
	case weekdays:
		return fmt.Sprintf("weekdays %d in %s", v.days, zoneName(v.zone))
	case dates:
		return fmt.Sprintf("dates %s in %s", strings.Join(slices.Sorted(slices.Values(v.days)), " "), zoneName(v.zone))
	case between:
		return "between" + nanos(v.from, v.to)
	default:
		return Describe(v)
	}
}

// Describe returns a text that describes a Schedule or a Blackout to people: the result of its
// String method, or its type.
func Describe(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return fmt.Sprintf("%v", s) // fmt recovers if String panics
	}
	return fmt.Sprintf("%T", v)
}
