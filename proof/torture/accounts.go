package torture

import "slices"

// accounts checks that every tick of one process is accounted for. It compares the ticks that the
// scheduler reported as due a while ago with those that it accounts for now. Because the scheduler
// may report too few, it also compares them with a grid of that period. A paused process accounts
// for nothing, so only the time that it was awake counts.
func (e *examiner) accounts(host string, lines []Line) {
	var timers []TimerLine
	var points []point
	var awake, jumped, jumps int64
	var ahead, most int64 // of the clock, since the process started
	drained := int64(1<<63 - 1)
	for _, l := range lines {
		switch l.Kind {
		case Begin:
			timers = l.Timers
		case Jump:
			// If a clock was set back and returns, its timers may be as before.
			ahead += l.By
			jumped, most = jumped+max(0, ahead-most), max(most, ahead)
			jumps++
		case Drain:
			drained = l.At
		case Status, End:
			if n := len(points); n > 0 {
				awake += min(l.At-points[n-1].At, maxStatusGap)
			}
			points = append(points, point{l, awake, jumped, jumps})
		}
	}
	if len(points) == 0 {
		return
	}
	first, last := points[0], points[len(points)-1]
	ended := last.Kind == End
	if ended {
		e.Leaked += last.Leaked
		if last.Leaked > 0 {
			e.example("%s: %d goroutines leaked", host, last.Leaked)
		}
		if last.Stuck != "" {
			e.Stuck++
			e.example("%s: %s", host, last.Stuck)
		}
	}
	// The latest point whose ticks must be accounted for by the end. Nothing comes due during a
	// drain, so it is also the latest point whose ticks must have come due before that.
	before := func(end point) int {
		return slices.IndexFunc(points, func(p point) bool { return end.awake-p.awake < int64(e.rules.Bound) }) - 1
	}
	due, came := before(last), -1
	if n := slices.IndexFunc(points, func(p point) bool { return p.At >= drained }); n > 0 {
		came = before(points[n-1])
	} else if n < 0 {
		came = due
	}
	for i, t := range timers {
		ticks, done := int64(last.Ticks[i]), int64(last.Done[i])
		e.Ticks += ticks
		missing := int64(0)
		if ended {
			missing = max(ticks, done) - min(ticks, done)
		} else if due >= 0 {
			missing = max(0, int64(points[due].Ticks[i])-done)
		}
		if came >= 0 {
			p := points[came]
			grid := (p.At-first.At+p.jumped-first.jumped)/t.Period - 2 - 2*p.jumps
			missing = max(missing, grid-(done-int64(first.Done[i])))
		}
		if missing > 0 {
			e.Unaccounted += missing
			e.example("%s %s: %d ticks unaccounted for (%d due, %d started or skipped)", host, t.Name, missing, ticks,
				done)
		}
	}
}

// A point is a status, with the events of the process until then.
type point struct {
	Line
	awake, jumped, jumps int64
}
