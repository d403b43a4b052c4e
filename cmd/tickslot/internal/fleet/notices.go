package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
)

// clockAlarm is the clock error from which there is a notice.
const clockAlarm = time.Second

// A Notice describes something that needs attention.
type Notice struct {
	Urgent bool
	Text   string
}

// Notices returns what needs attention, urgent notices first.
func Notices(s *cluster.Snapshot, timers []*Timer, now time.Time) []Notice {
	n := &notices{now: now}
	if len(s.OtherEnvironments) > 0 {
		n.urgent("hosts of other environments share this store: %s", strings.Join(s.OtherEnvironments, ", "))
	}
	n.hosts(s)
	for _, t := range timers {
		n.timer(t)
	}
	slices.SortStableFunc(n.list, func(a, b Notice) int {
		switch {
		case a.Urgent == b.Urgent:
			return 0
		case a.Urgent:
			return -1
		}
		return 1
	})
	return n.list
}

type notices struct {
	now  time.Time
	list []Notice
}

func (n *notices) urgent(format string, args ...any) {
	n.list = append(n.list, Notice{Urgent: true, Text: fmt.Sprintf(format, args...)})
}

func (n *notices) notable(format string, args ...any) {
	n.list = append(n.list, Notice{Text: fmt.Sprintf(format, args...)})
}

func (n *notices) hosts(s *cluster.Snapshot) {
	versions, environments := map[string]bool{}, map[string]bool{}
	for _, h := range s.Hosts {
		switch {
		case h.State == cluster.HostSuspect:
			n.urgent("%s is silent: its last heartbeat was %s ago", h.Holder, show.Ago(h.SeenAt, n.now))
		case h.State == cluster.HostGone && !h.Left:
			n.urgent("%s is gone without having stopped in good order: its last heartbeat was %s ago%s", h.Holder,
				show.Ago(h.SeenAt, n.now), stillHeld(s, h))
		case h.State == cluster.HostRefused:
			n.urgent("%s is of environment %s and was refused: it takes no work. Its last heartbeat was %s ago",
				h.Holder, h.Environment, show.Ago(h.SeenAt, n.now))
		}
		if !h.State.Live() {
			continue
		}
		versions[h.AppVersion+" (tickslot "+h.Version+")"] = true
		environments[h.Environment] = true
		if h.ClockOffset.Abs() > clockAlarm {
			n.notable("the clock of %s is %s off the store's", h.Holder, show.Span(h.ClockOffset))
		}
		for _, r := range h.Runners {
			if r.Err != "" {
				n.urgent("%s: %s: %s", h.Holder, strings.TrimSpace(r.Kind+" "+r.Name), r.Err)
			}
		}
	}
	if len(versions) > 1 {
		n.notable("hosts run %d versions: %s", len(versions), strings.Join(slices.Sorted(maps.Keys(versions)), ", "))
	}
	delete(environments, "")
	if len(environments) > 1 {
		n.urgent("hosts are of %d environments: %s", len(environments),
			strings.Join(slices.Sorted(maps.Keys(environments)), ", "))
	}
}

// stillHeld describes how many leases a host that is gone still holds.
func stillHeld(s *cluster.Snapshot, h cluster.Host) string {
	held := 0
	for _, l := range s.Leases {
		if l.State == cluster.LeaseHeld && l.Holder == h.Holder {
			held++
		}
	}
	switch held {
	case 0:
		return ""
	case 1:
		return ", and it still has a lease"
	}
	return fmt.Sprintf(", and it still has %d leases", held)
}

func (n *notices) timer(t *Timer) {
	switch { // in the order of SetState: a paused timer is not urgent, even if it failed before
	case t.Pause != nil:
		n.notable("%s is paused %s, for another %s", t.Name, t.Pause.Cause, show.Span(t.Pause.Left))
	case t.Set != nil && *t.Set.Limit == 0:
		n.notable("%s is paused %s, until its limit, which is 0, is changed", t.Name, t.Set.Cause)
	case t.Failed >= cluster.FailingRuns && t.Last != nil:
		n.urgent("%s is %s; the latest: %s", t.Name, t.FailingText(n.now),
			strings.TrimRight(t.Last.Outcome+": "+t.Last.Err, ": "))
	}
	if limit := t.Slots(); limit > 0 && len(t.Held) >= limit {
		oldest := slices.MinFunc(t.Held, func(a, b cluster.Lease) int { return a.AcquiredAt.Compare(b.AcquiredAt) })
		if held := n.now.Sub(oldest.AcquiredAt); held > longHeld {
			n.notable("%s: all %d slots are held, slot %d by %s for %s", t.Name, limit, oldest.Slot, oldest.Holder.Host,
				show.Span(held))
		}
	}
	if len(t.Differ) > 0 {
		n.notable("hosts differ in the limit of %s", t.Name)
	}
}

// longHeld is how long all slots of a timer may be held without a notice.
const longHeld = time.Hour
