package page

import (
	"fmt"
	"math"
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
	o.Works = worksWithout(rows)
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

// worksWithout says what timers do while the store does not answer, and which limit is exceeded
// most.
func worksWithout(rows []timerRow) string {
	without, waiting, worst := 0, 0, (*timer.TimerStatus)(nil)
	for _, r := range rows {
		switch l := r.Local; {
		case r.waits():
			waiting++
		case l != nil && l.Fallback && r.Pause == nil:
			without++
			if more := excess(l); more > 0 && (worst == nil || more > excess(worst)) {
				worst = l
			}
		}
	}
	var texts []string
	if without > 0 {
		text := verb(without, "run") + " without it"
		if worst != nil {
			text += ": " + boundOf(worst)
		}
		texts = append(texts, text)
	}
	if waiting > 0 {
		texts = append(texts, verb(waiting, "wait")+" for it")
	}
	return strings.Join(texts, "; ")
}

// waits reports whether a timer does not run while the store does not answer.
func (t timerRow) waits() bool {
	return t.Local != nil && t.Pause == nil && t.Local.OnStoreDown == timer.StoreDownSkip && !t.Local.LocalOnly &&
		t.Local.MaxConcurrency != timer.NoLimit
}

// excess is how many runs more than its limit a timer may have at once in the fleet. A number that
// is not known counts as more than any that is.
func excess(t *timer.TimerStatus) int {
	switch {
	case t.MaxConcurrency <= 0:
		return 0
	case t.EffectiveLimit == timer.NoLimit:
		return math.MaxInt
	case t.EffectiveLimit == 0: // nobody has counted the hosts: there may be several
		return math.MaxInt - 1
	}
	return t.EffectiveLimit - t.MaxConcurrency
}

// boundOf says how many runs there may be at once.
func boundOf(t *timer.TimerStatus) string {
	switch t.EffectiveLimit {
	case timer.NoLimit:
		return fmt.Sprintf("any number of runs at once of %s instead of %d", t.Name, t.MaxConcurrency)
	case 0:
		return fmt.Sprintf("up to %d runs at once of %s on each host instead of %d in all", t.MaxPerHost, t.Name,
			t.MaxConcurrency)
	}
	return fmt.Sprintf("up to %d runs at once of %s instead of %d", t.EffectiveLimit, t.Name, t.MaxConcurrency)
}

// verb says what a number of timers do.
func verb(n int, does string) string {
	if n == 1 {
		return "1 timer " + does + "s"
	}
	return fmt.Sprintf("%d timers %s", n, does)
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
