package page

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/timer"
)

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
	case s.Stale, s.Outage != "":
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
	case s.Outage != "": // of another store than that which was read
		return "Outage"
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
	s := &status{Title: title, Store: "Store", ReadAt: r.ReadAt, Stale: r.Stale}
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

// manyRuns of a fleet, or cluster.RunsPerTimer of a timer, that are all of the last minute may not
// be all of that minute: no more are kept, or read.
const manyRuns = 100

// perMinute returns how many runs ended in the minute before an instant, and how many of them
// failed. runs are the latest, the newest first. A busy fleet, or timer, has more than these: then
// it is what it would be at their pace.
func perMinute(runs []cluster.HistoryRun, at time.Time) (all, failed string) {
	type count struct {
		runs, failed int
		span         time.Duration // within which they ended
	}
	timers, span, n := map[string]*count{}, time.Minute, 0
	for i := range runs {
		age := max(at.Sub(runs[i].EndedAt), time.Second)
		if age > time.Minute {
			break
		}
		t := timers[runs[i].Timer]
		if t == nil {
			t = &count{}
			timers[runs[i].Timer] = t
		}
		if n++; n == len(runs) && n >= manyRuns {
			span = age
		}
		t.runs, t.span = t.runs+1, age
		if !runs[i].Succeeded() {
			t.failed++
		}
	}
	var perMinute, failures float64
	for _, t := range timers {
		if t.runs < cluster.RunsPerTimer {
			t.span = span
		}
		scale := float64(time.Minute) / float64(t.span)
		perMinute += scale * float64(t.runs)
		failures += scale * float64(t.failed)
	}
	return fmt.Sprintf("%.0f", perMinute), fmt.Sprintf("%.0f", failures)
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
