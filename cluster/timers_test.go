package cluster_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/tickslot/tickslot/cluster"
)

// A snapshot lists each timer once, with its data from hosts, leases and runs. All views agree on
// whether it is failing, running or idle.
//
// Fails when a host that is gone counts, or an ended lease, or a failure before a success.
func TestTimersOfASnapshot(t *testing.T) {
	t.Parallel()
	has := func(state cluster.HostState, timers ...cluster.TimerDetail) cluster.Host {
		return cluster.Host{State: state, Timers: timers}
	}
	runs := func(name string, outcomes ...string) (list []cluster.HistoryRun) {
		for _, o := range outcomes {
			list = append(list, cluster.HistoryRun{Run: cluster.Run{Timer: name, Outcome: o}})
		}
		return list
	}
	s := &cluster.Snapshot{
		Hosts: []cluster.Host{
			has(cluster.HostAlive, cluster.TimerDetail{Name: "rolling", MaxConcurrency: 3},
				cluster.TimerDetail{Name: "free", MaxConcurrency: -1}),
			has(cluster.HostSuspect, cluster.TimerDetail{Name: "rolling", MaxConcurrency: 5}),
			has(cluster.HostAlive, cluster.TimerDetail{Name: "rolling", MaxConcurrency: 5}),
			has(cluster.HostGone, cluster.TimerDetail{Name: "rolling", MaxConcurrency: 7}),
		},
		Leases: []cluster.Lease{
			{Name: "timer:rolling", Slot: 1, State: cluster.LeaseHeld, Kind: "of the user's own"},
			{Name: "timer:rolling", Slot: 2, State: cluster.LeaseReleased},
			{Name: "leader:x", State: cluster.LeaseHeld},
		},
		Runs: slices.Concat(runs("failing", "error", "panic", "timeout", "ok", "error"),
			runs("free", "error", "error", "ok")),
	}
	all := s.Timers()
	var names []string
	byName := map[string]*cluster.FleetTimer{}
	for _, f := range all {
		names = append(names, f.Name)
		byName[f.Name] = f
	}
	if !slices.Equal(names, []string{"failing", "free", "rolling"}) {
		t.Fatal(names)
	}
	rolling, free, failing := byName["rolling"], byName["free"], byName["failing"]
	if rolling.Hosts != 3 || !maps.Equal(rolling.Limits, map[int]int{3: 1, 5: 2}) || rolling.MaxConcurrency() != 5 ||
		!rolling.HostsDiffer() || len(rolling.Held) != 1 || rolling.Last() != nil {
		t.Errorf("%+v", rolling)
	}
	if free.MaxConcurrency() != -1 || free.HostsDiffer() || free.Failed() != 2 || free.Last().Outcome != "error" {
		t.Errorf("%+v", free)
	}
	gone := &cluster.FleetTimer{Name: "gone"}
	if failing.Failed() != 3 || failing.Hosts != 0 || gone.Failed() != 0 {
		t.Errorf("%+v", failing)
	}
	for _, c := range []struct {
		of           *cluster.FleetTimer
		paused, late bool
		want         cluster.TimerState
	}{
		{failing, true, true, cluster.TimerPaused}, {failing, false, false, cluster.TimerFailing},
		{free, false, true, cluster.TimerFailing}, {free, false, false, cluster.TimerIdle},
		{rolling, false, false, cluster.TimerRunning},
		{gone, false, false, cluster.TimerNoHost},
	} {
		if got := c.of.State(c.paused, c.late); got != c.want {
			t.Errorf("%s, paused %t, late %t: %s, want %s", c.of.Name, c.paused, c.late, got, c.want)
		}
	}
}
