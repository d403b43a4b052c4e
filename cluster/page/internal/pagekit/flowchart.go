package pagekit

import (
	"fmt"
	"time"
)

// A FlowCount is how many entries came into a queue and left it within an interval.
type FlowCount struct {
	StartedAt time.Time
	In, Out   int64
}

// A FlowChart draws how many entries of a queue waited, came and left, for the template "flow
// chart".
type FlowChart struct {
	Fault   string // why nothing is known; "": something is
	Entries string // what is counted, in the plural
	Came    string // the word for an entry that came: queued
	Waits   string // and for one that has not left: queued or running
	Within  string // "6 h"
	Waiting int64  // now; -1: not known
	In, Out int64
	Cut     bool // so many came or left that counting begins later
	Backlog Bars // without Columns: it is not known
	Rates   Bars // what came upwards, what left downwards
}

// A FlowSpan is what a FlowChart covers.
type FlowSpan struct {
	From, Until time.Time     // what is counted
	Interval    time.Duration // of the counts
	Length      time.Duration // of the chart, which ends with Until
}

// Draw sets the pictures. How many waited before is what waits now, less what came since, and what
// left since.
func (f *FlowChart) Draw(counts []FlowCount, span FlowSpan) {
	columns := int(span.Length / span.Interval)
	start := span.Until.UTC().Truncate(span.Interval).Add(span.Interval - span.Length)
	first := max(0, int(span.From.Sub(start)/span.Interval))
	f.Within, f.Cut = Took(span.Until.Sub(span.From).Round(time.Minute)), first > 0
	in, out, waited := make([]int64, columns), make([]int64, columns), make([]int64, columns)
	for _, c := range counts {
		if i := int(c.StartedAt.Sub(start) / span.Interval); i >= first && i < columns {
			in[i], out[i] = in[i]+c.In, out[i]+c.Out
		}
	}
	mostWaited, mostMoved, level := int64(0), int64(0), f.Waiting
	for i := columns - 1; i >= first; i-- {
		waited[i] = max(0, level)
		level += out[i] - in[i]
		f.In, f.Out = f.In+in[i], f.Out+out[i]
		mostWaited, mostMoved = max(mostWaited, waited[i]), max(mostMoved, in[i], out[i])
	}
	chart := Bars{From: start, MiddleAt: start.Add(span.Length / 2), Columns: columns, Height: ChartHeight}
	each := Took(span.Interval)
	f.Backlog, f.Rates = chart, chart
	f.Backlog.Top, f.Rates.Top = fmt.Sprint(mostWaited), fmt.Sprintf("%d in %s", mostMoved, each)
	f.Backlog.Text = fmt.Sprintf("How many %s were %s, within %s: %d now, at most %d", f.Entries, f.Waits, f.Within,
		f.Waiting, mostWaited)
	f.Rates.Text = fmt.Sprintf("How many %s were %s, upwards, and ended, downwards, within %s: %d and %d; at most %s",
		f.Entries, f.Came, f.Within, f.In, f.Out, f.Rates.Top)
	f.Backlog.Layers = []Layer{{Class: "busy"}}
	f.Rates.Layers = []Layer{{Class: "came"}, {Class: "ran"}}
	for i := first; i < columns; i++ {
		when := start.Add(time.Duration(i) * span.Interval).Format("2 Jan 15:04 UTC")
		f.Backlog.Layers[0].Path += BarOf(i, 0, waited[i], mostWaited)
		if waited[i] > 0 {
			f.Backlog.AddTip(i, "%s: %d %s at the end", when, waited[i], f.Waits)
		}
		f.Rates.Layers[0].Path += halfBar(i, in[i], mostMoved, -1)
		f.Rates.Layers[1].Path += halfBar(i, out[i], mostMoved, 1)
		if in[i]+out[i] > 0 {
			f.Rates.AddTip(i, "%s: %d %s, %d ended", when, in[i], f.Came, out[i])
		}
	}
	if f.Waiting < 0 {
		f.Backlog = Bars{}
	}
}

// halfBar returns the path of a bar from the middle: upwards if direction is -1, downwards if it is
// 1.
func halfBar(column int, n, most int64, direction int) string {
	if n <= 0 {
		return ""
	}
	height := direction * max(2, int(float64(ChartHeight/2)*float64(n)/float64(most)))
	return fmt.Sprintf("M%d %dv%dh1v%dz", column, ChartHeight/2, height, -height)
}
