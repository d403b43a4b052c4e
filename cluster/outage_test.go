package cluster_test

import (
	"testing"

	"github.com/tickslot/tickslot/cluster"
)

// What timers do without the store is the sum of what their live hosts say. The sentence names the
// timer that may exceed its limit most.
//
// Fails when a host that is gone counts, when a timer that does not need the store counts, or when
// one host without a limit is one among others.
func TestWhatTimersDoWithoutTheStore(t *testing.T) {
	t.Parallel()
	host := func(state cluster.HostState, timers ...cluster.TimerDetail) cluster.Host {
		return cluster.Host{State: state, Timers: timers}
	}
	mail := cluster.TimerDetail{Name: "mail", MaxConcurrency: 3}
	two := cluster.TimerDetail{Name: "mail", MaxConcurrency: 3, MaxPerHost: 2}
	some := cluster.TimerDetail{Name: "sync", MaxConcurrency: 2, MaxPerHost: 1}
	bill := cluster.TimerDetail{Name: "bill", MaxConcurrency: 1, OnStoreDown: "skip"}
	local := cluster.TimerDetail{Name: "local", MaxConcurrency: 1, OnStoreDown: "none"}
	any := cluster.TimerDetail{Name: "sync", MaxConcurrency: 2, MaxPerHost: -1}
	for _, c := range []struct {
		hosts []cluster.Host
		want  string
	}{
		{nil, ""},
		{[]cluster.Host{host(cluster.HostAlive, local)}, ""},
		{[]cluster.Host{host(cluster.HostAlive, mail)}, "1 timer runs without it"},
		{[]cluster.Host{host(cluster.HostAlive, bill)}, "1 timer waits for it"},
		{[]cluster.Host{host(cluster.HostAlive, mail, some, bill), host(cluster.HostSuspect, two, some, bill, local),
			host(cluster.HostGone, mail)},
			"2 timers run without it: up to 5 runs at once of mail instead of 3; 1 timer waits for it"},
		{[]cluster.Host{host(cluster.HostAlive, mail, any), host(cluster.HostAlive, mail, some)},
			"2 timers run without it: any number of runs at once of sync instead of 2"},
	} {
		var list []cluster.TimerOutage
		for _, f := range (&cluster.Snapshot{Hosts: c.hosts}).Timers() {
			if o, ok := f.Outage(); ok {
				list = append(list, o)
			}
		}
		if got := cluster.OutageText(list); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if got := (cluster.TimerOutage{Timer: "mail", Limit: 3, MaxRuns: 2, PerHost: true}).Text(); got !=
		"up to 2 runs at once of mail on each host instead of 3 in all" {
		t.Error(got)
	}
}
