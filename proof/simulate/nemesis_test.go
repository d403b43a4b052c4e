package simulate

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// A nemesis causes faults in bursts, half of them close to due ticks.
type nemesis struct {
	w      *world
	places []*place
	random *rand.Rand
}

var fleetFaults = []string{"outage_refuses", "outage_hangs", "data_lost", "hosts_killed", "hosts_restarted",
	"limit_changed"}

func allFaults() []string {
	all := append(slices.Clone(fleetFaults), "handler_fails", "handler_panics", "handler_overstays", "handler_deaf")
	for _, f := range linkFaults {
		all = append(all, string(f))
	}
	return all
}

// between returns the pause between two bursts: an hour on average, or twenty minutes in a short
// simulation, which must also include every fault.
func (n *nemesis) between() time.Duration {
	average := time.Hour
	if n.w.report.Days < 5 {
		average = 20 * time.Minute
	}
	d := min(time.Duration(n.random.ExpFloat64()*float64(average)), 6*time.Hour)
	if n.random.IntN(2) == 0 {
		return d
	}
	// The burst begins within half a minute before a tick of the timer that holds the most.
	n.w.mu.Lock()
	grid, every := n.w.grid, n.w.timers["busy"].every
	n.w.mu.Unlock()
	next := every - time.Now().Add(d).Sub(grid)%every
	return max(0, d+next-time.Duration(n.random.Int64N(int64(30*time.Second))))
}

func (n *nemesis) lasts() time.Duration {
	up := func(from, to time.Duration) time.Duration {
		return from + time.Duration(n.random.Int64N(int64(to-from)))
	}
	switch d := n.random.IntN(10); {
	case d < 4:
		return up(time.Second, ttl)
	case d < 8:
		return up(ttl, 90*time.Second)
	default:
		return up(90*time.Second, 20*time.Minute)
	}
}

// rage causes faults until ctx ends. The last hour is quiet.
func (n *nemesis) rage(ctx context.Context) {
	end, _ := ctx.Deadline()
	for wait(ctx, n.between()) {
		if time.Until(end) < time.Hour {
			break
		}
		n.w.mu.Lock()
		n.w.report.Bursts++
		n.w.mu.Unlock()
		if n.random.IntN(2) == 0 {
			f := linkFaults[n.random.IntN(len(linkFaults))]
			d := n.lasts()
			for _, p := range n.victims() {
				if h := p.now(); h != nil {
					h.link.breakFor(f, d)
					n.count(string(f))
				}
			}
			continue
		}
		f := fleetFaults[n.random.IntN(len(fleetFaults))]
		n.count(f)
		switch f {
		case "outage_refuses":
			n.outage(ctx, refuses)
		case "outage_hangs":
			n.outage(ctx, hangs)
		case "data_lost":
			n.w.loseData()
		case "hosts_killed":
			for _, p := range n.victims() {
				p.order(kill)
			}
		case "hosts_restarted":
			for _, p := range n.victims() {
				p.order(restart)
			}
		case "limit_changed":
			n.w.mu.Lock()
			b := n.w.timers["resized"]
			b.limitNow = 6 - b.limitNow
			n.w.mu.Unlock()
			for _, p := range n.places {
				p.order(restart)
				wait(ctx, time.Duration(n.random.Int64N(int64(20*time.Second))))
			}
		}
	}
	<-ctx.Done()
}

func (n *nemesis) count(fault string) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.report.Faults.count(fault)
}

func (n *nemesis) outage(ctx context.Context, o outage) {
	n.w.setDown(o)
	wait(ctx, n.lasts())
	n.w.setDown(up)
}

// victims chooses up to a quarter of the hosts, two times in three preferring hosts with runs.
func (n *nemesis) victims() []*place {
	want := 1 + n.random.IntN(max(1, len(n.places)/4))
	order := n.random.Perm(len(n.places))
	if n.random.IntN(3) > 0 {
		holding := map[*host]bool{}
		n.w.mu.Lock()
		for _, b := range n.w.timers {
			for v := range b.runs {
				holding[v.host] = true
			}
		}
		n.w.mu.Unlock()
		slices.SortStableFunc(order, func(a, b int) int {
			rank := func(i int) int {
				if holding[n.places[i].now()] {
					return 0
				}
				return 1
			}
			return rank(a) - rank(b)
		})
	}
	var chosen []*place
	for _, i := range order[:want] {
		chosen = append(chosen, n.places[i])
	}
	return chosen
}
