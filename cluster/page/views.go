package page

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
)

// fleet are the pages about the fleet.
func (p *Page) fleet() Section {
	return Section{
		Links: []Link{{"Overview", ""}, {"Timers", "timers"}, {"Hosts", "hosts"}, {"Leases", "leases"},
			{"Leaders", "leaders"}},
		Views: map[string]View{"": p.overview, "timers": p.listTimers, "timer": p.timer, "run": p.run, "hosts": p.hosts,
			"leases": p.leases, "leaders": p.leaders},
		Templates: pagekit.Templates(templates), Actions: p.timerActions(),
	}
}

// history is what happened.
func (p *Page) history() Section {
	return Section{Links: []Link{{"Events", "events"}}, Views: map[string]View{"events": p.events},
		Templates: pagekit.Templates(templates)}
}

type hostsView struct {
	pagekit.Seen
	pager
	Filter filter         `json:"filter"`
	Hosts  []cluster.Host `json:"hosts"`
}

func (p *Page) hosts(ctx context.Context, q url.Values) (Content, error) {
	s := p.snapshot(ctx)
	var rows []cluster.Host
	for _, h := range s.Hosts {
		if matches(q, h.Holder.String(), h.AppVersion, h.Environment) &&
			(q.Get("state") == "" || q.Get("state") == string(h.State)) {
			rows = append(rows, h)
		}
	}
	v := hostsView{Seen: seenOf(s), Filter: filterOf(q, string(cluster.HostAlive), string(cluster.HostSuspect),
		string(cluster.HostGone), string(cluster.HostRefused))}
	v.Hosts, v.pager = pageOf("hosts", q, rows)
	return Content{"Hosts", v}, nil
}

type leasesView struct {
	pagekit.Seen
	pager
	Filter filter           `json:"filter"`
	Kind   string           `json:"kind,omitempty"`
	More   bool             `json:"more_leases,omitempty"` // than were read
	Kinds  []pagekit.Option `json:"-"`
	Leases []cluster.Lease  `json:"leases"`
}

func (p *Page) leases(ctx context.Context, q url.Values) (Content, error) {
	return p.leasesOf(ctx, q, "leases", "Leases", q.Get("kind")), nil
}

func (p *Page) leaders(ctx context.Context, q url.Values) (Content, error) {
	return p.leasesOf(ctx, q, "leaders", "Leaders", cluster.KindLeader), nil
}

// leasesOf shows the leases of a kind; "": of all.
func (p *Page) leasesOf(ctx context.Context, q url.Values, page, title, kind string) Content {
	s := p.snapshot(ctx)
	kinds, rows := map[string]bool{}, []cluster.Lease{}
	leases := s.Leases
	if s.Stale {
		leases = ended(slices.Clone(leases)) // others share them
	}
	for _, l := range leases {
		kinds[l.Kind] = true
		if (kind == "" || l.Kind == kind) && matches(q, l.Name, l.Holder.String()) &&
			(q.Get("state") == "" || q.Get("state") == string(l.State)) &&
			(q.Get("host") == "" || q.Get("host") == l.Holder.String()) {
			rows = append(rows, l)
		}
	}
	v := leasesView{Seen: seenOf(s), Kind: kind, More: s.MoreLeases, Filter: filterOf(q, string(cluster.LeaseHeld),
		string(cluster.LeaseReleased), string(cluster.LeaseEnded))}
	v.Leases, v.pager = pageOf(page, q, rows)
	v.Kinds = options(kinds, kind)
	return Content{title, v}
}

// ended returns leases as they are now: that of a host that nobody has heard of since may be over.
func ended(leases []cluster.Lease) []cluster.Lease {
	now := time.Now()
	for i := range leases {
		if l := &leases[i]; l.State == cluster.LeaseHeld && !l.ExpiresAt.IsZero() && l.ExpiresAt.Before(now) {
			l.State = cluster.LeaseEnded
		}
	}
	return leases
}

func options(values map[string]bool, chosen string) (list []pagekit.Option) {
	for value := range values {
		if value != "" {
			list = append(list, pagekit.Option{Value: value, Chosen: value == chosen})
		}
	}
	slices.SortFunc(list, func(a, b pagekit.Option) int { return strings.Compare(a.Value, b.Value) })
	return list
}

type eventsView struct {
	pagekit.Seen
	pager
	Filter filter                 `json:"filter"`
	Events []cluster.HistoryEvent `json:"events"`
}

func (p *Page) events(ctx context.Context, q url.Values) (Content, error) {
	s := p.snapshot(ctx)
	kinds, rows := map[string]bool{}, []cluster.HistoryEvent{}
	for _, e := range s.Events {
		kinds[string(e.Kind)] = true
		if matches(q, e.Name, e.Text, e.Holder.String()) && (q.Get("state") == "" || q.Get("state") == string(e.Kind)) {
			rows = append(rows, e)
		}
	}
	v := eventsView{Seen: seenOf(s), Filter: filterOf(q)}
	v.Filter.States, v.Filter.StateLabel = options(kinds, q.Get("state")), "Kind"
	v.Events, v.pager = pageOf("events", q, rows)
	return Content{"Events", v}, nil
}
