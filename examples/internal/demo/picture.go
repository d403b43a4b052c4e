package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	frame  = time.Second // between two lines of the picture
	column = 9           // characters of one slot
	gap    = 3           // characters between two timers
	least  = 24          // characters of a timer at least, so that its heading fits
)

// draw prints, once a second, who has which slot, until ctx ends.
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

// width returns how many characters a timer takes in a line.
func (l limits) width() int { return max(l.atOnce*column+gap, least) }

// line prints which host is in each slot, or was last in it since the previous line. A host that
// was cut off is in brackets.
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

// say prints a line about an event.
func (r *recorder) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayLocked(format, args...)
}

// sayLocked is like say, called with mu held.
func (r *recorder) sayLocked(format string, args ...any) {
	fmt.Fprintf(r.out, "%*.1fs  %s\n", column-3, time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}
