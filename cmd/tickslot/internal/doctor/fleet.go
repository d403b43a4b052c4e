package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

// clockSlack is the accepted clock error of a host. Leases do not depend on clocks, but the start
// of a tick does.
const clockSlack = time.Second

// registryRights are the commands that docs/redis.md lists for the registry.
const registryRights = "+eval +evalsha +time +hget +hset +hsetnx +hdel +hgetall +hvals +hmget +hlen +del +zadd " +
	"+zcard +zrange +zrangebyscore +zrem +pexpire"

// refusedLately is how long a process of another environment is reported after it was refused.
const refusedLately = time.Hour

// fleet checks what the hosts report about themselves.
func (r *report) fleet() {
	s := r.snapshot
	if r.snapshotErr != nil && !r.noRegistry {
		fix := "\"tickslot migrate validate\" says whether the tables are there; docs/sql.md has the rights that " +
			"are needed."
		if r.Store.Kind == "redis" {
			fix = "If a right is missing: ACL SETUSER USER '~{PREFIX*' " + registryRights +
				" (docs/redis.md, under Registry)."
		}
		r.fail("hosts", fix, "the registry cannot be read: %s", r.Store.Say(r.snapshotErr))
		return
	}
	var alive []cluster.Host
	refused := map[dlock.Holder]bool{}
	for _, h := range s.Hosts {
		switch h.State {
		case cluster.HostAlive:
			alive = append(alive, h)
		case cluster.HostSuspect:
			r.warn("hosts", "See whether the process runs, and reaches the store: its log says so.",
				"%s is silent for %v",
				h.Holder, s.ReadAt.Sub(h.SeenAt).Round(time.Second))
		case cluster.HostRefused:
			refused[h.Holder] = true
			r.refused(h.Holder, "its environment is "+h.Environment, s.ReadAt.Sub(h.SeenAt))
		}
	}
	for _, e := range s.Events { // a process that restarts repeatedly may have no row at the moment
		if age := s.ReadAt.Sub(e.At); e.Kind == cluster.EventHostRefused && !refused[e.Holder] && age < refusedLately {
			refused[e.Holder] = true
			r.refused(e.Holder, e.Text, age)
		}
	}
	if len(alive) == 0 {
		r.add(SeverityNote, "hosts", "If there are hosts, see that "+
			"--prefix, --registry-prefix and --schema are theirs. A "+
			"fleet without package cluster has no registry.", "none is registered, so they cannot be compared")
		return
	}
	before := len(r.results)
	r.differ(alive, SeverityWarning, "version of tickslot",
		"Finish the roll-out: versions side by side are meant for its "+
			"time only.",
		func(h cluster.Host) string { return h.Version })
	r.differ(alive, SeverityWarning, "version of the program", "Finish the roll-out, or see which deployment is stuck.",
		func(h cluster.Host) string { return h.AppVersion })
	r.differ(alive, SeverityFailure, "environment",
		"Give each environment a store, or a prefix, of its own: they take each "+
			"other's slots.",
		func(h cluster.Host) string { return h.Environment })
	r.limits(alive)
	for _, h := range alive {
		if h.ClockOffset.Abs() > clockSlack {
			r.fail("clocks", "Synchronize it with NTP.", "the clock of %s is %v off: leases are not affected, but "+
				"its ticks start then", h.Holder, h.ClockOffset.Round(time.Millisecond))
		}
		for _, runner := range h.Runners {
			if runner.Err != "" {
				r.fail("hosts", "Its log says more.", "%s: %s: %s", h.Holder,
					strings.TrimSpace(runner.Kind+" "+runner.Name), runner.Err)
			}
		}
	}
	if len(r.results) == before {
		r.pass("hosts", "%d alive, which agree on versions, environment and limits", len(alive))
	}
}

// refused adds a failure for a process of another environment.
func (r *report) refused(h dlock.Holder, why string, ago time.Duration) {
	r.fail("environment", "Correct the setting from which that process takes its environment, or give its "+
		"environment a database, "+
		"schema or prefix of its own.", "%s was refused and takes no work: %s (%v ago)", h, why,
		ago.Round(time.Second))
}

// differ adds a result if hosts differ in a text. Hosts with an empty text do not count.
func (r *report) differ(hosts []cluster.Host, severity Severity, about, fix string, of func(cluster.Host) string) {
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
	r.add(severity, about, fix, "hosts differ: %s", strings.Join(list, ", "))
}

func (r *report) limits(hosts []cluster.Host) {
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
		r.warn("limits", "Let all hosts have the same MaxConcurrency: each keeps to its own, so the highest counts.",
			"hosts differ for timer %s: %s", name, strings.Join(list, ", "))
	}
}
