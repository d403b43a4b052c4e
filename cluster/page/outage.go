package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer"
)

// An outage is what there is to say while a store does not answer: once, and first.
type outage struct {
	Store string    // as people call it
	Since time.Time // as far as this process knows; zero: it never answered
	Why   string    // what it says, or the network; "": nothing, it is silent
	Works string    // what timers do meanwhile
}

// outageOf returns the outage of the store that does not answer; nil: all do. local is the
// scheduler of this process.
func (p *Page) outageOf(s *cluster.Snapshot, rows []timerRow, local *timer.Status) *outage {
	down := local != nil && local.Store.Name != "" && !local.Store.Up && local.Store.Err != ""
	if !down && !s.Stale {
		return nil
	}
	o := &outage{Store: "The store", Since: p.silentSince(s)}
	switch {
	case down:
		o.Store = storeName(local.Store.Name)
		if at := local.Store.ChangedAt; o.Since.IsZero() || at.Before(o.Since) {
			o.Since = at
		}
	case local != nil && local.Store.Up:
		o.Store = "The store of the registry"
	}
	if s.Stale && s.ReadAt.After(o.Since) { // it answered then
		o.Since = s.ReadAt
	}
	if s.Err != nil && s.Stale {
		o.Why = pagekit.Reason(mask.Text(fmt.Sprint(s.Err))) // which survives an error that panics
	} else if down {
		o.Why = pagekit.Reason(local.Store.Err)
	}
	o.Works = worksWithout(rows, down, local != nil && local.Store.Name != "")
	return o
}

// silentSince returns since when the registry of this process fails; zero: that is not known.
func (p *Page) silentSince(s *cluster.Snapshot) (since time.Time) {
	if at := p.failingSince.Load(); at != nil {
		since = *at
	}
	for _, r := range s.Runners {
		if r.Kind == "registry" && r.Err != "" && r.ChangedAt.Before(since) {
			since = r.ChangedAt
		}
	}
	return since
}

// storeName is what people call a store.
func storeName(name string) string {
	family, _, _ := strings.Cut(name, "-")
	switch family {
	case "redis":
		return "Redis"
	case "postgres":
		return "Postgres"
	case "mysql":
		return "MySQL"
	case "mariadb":
		return "MariaDB"
	case "sqlite":
		return "SQLite"
	case "sqlserver":
		return "SQL Server"
	case "redlock":
		return "Redis (redlock)"
	}
	return "The store"
}

// worksWithout says what timers do while the store of their locks does not answer. down: this
// process finds that it does not. If this process does not use the store, nobody knows: asked is
// false, and the text says so.
func worksWithout(rows []timerRow, down, asked bool) string {
	var list []cluster.TimerOutage
	for _, r := range rows {
		if o, ok := r.without(down || !asked); ok {
			list = append(list, o)
		}
	}
	text := cluster.OutageText(list)
	if text != "" && !asked {
		text = "Unless hosts reach the store of their locks, " + text
	}
	return text
}

// without returns what a timer does without the store; ok is false if it needs none, or none is
// missing. The scheduler of this process knows best, because the store may have several servers.
func (t timerRow) without(down bool) (o cluster.TimerOutage, ok bool) {
	if t.Pause != nil {
		return o, false
	}
	o, ok = t.fleet.Outage()
	l := t.Local
	switch {
	case l == nil:
		return o, ok && down
	case t.waits():
		return cluster.TimerOutage{Timer: t.Name}, down
	case !l.Fallback:
		return o, false
	}
	own := cluster.TimerOutage{Timer: t.Name, Limit: l.MaxConcurrency, MaxRuns: l.EffectiveLimit}
	if l.EffectiveLimit == 0 {
		own.MaxRuns, own.PerHost = l.MaxPerHost, true
	}
	// Hosts without a registry count in the store of locks only, and hosts that were cut off early
	// in the registry only.
	if ok && o.MaxRuns != 0 && (own.PerHost || o.MaxRuns < 0 || own.MaxRuns >= 0 && o.MaxRuns > own.MaxRuns) {
		return o, true
	}
	return own, true
}

// waits reports whether a timer does not run while the store does not answer.
func (t timerRow) waits() bool {
	return t.Local != nil && t.Pause == nil && t.Local.OnStoreDown == timer.StoreDownSkip && !t.Local.LocalOnly &&
		t.Local.MaxConcurrency != timer.NoLimit
}

// Text is all of it, in a sentence or two.
func (o *outage) Text(now time.Time) string {
	text := o.Store + " does not answer"
	switch {
	case o.Since.IsZero():
		text = o.Store + " has not answered yet"
	case now.Sub(o.Since) >= shortOutage:
		text = o.Store + " has not answered for " + roughly(now.Sub(o.Since))
	}
	if o.Why != "" {
		text += " (" + o.Why + ")"
	}
	text += "."
	if o.Works != "" {
		text += " " + o.Works + "."
	}
	text += " Bring it back: no process needs a restart."
	return text
}

// shortOutage is how long a store does not answer before it is said for how long.
const shortOutage = 10 * time.Second

// roughly shows a duration that grows, so that its text changes seldom: a screen reader reads it
// whenever it does.
func roughly(d time.Duration) string {
	if d < time.Minute {
		return pagekit.Took(d.Truncate(10 * time.Second))
	}
	return pagekit.Took(d.Truncate(time.Minute))
}
