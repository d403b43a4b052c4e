package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"

	"github.com/tickslot/tickslot/cluster"
)

const (
	maxLanes    = 32 // slots that have a lane
	laneHeight  = 22 // px
	hostColors  = 8  // classes h0 to h7
	plotHeight  = 120
	shortWindow = 10 * time.Minute
)

// A plot is a picture over time, as wide as there is room: X and Width are per cent, Y and Height
// pixels.
type plot struct {
	From   time.Time
	EndsAt time.Time // where the picture ends; zero: now
	Height int
	Labels []string // of lanes
	Bars   []plotBar
	Hosts  []hostColor
	More   int    // lanes that are not shown
	Top    string // what the upper edge means
}

type plotBar struct {
	X, Width  float64
	Y, Height int
	Class     string
	Title     string
}

// A hostColor is what the runs of a host look like.
type hostColor struct{ Host, Class string }

// windowOf returns since when a picture of runs shows them: the last ten minutes, or longer if
// there is nothing in these; not from before what is known.
func windowOf(runs []cluster.HistoryRun, held []*cluster.Lease, now time.Time) time.Time {
	if len(runs) == 0 {
		return now.Add(-shortWindow)
	}
	oldest, newest := runs[0].StartedAt, runs[0].EndedAt
	for _, r := range runs {
		oldest = minTime(oldest, r.StartedAt)
	}
	window := shortWindow
	for _, longer := range []time.Duration{time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
		if len(held) > 0 || now.Sub(newest) < window {
			break
		}
		window = longer
	}
	if from := now.Add(-window); from.After(oldest) {
		return from
	}
	return minTime(oldest, now.Add(-time.Minute))
}

