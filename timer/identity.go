package timer

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// scheduleID tells a schedule from others that a timer of the same name had, or has on other hosts. It is the same in every process with
// the same schedule, and goes to the store with every claim: a tick that the store knows of says nothing about what another schedule missed.
// Jitter and SpreadStart are no part of it: they delay ticks, which stay the same.
func scheduleID(s Schedule) int64 {
	if s == nil {
		return 0
	}
	return int64(hashed("schedule", identity(s)))
}

// identity is a text that changes with everything that a schedule or a blackout is made of. What people read in place of it leaves out
// much, may be worded anew, and shows times in the zone of this host. A type that is not ours is known by its String; without one by the name of the
// type alone, because its value may have pointers in it.
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
		return describe(v)
	}
}
