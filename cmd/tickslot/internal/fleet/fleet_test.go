package fleet_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/dlock/driver"
)

// Paused timers are reported with the same words and urgency as on the operator's page. A limit of
// 0 is a pause, and a failing timer is no longer urgent once an operator has paused it.
//
// Fails when a limit of 0 has a different word, or when a pause does not take precedence over
// failures.
func TestPausedTimersAreNotUrgent(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &cluster.Snapshot{ReadAt: now, Hosts: []cluster.Host{{State: cluster.HostAlive, SeenAt: now}}}
	for _, name := range []string{"fails", "limited", "paused"} {
		s.Hosts[0].Timers = append(s.Hosts[0].Timers, cluster.TimerDetail{Name: name, MaxConcurrency: 1})
		for range 3 {
			s.Runs = append(s.Runs, cluster.HistoryRun{EndedAt: now,
				Run: cluster.Run{Timer: name, Outcome: "error", Err: "no paper"}})
		}
	}
	timers := fleet.Timers(s)
	none, ann := 0, driver.Cause{By: "ann", Note: "moving"}
	timers[1].Set = &fleet.Override{Cause: ann, Limit: &none}
	timers[2].Pause = &fleet.Override{Cause: ann, Left: time.Hour}
	var states []string
	for _, timer := range timers {
		timer.SetState()
		states = append(states, timer.State)
	}
	if want := []string{"failing", "paused", "paused"}; !slices.Equal(states, want) {
		t.Errorf("the states are %q, want %q", states, want)
	}
	want := []fleet.Notice{
		{Urgent: true, Text: "fails is failing since " + now.UTC().Format("15:04 UTC") +
			", 3 in a row; the latest: error: no paper"},
		{Text: "limited is paused by ann: moving, until its limit, which is 0, is changed"},
		{Text: "paused is paused by ann: moving, for another 1h0m"},
	}
	if got := fleet.Notices(s, timers, now); !slices.Equal(got, want) {
		t.Errorf("the notices are %+v, want %+v", got, want)
	}
}

// If hosts differ in a limit, the most frequent limit is shown, even if that is no limit.
//
// Fails when the command line shows another limit than the page.
func TestLimitOfHostsThatDiffer(t *testing.T) {
	t.Parallel()
	s := &cluster.Snapshot{}
	for _, limit := range []int{-1, -1, 5} {
		s.Hosts = append(s.Hosts, cluster.Host{State: cluster.HostAlive,
			Timers: []cluster.TimerDetail{{Name: "a", MaxConcurrency: limit}}})
	}
	a := fleet.Timers(s)[0]
	if a.LimitText() != "none (hosts differ)" || a.Slots() != -1 {
		t.Errorf("%q, %d slots", a.LimitText(), a.Slots())
	}
	s.Hosts = s.Hosts[1:]
	s.Hosts = append(s.Hosts, s.Hosts[1])
	if a = fleet.Timers(s)[0]; a.LimitText() != "5 (hosts differ)" || a.Slots() != 5 {
		t.Errorf("%q, %d slots", a.LimitText(), a.Slots())
	}
}
