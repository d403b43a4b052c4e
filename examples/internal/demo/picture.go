package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	frame  = time.Second // time between two lines
	column = 9           // characters per slot
	gap    = 3           // characters between two timers
	least  = 24          // least characters per timer, for its heading
)

// draw prints the holder of each slot once a second until ctx ends.
func (r *recorder) draw(ctx context.Context) {
	r.heading()
	each := time.NewTicker(frame)
	defer each.Stop()
	for {
		select {
		case <-each.C:
			r.line()
		case <-ctx.Done():
			return
		}
	}
}

func (r *recorder) heading() {
	r.mu.Lock()
	defer r.mu.Unlock()
	names, slots := strings.Repeat(" ", column), fmt.Sprintf("%*s  ", column-2, "time")
	for _, l := range allLimits {
		names += fmt.Sprintf("%-*s", l.width(), fmt.Sprintf("%s, limit %d", l.timer, l.atOnce))
		for i := range l.atOnce {
			slots += fmt.Sprintf("%-*s", column, fmt.Sprintf("slot %d", i))
		}
		slots += strings.Repeat(" ", l.width()-l.atOnce*column)
	}
	fmt.Fprintf(r.out, "%s\n%s\n", strings.TrimRight(names, " "), strings.TrimRight(slots, " "))
}

// width returns the width of a timer in characters.
func (l limits) width() int { return max(l.atOnce*column+gap, least) }

// line prints the host in each slot, or the last one since the previous line. A host that is cut
// off is in brackets.
func (r *recorder) line() {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf("%*.1fs  ", column-3, time.Since(r.began).Seconds())
	for _, l := range allLimits {
		t := r.tallies[l.timer]
		for i := range l.atOnce {
			host, used := t.inSlot[i]
			if !used {
				host = t.wasInSlot[i]
			}
			switch {
			case host == "":
				host = "-"
			case slices.Contains(r.cut, host):
				host = "(" + host + ")"
			}
			line += fmt.Sprintf("%-*s", column, host)
		}
		line += strings.Repeat(" ", l.width()-l.atOnce*column)
		clear(t.wasInSlot)
	}
	fmt.Fprintln(r.out, strings.TrimRight(line, " "))
}

// say prints an event.
func (r *recorder) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayLocked(format, args...)
}

// sayLocked is say for callers that hold mu.
func (r *recorder) sayLocked(format string, args ...any) {
	fmt.Fprintf(r.out, "%*.1fs  %s\n", column-3, time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}
