package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
)

// clockSlack is how far clocks of hosts may be off: leases are not affected, but ticks start then.
const clockSlack = time.Second

// fleet looks at what the hosts say of themselves.
func (e *exam) fleet() {
	s := e.snapshot
	if e.unread != nil && !e.noRegistry {
		mend := "\"tickslot migrate validate\" says whether the tables are there; docs/sql.md has the rights that " +
			"are needed."
		if e.Store.Kind == "redis" {
			mend = "docs/redis.md, under Registry, has the rights that are needed."
		}
		e.ill("hosts", mend, "the registry cannot be read: %v", e.unread)
		return
	}
	var alive []cluster.Host
	for _, h := range s.Hosts {
		switch h.State {
		case cluster.HostAlive:
			alive = append(alive, h)
		case cluster.HostSuspect:
			e.ill("hosts", "See whether the process runs, and reaches the store: its log says so.", "%s is silent "+
				"for %v",
				h.Holder, s.ReadAt.Sub(h.SeenAt).Round(time.Second))
		}
	}
	if len(alive) == 0 {
		e.well("hosts", "none is registered: with package cluster this would compare them")
		return
	}
	before := len(e.findings)
	e.differ(alive, "version of tickslot", "Finish the roll-out: versions side by side are meant for its time only.",
		func(h cluster.Host) string { return h.Version })
	e.differ(alive, "version of the program", "Finish the roll-out, or see which deployment is stuck.",
		func(h cluster.Host) string { return h.AppVersion })
	e.differ(alive, "environment", "Give each environment a store, or a prefix, of its own: they take each other's "+
		"slots.",
		func(h cluster.Host) string { return h.Environment })
	e.limits(alive)
	for _, h := range alive {
		if h.ClockOffset.Abs() > clockSlack {
			e.ill("clocks", "Synchronize it with NTP.", "the clock of %s is %v off: leases are not affected, but "+
				"its ticks "+
				"start then", h.Holder, h.ClockOffset.Round(time.Millisecond))
		}
		for _, r := range h.Runners {
			if r.Err != "" {
				e.ill("hosts", "Its log says more.", "%s: %s: %s", h.Holder, strings.TrimSpace(r.Kind+" "+r.Name),
					r.Err)
			}
		}
	}
	if len(e.findings) == before {
		e.well("hosts", "%d alive, which agree on versions, environment and limits", len(alive))
	}
}

// differ tells if hosts differ in a text. Those that do not say it do not count.
func (e *exam) differ(hosts []cluster.Host, about, mend string, of func(cluster.Host) string) {
	counts := map[string]int{}
	for _, h := range hosts {
		if text := of(h); text != "" {
			counts[text]++
		}
	}
	if len(counts) < 2 {
		return
	}
	var list []string
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d × %s", counts[text], text))
	}
	e.ill(about, mend, "hosts differ: %s", strings.Join(list, ", "))
}

func (e *exam) limits(hosts []cluster.Host) {
	limits := map[string]map[int]int{}
	for _, h := range hosts {
		for _, t := range h.Timers {
			if limits[t.Name] == nil {
				limits[t.Name] = map[int]int{}
			}
			limits[t.Name][t.MaxConcurrency]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if len(limits[name]) < 2 {
			continue
		}
		var list []string
		for _, limit := range slices.Sorted(maps.Keys(limits[name])) {
			text := fmt.Sprint(limit)
			if limit < 0 {
				text = "none"
			}
			list = append(list, fmt.Sprintf("%d × %s", limits[name][limit], text))
		}
		e.ill("limits", "Let all hosts have the same MaxConcurrency: each keeps to its own, so the highest counts.",
			"hosts differ for timer %s: %s", name, strings.Join(list, ", "))
	}
}
