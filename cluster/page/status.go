package page

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer"
)

// A reading is what was read of the fleet for a page, and what is wrong with it.
type reading struct {
	*cluster.Snapshot
	rows    []timerRow
	unknown error   // why some pauses are not known
	outage  *outage // nil: there is none
	notices []Notice
}

// read reads what every page needs. It waits for all reads together as long as ctx has patience.
func (p *Page) read(ctx context.Context) *reading {
	p.snapshots.Begin("", p.readSnapshot)
	for i := range p.config.Sections {
		if p.config.Sections[i].Attention != nil {
			p.attention.Begin(fmt.Sprint(i), p.askSection(i))
		}
	}
	r := &reading{Snapshot: p.snapshot(ctx)}
	r.rows, r.unknown = p.timers.pausedRows(ctx, r.Snapshot)
	r.outage = p.outageOf(r.Snapshot, r.rows, p.timers.scheduler())
	c := &clock{}
	if r.Stale {
		c.now = r.ReadAt
	}
	if r.outage != nil {
		r.notices = append(r.notices, urgent("", "%s", r.outage.Text(time.Now())))
	}
	r.notices = slices.Concat(r.notices, r.storeNotices(), r.hostNotices(c), timerNotices(r.rows, r.outage != nil, c))
	for i := range p.config.Sections {
		if p.config.Sections[i].Attention != nil {
			r.notices = append(r.notices, p.sectionNotices(ctx, i)...)
		}
	}
	for i := range r.notices {
		r.notices[i].Text = mask.Text(r.notices[i].Text)
	}
	slices.SortStableFunc(r.notices, func(a, b Notice) int {
		switch {
		case a.Urgent == b.Urgent:
			return 0
		case a.Urgent:
			return -1
		default:
			return 1
		}
	})
	return r
}

// askSection returns what asks a section what needs attention.
func (p *Page) askSection(i int) func(context.Context) ([]Notice, error) {
	return func(ctx context.Context) (list []Notice, err error) {
		defer func() {
			if r := recover(); r != nil {
				list = []Notice{{Urgent: true, Text: fmt.Sprintf("A section of this page panicked: %v", r)}}
			}
		}()
		return p.config.Sections[i].Attention(ctx), nil
	}
}

// sectionNotices returns what a section last said, and that it has not answered yet.
func (p *Page) sectionNotices(ctx context.Context, i int) []Notice {
	said := p.attention.Get(ctx, fmt.Sprint(i), p.askSection(i))
	if said.Err == nil {
		return said.Value
	}
	name, url := "A section", ""
	if links := p.config.Sections[i].Links; len(links) > 0 {
		name, url = links[0].Title, links[0].Name
	}
	if said.At.IsZero() {
		return []Notice{notable(url, "%s: no answer yet.", name)}
	}
	return append(slices.Clone(said.Value), notable(url, "%s: no answer yet, so this is what it was %s.", name,
		(&clock{}).ago(said.At)))
}

// A status is what the bar above each page shows.
type status struct {
	Title    string // of the page
	Problems int    // urgent notices
	Alive    int    // hosts
	Hosts    int    // without those that have stopped in good order, and those that were refused
	Runs     string // per minute; "": not known
	Failures string
	Store    string
	ReadAt   time.Time
	Stale    bool
	Outage   string // in words; "": there is none
	Age      string // roughly, of what is shown during an outage
}

// A dot says how the fleet is, in the bar and in the icon of the page.
type dot string

const (
	dotWell  dot = "well"
	dotBad   dot = "bad"
	dotStale dot = "stale"
)

// Dot is the colour of the status.
func (s status) Dot() dot {
	switch {
	case s.Stale:
		return dotStale
	case s.Problems > 0:
		return dotBad
	}
	return dotWell
}

// Says is the status in words.
func (s status) Says() string {
	switch {
	case s.Stale && s.Age == "":
		return "Stale"
	case s.Stale:
		return "Stale, " + s.Age
	case s.Problems > 0:
		return pagekit.Count(s.Problems, "problem")
	}
	return "All well"
}

// Live says whether what is shown follows what happens.
func (s status) Live() string {
	if s.Stale {
		return s.Says()
	}
	return "Live"
}

// FullTitle is that of the window.
func (s status) FullTitle() string {
	title := s.Title + " · tickslot"
	if s.Problems > 0 {
		title = fmt.Sprintf("(%d) %s", s.Problems, title)
	}
	return title
}

// status returns the status of the fleet.
func (r *reading) status(title string, local *timer.Status) *status {
	s := &status{Title: title, Store: "Store", ReadAt: r.ReadAt, Stale: r.outage != nil}
	for _, n := range r.notices {
		if n.Urgent {
			s.Problems++
		}
	}
	for _, h := range r.Snapshot.Hosts {
		switch {
		case h.State == cluster.HostAlive:
			s.Alive++
			s.Hosts++
		case h.State != cluster.HostRefused && !h.Left:
			s.Hosts++
		}
	}
	if !r.ReadAt.IsZero() {
		s.Runs, s.Failures = perMinute(r.Runs, r.ReadAt)
	}
	if local != nil && local.Store.Name != "" {
		s.Store = storeName(local.Store.Name)
	}
	if r.outage != nil {
		now := time.Now()
		s.Outage = r.outage.Text(now)
		if age := now.Sub(r.ReadAt); !r.ReadAt.IsZero() && age >= shortOutage {
			s.Age = roughly(age)
		}
	}
	return s
}

// A busy fleet has run more within a minute than is read. Then what a minute has follows from these.
const manyRuns = 100

// perMinute returns how many runs ended in the minute before an instant, and how many of them
// failed. runs are the latest, the newest first.
func perMinute(runs []cluster.HistoryRun, at time.Time) (all, failed string) {
	n, failures := 0, 0
	for i := range runs {
		if at.Sub(runs[i].EndedAt) > time.Minute {
			break
		}
		n++
		if !runs[i].Succeeded() {
			failures++
		}
	}
	scale := 1.0
	if n == len(runs) && n >= manyRuns {
		scale = float64(time.Minute) / float64(max(time.Second, at.Sub(runs[n-1].EndedAt)))
	}
	show := func(n int) string { return fmt.Sprintf("%.0f", float64(n)*scale) }
	return show(n), show(failures)
}

// icons are the dots as icons of the page, by the names of their URLs.
var icons = map[string]string{
	iconOf(dotWell): "#1a7f37", iconOf(dotBad): "#cf222e", iconOf(dotStale): "#bf8700",
}

func iconOf(d dot) string { return "dot-" + string(d) + ".svg" }

// Icon is the URL of the icon of the page.
func (s status) Icon() string { return iconOf(s.Dot()) }

// icon returns a dot as an image.
func icon(color string) []byte {
	return []byte(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="` +
		color + `"/></svg>`)
}
