package cluster_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/clustertimer"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

var (
	_ cluster.Runner = (*leader.Elector)(nil)
	_ cluster.Runner = (*dlock.Session)(nil)
	_ cluster.Runner = (*timer.Scheduler)(nil)
)

// A scheduler, a session and an elector show their states. Other hosts see these states, the timers
// with their limits, and the runs.
//
// Fails when one of them shows nothing or a state that is not its own, or when a run is not
// recorded.
func TestPartsShowThemselves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h, other := f.start(cluster.Config{Locks: f.locks}), f.start(cluster.Config{})
		link := dlocktest.NewFaulty(f.locks)
		session, err := dlock.NewSession(link, dlock.SessionOptions{Holder: h.Holder()})
		if err != nil {
			t.Fatal(err)
		}
		elector, err := leader.New(session, leader.Role{Name: "relay",
			Run: func(ctx context.Context, _ *leader.Term) error { <-ctx.Done(); return nil }})
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		timers, err := timer.New(timer.Config{Store: h.Decorate(f.locks), Holder: h.Holder(),
			Hooks: clustertimer.Hooks(h.Registry, timer.Hooks{RunEnded: func(timer.RunResult) { ran++ }})},
			timer.Timer{Name: "report", Schedule: schedule.Every(time.Minute), MaxConcurrency: 3, MaxPerTick: 1,
				Run: func(context.Context) error { time.Sleep(time.Second); return errDown }},
			timer.Timer{Name: "free", MaxConcurrency: timer.NoLimit, Run: func(context.Context) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []cluster.Runner{session, elector, timers} {
			h.Add(r)
		}
		states := func() (found []string) {
			for _, o := range other.snapshot().Hosts {
				if o.Holder == h.Holder() {
					for _, r := range o.Runners {
						found = append(found, r.Kind+" "+r.Name+": "+r.State)
					}
				}
			}
			return found
		}
		time.Sleep(time.Minute)
		if got, want := states(), []string{"heartbeat : renewing", "heartbeat : renewing", "leader relay: stopped",
			"prober memory: waiting", "registry writer: writing", "scheduler : created"}; !slices.Equal(got, want) {
			t.Errorf("before they run: %q", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- elector.Run(ctx) }()
		go func() { ended <- timers.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		if got, want := states(), []string{"heartbeat : renewing", "heartbeat : renewing", "leader relay: leading",
			"prober memory: store_up", "registry writer: writing", "scheduler : running"}; !slices.Equal(got, want) {
			t.Errorf("while they run: %q", got)
		}
		link.Inject(dlocktest.Error(errDown))
		time.Sleep(time.Minute)
		if got := states(); !slices.Contains(got, "heartbeat : failing") &&
			!slices.Contains(got, "leader relay: store_down") {
			t.Errorf("while the store fails: %q", got)
		}
		link.Heal()
		s := other.snapshot()
		i := slices.IndexFunc(s.Hosts, func(o cluster.Host) bool { return o.Holder == h.Holder() })
		if got := s.Hosts[i].Timers; !slices.Equal(got, []cluster.TimerDetail{
			{Name: "free", MaxConcurrency: -1, OnStoreDown: "none"}, {Name: "report", MaxConcurrency: 3}}) {
			t.Errorf("%+v", got)
		}
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		runs, err := other.Runs(t.Context(), "report")
		if err != nil || len(runs) < 10 || len(runs) != ran {
			t.Fatalf("%d runs of %d, %v", len(runs), ran, err)
		}
		if r := runs[1]; r.Holder != h.Holder() || r.Took != time.Second || r.Outcome != "error" ||
			r.Err != errDown.Error() ||
			r.Tick.IsZero() || r.Attempts != 1 || r.StartedAt.Sub(r.Tick).Abs() > time.Second || r.Fence == 0 {
			t.Errorf("%+v", r)
		}
		for _, e := range s.Events {
			if e.Name == "timer:report" && (e.Kind == cluster.EventAcquired || e.Kind == cluster.EventReleased) {
				t.Errorf("the lease of a timer floods the events: %+v", e)
			}
		}
		f.end()
	})
}

// Viewers that read at the same moment all see the state of a runner.
//
// Fails when a runner that one viewer is asking appears stuck to the others.
func TestRunnersAreAskedByManyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.make(cluster.Config{})
		h.Add(runner(func(show func(kind, name, state string, changedAt time.Time, err error)) {
			time.Sleep(time.Millisecond)
			show("relay", "mail", "running", time.Time{}, nil)
		}))
		seen := make(chan []cluster.RunnerDetail)
		const viewers = 10
		for range viewers {
			go func() { seen <- h.snapshot().Runners }()
		}
		for range viewers {
			if r := <-seen; len(r) != 2 || r[1].State != "running" {
				t.Errorf("%+v", r)
			}
		}
	})
}
