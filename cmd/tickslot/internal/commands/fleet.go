package commands

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/dlock"
)

func (a *app) hosts(ctx context.Context, filter string) (*show.Table, error) {
	s, err := a.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	t := &show.Table{None: a.none("no host is registered", "none is known"),
		Columns: []string{"HOST", "STATE", "ENVIRONMENT", "VERSION", "SEEN", "UP", "TIMERS", "LAST ERROR", "+TICKSLOT",
			"+CLOCK", "+TTL"}}
	list, now := []cluster.Host{}, time.Now()
	for _, h := range s.Hosts {
		if !strings.Contains(h.Holder.String(), filter) {
			continue
		}
		list = append(list, h)
		t.Add(h.Holder.String(), fleet.HostState(h), h.Environment, h.AppVersion, show.Ago(h.SeenAt, now),
			show.Ago(h.StartedAt, now), fmt.Sprint(len(h.Timers)), fleet.HostFault(h), h.Version,
			show.Span(h.ClockOffset), show.Span(h.TTL))
	}
	t.Data = list
	return t, nil
}

// ofKind lists the held leases of a kind by their names without the kind.
func (a *app) ofKind(ctx context.Context, kind, title, fence, filter, none string) (*show.Table, error) {
	s, err := a.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	t := &show.Table{None: a.none(none, ""), Columns: []string{title, "SLOT", "HOLDER", "HOST", "HELD", "LEFT", fence}}
	list, now := []cluster.Lease{}, time.Now()
	for _, l := range s.HeldLeases(kind) {
		name := strings.TrimPrefix(l.Name, kind+":")
		if !strings.Contains(name, filter) {
			continue
		}
		list = append(list, l)
		t.Add(name, slotText(l), l.Holder.String(), stateText(l.HostState), show.Ago(l.AcquiredAt, now),
			left(l, now), fenceText(l.Fence))
	}
	t.Data = list
	a.warnMore(s)
	return t, nil
}

func (a *app) slots(ctx context.Context, filter string) (*show.Table, error) {
	return a.ofKind(ctx, cluster.KindTimer, "TIMER", "FENCE", filter, "no slot of a timer is held")
}

func (a *app) leaders(ctx context.Context, filter string) (*show.Table, error) {
	return a.ofKind(ctx, cluster.KindLeader, "ROLE", "TERM", filter, "nobody leads")
}

func (a *app) leases(ctx context.Context, filter string) (*show.Table, error) {
	s, err := a.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	t := &show.Table{None: a.none("no lease is known", ""),
		Columns: []string{"NAME", "SLOT", "KIND", "STATE", "HOLDER", "HOST", "HELD", "LEFT", "FENCE", "+RECORDED"}}
	list, now := []cluster.Lease{}, time.Now()
	for _, l := range s.Leases {
		if !strings.Contains(l.Name, filter) {
			continue
		}
		list = append(list, l)
		held := ""
		if l.State == cluster.LeaseHeld {
			held = show.Ago(l.AcquiredAt, now)
		}
		t.Add(l.Name, slotText(l), l.Kind, string(l.State), l.Holder.String(), stateText(l.HostState), held,
			left(l, now), fenceText(l.Fence), fmt.Sprint(l.Recorded))
	}
	t.Data = list
	a.warnMore(s)
	return t, nil
}

func (a *app) warnMore(s *cluster.Snapshot) {
	if s.MoreLeases {
		a.note("not all leases were read: some are not listed")
	}
}

func (a *app) events(ctx context.Context, filter string) (*show.Table, error) {
	s, err := a.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	t := &show.Table{None: a.none("no event is known", "none is recorded"),
		Columns: []string{"=AT", "KIND", "NAME", "SLOT", "HOLDER", "TEXT"}}
	list := []cluster.HistoryEvent{}
	for _, e := range s.Events {
		if !strings.Contains(e.Name, filter) {
			continue
		}
		list = append(list, e)
		slot := ""
		if e.Name != "" && e.Slot >= 0 {
			slot = fmt.Sprint(e.Slot)
		}
		t.Add(instant(e.At), string(e.Kind), e.Name, slot, holderText(e.Holder), e.Text)
	}
	t.Data = list
	return t, nil
}

// none returns the text for an empty list. If no process has ever written to the registry, the text
// adds the consequences, and that this may be the wrong registry.
func (a *app) none(text, follows string) string {
	if a.unregistered {
		text += " (" + a.noHosts(follows) + ")"
	}
	return text
}

// warnUnregistered notes what a list lacks if no process writes to the registry.
func (a *app) warnUnregistered(s *cluster.Snapshot, follows string) {
	if a.unregistered && len(s.Leases) > 0 {
		a.note("%s", a.noHosts(follows))
	}
}

func slotText(l cluster.Lease) string {
	if l.Mutex {
		return ""
	}
	return fmt.Sprint(l.Slot)
}

func stateText(state cluster.HostState) string {
	if state == cluster.HostUnknown {
		return "not registered"
	}
	return string(state)
}

func left(l cluster.Lease, now time.Time) string {
	if l.ExpiresAt.IsZero() || l.State != cluster.LeaseHeld {
		return ""
	}
	return show.Span(l.ExpiresAt.Sub(now))
}

func fenceText(f dlock.Fence) string {
	if f == 0 {
		return ""
	}
	return fmt.Sprint(f)
}

func holderText(h dlock.Holder) string {
	if h == (dlock.Holder{}) {
		return ""
	}
	return h.String()
}

func instant(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