// since returns the runs that ended since then.
func since(runs []cluster.HistoryRun, from time.Time) []cluster.HistoryRun {
	return slices.DeleteFunc(slices.Clone(runs), func(r cluster.HistoryRun) bool { return r.EndedAt.Before(from) })
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// percentOf returns where an instant is, from 0 to 100.
func percentOf(t, from, now time.Time) float64 {
	part := 100 * float64(t.Sub(from)) / float64(max(now.Sub(from), 1))
	return float64(int(100*min(100, max(0, part)))) / 100
}

// colorsOf gives each host of some runs and leases a color, by name.
func colorsOf(runs []cluster.HistoryRun, held []*cluster.Lease) (list []hostColor) {
	var hosts []string
	for _, r := range runs {
		hosts = append(hosts, r.Holder.Host)
	}
	for _, l := range held {
		hosts = append(hosts, l.Holder.Host)
	}
	slices.Sort(hosts)
	for i, h := range slices.Compact(hosts) {
		list = append(list, hostColor{h, fmt.Sprint("h", i%hostColors)})
	}
	return list
}

// lanesOf draws who has had which slot: a lane for each slot, and further ones for runs without.
func lanesOf(t *timerRow, runs []cluster.HistoryRun, c *clock) plot {
	now := c.time()
	p := plot{From: windowOf(runs, t.fleet.Held, now), EndsAt: c.now}
	color := map[string]string{}
	slots := 0
	if t.Limit != nil {
		slots = *t.Limit
	}
	inWindow := since(runs, p.From)
	for _, r := range inWindow {
		slots = max(slots, r.Slot+1)
	}
	for _, l := range t.fleet.Held {
		slots = max(slots, l.Slot+1)
	}
	p.Hosts = colorsOf(inWindow, t.fleet.Held)
	for _, h := range p.Hosts {
		color[h.Host] = h.Class
	}
	shown := min(slots, maxLanes)
	p.More = slots - shown
	for slot := range shown {
		p.Labels = append(p.Labels, fmt.Sprint("slot ", slot))
	}
	var freeAt []time.Time // of the lanes for runs without a slot
	add := func(lane int, from, until time.Time, class, title string) {
		x := percentOf(from, p.From, now)
		p.Bars = append(p.Bars, plotBar{x, max(0.2, percentOf(until, p.From, now)-x), lane*laneHeight + 2,
			laneHeight - 6, class, title})
	}
	slices.SortFunc(inWindow, func(a, b cluster.HistoryRun) int { return a.StartedAt.Compare(b.StartedAt) })
	for _, r := range inWindow {
		lane := r.Slot
		if r.Slot < 0 {
			i := slices.IndexFunc(freeAt, func(t time.Time) bool { return !t.After(r.StartedAt) })
			if i < 0 {
				i = len(freeAt)
				freeAt = append(freeAt, time.Time{})
			}
			freeAt[i] = r.EndedAt
			lane = shown + i
		} else if lane >= shown {
			continue
		}
		class := color[r.Holder.Host]
		if !r.Succeeded() {
			class += " not-ok"
		}
		add(lane, r.StartedAt, r.EndedAt, class, strings.TrimSpace(fmt.Sprintf("%s on %s, took %s, ended %s. %s",
			r.Outcome, r.Holder.Host, pagekit.Took(r.Took), c.ago(r.EndedAt), r.Err)))
	}
	for _, l := range t.fleet.Held {
		if l.Slot < shown {
			add(l.Slot, l.AcquiredAt, now, color[l.Holder.Host]+" going-on", fmt.Sprintf("held by %s for %s",
				l.Holder.Host, pagekit.Took(now.Sub(l.AcquiredAt))))
		}
	}
	for range freeAt {
		p.Labels = append(p.Labels, "no slot")
	}
	p.Height = laneHeight * len(p.Labels)
	return p
}

// durationsOf draws how long runs took, by when they ended.
func durationsOf(runs []cluster.HistoryRun, c *clock) plot {
	now := c.time()
	p := plot{From: windowOf(runs, nil, now), EndsAt: c.now, Height: plotHeight}
	var longest time.Duration
	inWindow := since(runs, p.From)
	for _, r := range inWindow {
		longest = max(longest, r.Took)
	}
	p.Top = pagekit.Took(longest)
	for _, r := range inWindow {
		class := "ran"
		if !r.Succeeded() {
			class = "failed"
		}
		y := plotHeight - 6
		if longest > 0 {
			y -= int(float64(plotHeight-12) * float64(r.Took) / float64(longest))
		}
		p.Bars = append(p.Bars, plotBar{X: percentOf(r.EndedAt, p.From, now), Y: y, Class: class,
			Title: fmt.Sprintf("%s, took %s, ended %s", r.Outcome, pagekit.Took(r.Took), c.ago(r.EndedAt))})
	}
	return p
}

// A failureGroup is runs that ended with the same error.
type failureGroup struct {
	Outcome string    `json:"outcome"`
	Err     string    `json:"err,omitempty"`
	Count   int       `json:"count"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
	Hosts   []string  `json:"hosts"`
}

// failuresOf groups runs that failed by their errors, the latest first.
func failuresOf(runs []cluster.HistoryRun) []failureGroup {
	groups := []failureGroup{}
	for _, r := range runs {
		if r.Succeeded() {
			continue
		}
		i := slices.IndexFunc(groups, func(g failureGroup) bool { return g.Outcome == r.Outcome && g.Err == r.Err })
		if i < 0 {
			i = len(groups)
			groups = append(groups, failureGroup{Outcome: r.Outcome, Err: r.Err, FirstAt: r.EndedAt,
				LastAt: r.EndedAt})
		}
		g := &groups[i]
		g.Count++
		g.FirstAt = minTime(g.FirstAt, r.EndedAt)
		if r.EndedAt.After(g.LastAt) {
			g.LastAt = r.EndedAt
		}
		if !slices.Contains(g.Hosts, r.Holder.Host) {
			g.Hosts = append(g.Hosts, r.Holder.Host)
		}
	}
	for _, g := range groups {
		slices.Sort(g.Hosts)
	}
	slices.SortStableFunc(groups, func(a, b failureGroup) int {
		return cmp.Or(b.LastAt.Compare(a.LastAt), b.Count-a.Count)
	})
	return groups
}
