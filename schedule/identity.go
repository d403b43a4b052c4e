package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Identity is a text that tells a schedule from another. It is the same in every process with the
// same schedule, and changes with everything that decides about its ticks: a time, a zone, an
// instant, an exception. What people read in place of it, Describe, leaves out much, may be worded
// anew, and shows times in the zone of this host. A type that is not ours is known by its String;
// without one by the name of the type alone, because its value may have pointers in it.
func Identity(s Schedule) string { return identity(s) }

// identity is Identity, also of blackouts.
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
	case crontab:
		return fmt.Sprintf("cron %s in %s", strings.Join(strings.Fields(v.spec), " "), zoneName(v.zone))
	case daily:
		return fmt.Sprintf("daily %s in %s", v.clock, zoneName(v.zone))
	case instants:
		return "at" + nanos(v...)
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

// Describe is how a Schedule or a Blackout is shown to people: its String, or its type.
func Describe(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return fmt.Sprintf("%v", s) // fmt survives a String that panics
	}
	return fmt.Sprintf("%T", v)
}
