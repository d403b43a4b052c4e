package demo

import (
	"fmt"
	"io"
	"time"
)

// A report is the output of -json. Handlers observed every number.
type report struct {
	Hosts         int           `json:"hosts"`
	Seconds       float64       `json:"seconds"`
	Timers        []timerReport `json:"timers"`
	SlotRecovered int64         `json:"slot_recovered_ms"` // from the cut to the next run in that slot, or 0
}

type timerReport struct {
	Name       string `json:"name"`
	Limit      int    `json:"limit"`
	MaxRunning int    `json:"max_running"`
	Runs       int    `json:"runs"`
	Ticks      int    `json:"ticks"`   // for which at least one handler ran
	Skipped    int    `json:"skipped"` // for which none did; see tally.skipped
	PerTick    int    `json:"per_tick"`
	MaxStarts  int    `json:"max_starts_per_tick"`
}

func (r *recorder) report(hosts int, cut cutOff) report {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := report{
		Hosts:         hosts,
		Seconds:       time.Since(r.began).Round(time.Millisecond).Seconds(),
		SlotRecovered: cut.recovered.Milliseconds(),
	}
	for _, l := range allLimits {
		t := r.tallies[l.timer]
		result.Timers = append(result.Timers, timerReport{
			Name: l.timer, Limit: l.atOnce, MaxRunning: t.maxRunning, Runs: t.runs,
			Ticks: len(t.starts), Skipped: t.skipped(), PerTick: l.perTick, MaxStarts: t.maxStarts,
		})
	}
	return result
}

// skipped returns how many ticks ran nowhere. Handlers cannot see such ticks, so it infers them:
// ticks come once per period, and those missing between the first and the last observed tick were
// skipped because all slots were held. It does not count ticks that a host skipped because another
// one ran them.
func (t *tally) skipped() int {
	var first, last time.Time
	for tick := range t.starts {
		if first.IsZero() || tick.Before(first) {
			first = tick
		}
		if tick.After(last) {
			last = tick
		}
	}
	if first.IsZero() {
		return 0
	}
	return int(last.Sub(first)/t.period) + 1 - len(t.starts)
}

func (r report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d hosts, %.1f seconds\n", r.Hosts, r.Seconds)
	const row = "%-13s  %14s  %15s  %4v  %5v  %7v\n"
	fmt.Fprintf(w, row, "timer", "most at once", "most per tick", "runs", "ticks", "skipped")
	for _, t := range r.Timers {
		fmt.Fprintf(w, row, t.Name, fmt.Sprintf("%d (limit %d)", t.MaxRunning, t.Limit),
			fmt.Sprintf("%d (limit %d)", t.MaxStarts, t.PerTick), t.Runs, t.Ticks, t.Skipped)
	}
	fmt.Fprintln(w, "ticks: at least one host ran them; skipped: none did, as every slot was taken")
}
