package page

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
)

// A timersView is the list of timers.
type timersView struct {
	pagekit.Seen
	pager
	Filter  filter     `json:"filter"`
	Timers  []timerRow `json:"timers"`
	Tabs    []tab      `json:"-"`
	Heads   []head     `json:"-"`
	All     string     `json:"-"` // URL without a filter
	None    bool       `json:"-"` // no timer is known at all
	Sort    string     `json:"-"`
	Control bool       `json:"-"` // there is one
}

// A tab is a link to the timers in a state.
type tab struct {
	Title   string
	Count   int
	URL     string
	Current bool
}

// tabStates are the tabs after that of all timers. Those at the front are there also if they are
// empty, so that the others do not move.
var tabStates = []struct {
	title  string
	state  cluster.TimerState
	always bool
}{{"Failing", cluster.TimerFailing, true}, {"Paused", cluster.TimerPaused, true},
	{"Running", cluster.TimerRunning, true}, {"Full", stateFull, false}, {"Blackout", stateBlackout, false},
	{"Without the store", stateNoStore, false}, {"Never ran", stateNever, false}, {"Idle", cluster.TimerIdle, false},
	{"No host", cluster.TimerNoHost, false}}

// A head is a column that sorts when it is clicked.
type head struct {
	Title string
	Class string
	URL   string
	Aria  string // ascending, descending, or "": it does not sort now
}

// A column is what timers can be sorted by.
type column struct {
	name, title string
	number      bool
	compare     func(a, b *timerRow) int
}

// columns are those of the list. Each compares such that what is looked for comes first.
var columns = []column{
	{"name", "Timer", false, func(a, b *timerRow) int { return strings.Compare(a.Name, b.Name) }},
	{"state", "State", false, func(a, b *timerRow) int { return cmp.Compare(a.attention(), b.attention()) }},
	{"slots", "Slots", false, func(a, b *timerRow) int { return cmp.Compare(b.Held, a.Held) }},
	{"running", "Running for", true, func(a, b *timerRow) int {
		return compareTimes(a.RunningFrom(), b.RunningFrom())
	}},
	{"last", "Last run", true, func(a, b *timerRow) int { return compareTimes(b.lastEnd(), a.lastEnd()) }},
	{"p95", "p95", true, func(a, b *timerRow) int { return cmp.Compare(b.P95Took(), a.P95Took()) }},
	{"next", "Next", true, func(a, b *timerRow) int { return compareTimes(a.NextAt(), b.NextAt()) }},
}

// compareTimes has what is not known come last.
func compareTimes(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return -a.Compare(b)
	}
	return a.Compare(b)
}

func (p *Page) listTimers(ctx context.Context, q url.Values) (Content, error) {
	s := p.snapshot(ctx)
	all, err := p.timers.pausedRows(ctx, s)
	v := timersView{Seen: seenOf(s, err), Filter: filterOf(q), None: len(all) == 0, Sort: q.Get("sort"),
		Control: p.config.Control != nil, Heads: headsOf(q), All: "timers"}
	found := slices.DeleteFunc(slices.Clone(all), func(r timerRow) bool { return !matches(q, r.texts()...) })
	v.Tabs = tabsOf(q, found)
	if state := cluster.TimerState(q.Get("state")); state != "" {
		found = slices.DeleteFunc(found, func(r timerRow) bool { return !r.in(state) })
	}
	sortRows(found, v.Sort)
	v.Timers, v.pager = pageOf("timers", q, found)
	return Content{"Timers", v}, nil
}

// with returns the URL of the list with another value: not that of another page of it.
func with(q url.Values, name, value string) string {
	pairs := []string{name, value}
	for _, other := range []string{"q", "state", "sort"} {
		if other != name {
			pairs = append(pairs, other, q.Get(other))
		}
	}
	return URL("timers", pairs...)
}

func tabsOf(q url.Values, rows []timerRow) []tab {
	current := cluster.TimerState(q.Get("state"))
	list := []tab{{"All", len(rows), with(q, "state", ""), current == ""}}
	for _, s := range tabStates {
		t := tab{s.title, 0, with(q, "state", string(s.state)), current == s.state}
		for i := range rows {
			if rows[i].in(s.state) {
				t.Count++
			}
		}
		if t.Count > 0 || t.Current || s.always {
			list = append(list, t)
		}
	}
	return list
}

func headsOf(q url.Values) (list []head) {
	sorted := q.Get("sort")
	for _, c := range columns {
		h := head{Title: c.title, URL: with(q, "sort", c.name)}
		if c.number {
			h.Class = "num"
		}
		switch sorted {
		case c.name:
			h.URL, h.Aria = with(q, "sort", "-"+c.name), "ascending"
		case "-" + c.name:
			h.Aria = "descending"
		}
		list = append(list, h)
	}
	return list
}

// sortRows sorts by a column, or with "-" before it the other way round; by default what needs
// attention comes first. What starts and ends all the time does not move a row then.
func sortRows(rows []timerRow, by string) {
	name, reversed := strings.CutPrefix(by, "-")
	compare := columns[1].compare
	for _, c := range columns {
		if c.name == name {
			compare = c.compare
		}
	}
	slices.SortStableFunc(rows, func(a, b timerRow) int { // they are by name
		if reversed {
			return compare(&b, &a)
		}
		return compare(&a, &b)
	})
}
