package cluster_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// isRefusal reports whether an error names the environment of the store and that of this process,
// and describes the repair.
func isRefusal(err error) bool {
	return err != nil && strings.Contains(err.Error(), `belongs to environment "production"`) &&
		strings.Contains(err.Error(), `this process is of "staging"`) &&
		strings.Contains(err.Error(), "Config.Environment") && strings.Contains(err.Error(), "prefix of its own")
}

// A host whose environment differs from that of the others is refused, and every host sees it, even
// after it has stopped. If two start at the same time, at least one is refused. Running hosts
// continue.
//
// Fails when a refused host appears alive for a moment or disappears when it stops, when a gone or
// refused host counts as a live one of another environment, or when two hosts that start at the
// same time read before they write.
func TestEnvironmentsDoNotMix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		a := f.start(cluster.Config{Environment: "production"})
		old := f.start(cluster.Config{}) // without an environment
		b := f.start(cluster.Config{Environment: "staging"})
		if _, err := b.Admit(t.Context(), nil); !isRefusal(err) {
			t.Errorf("it is admitted: %v", err)
		}
		if n := strings.Count(b.log.String(), "level="); n != 1 || !strings.Contains(b.log.String(), "level=ERROR") {
			t.Errorf("one line, at ERROR, is wanted:\n%s", b.log.String())
		}
		for _, batch := range b.link.batches() {
			if !strings.Contains(string(batch.Host.Detail), `"refused":true`) && batch.Host.Detail != nil {
				t.Errorf("it was written as if it was alive: %s", batch.Host.Detail)
			}
		}
		shown := func(when string) {
			t.Helper()
			s := a.snapshot()
			if state := a.state(b); state != cluster.HostRefused || len(s.OtherEnvironments) != 0 {
				t.Errorf("%s: it is %q, others are %v", when, state, s.OtherEnvironments)
			}
		}
		time.Sleep(cluster.DefaultSnapshotAge) // viewers share a read for that long
		shown("at once")
		time.Sleep(10 * time.Minute)
		shown("after ten minutes")
		b.cancel()
		if err := <-b.ended; !isRefusal(err) {
			t.Errorf("Run returns %v", err)
		}
		b.cancel = nil
		time.Sleep(time.Minute)
		shown("after it has stopped")
		if e := a.events(cluster.EventHostRefused); len(e) != 1 || e[0].Holder != b.Holder() {
			t.Errorf("events %+v", e)
		}
		if a.log.String() != "" {
			t.Errorf("the other host says %s", a.log.String())
		}
		a.stop()
		old.stop()

		c := f.make(cluster.Config{Environment: "staging"}) // production is gone
		d := f.make(cluster.Config{Environment: "production"})
		refused := 0
		for _, h := range []*host{c, d} {
			ctx, cancel := context.WithCancel(t.Context())
			h.cancel = cancel
			go func() { h.ended <- h.Run(ctx) }()
		}
		time.Sleep(time.Hour)
		for _, h := range []*host{c, d} {
			if _, err := h.Admit(t.Context(), nil); err != nil {
				refused++
			}
			h.cancel()
			<-h.ended
			h.cancel = nil
		}
		if refused == 0 {
			t.Error("two environments on one registry")
		}
		e := f.start(cluster.Config{Environment: "staging"})
		if _, err := e.Admit(t.Context(), nil); err != nil {
			t.Errorf("nobody else is alive: %v", err)
		}
		f.end()
	})
}

// A taker is a process that takes ticks and leadership terms.
type taker struct {
	*host
	timers  *timer.Scheduler
	elector *leader.Elector
	ended   chan error
	stop    func()
	took    atomic.Int64 // ticks and terms
}

func (f *fleet) taker(environment string) *taker {
	f.t.Helper()
	p := &taker{host: f.make(cluster.Config{Environment: environment}), ended: make(chan error, 2)}
	var err error
	p.timers, err = timer.New(timer.Config{Store: f.locks, Holder: p.Holder(), PreStopDelay: time.Hour,
		Logger: slog.New(slog.DiscardHandler)}, timer.Timer{Name: "report", Schedule: schedule.Every(time.Second),
		RunOnStart: timer.RunOnStartEachHost, Run: func(context.Context) error { p.took.Add(1); return nil }})
	if err != nil {
		f.t.Fatal(err)
	}
	session, err := dlock.NewSession(f.locks, dlock.SessionOptions{Holder: p.Holder()})
	if err != nil {
		f.t.Fatal(err)
	}
	p.elector, err = leader.New(session, leader.Role{Name: "relay", Logger: slog.New(slog.DiscardHandler),
		Run: func(ctx context.Context, _ *leader.Term) error { p.took.Add(1); <-ctx.Done(); return nil }})
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (p *taker) add() { p.Add(p.timers); p.Add(p.elector) }

// work runs the scheduler and the elector until stop is called.
func (p *taker) work() {
	ctx, stop := context.WithCancel(p.t.Context())
	p.stop = stop
	go func() { p.ended <- p.timers.Run(ctx) }()
	go func() { p.ended <- p.elector.Run(ctx) }()
}

// stopped checks that both parts stop within the given time with the reason, and take nothing
// afterwards.
func (p *taker) stopped(within time.Duration) {
	p.t.Helper()
	timeout := time.After(within)
	for range 2 {
		select {
		case err := <-p.ended:
			if !isRefusal(err) {
				p.t.Errorf("Run returns %v", err)
			}
		case <-timeout:
			p.t.Errorf("it has taken %d, and does not stop", p.took.Load())
			p.stop()
			timeout = nil
			<-p.ended
		}
	}
	took := p.took.Load()
	time.Sleep(time.Minute)
	if n := p.took.Load() - took; n != 0 {
		p.t.Errorf("it has taken %d after it has stopped", n)
	}
	if ready, started := p.timers.Ready(), p.timers.Started(); !isRefusal(ready) || !isRefusal(started) {
		p.t.Errorf("Ready says %v, Started %v", ready, started)
	}
	if s := p.elector.Status(); s.State != leader.StateStopped || !isRefusal(s.Err) {
		p.t.Errorf("the elector is %q, %v", s.State, s.Err)
	}
}

// If a process belongs to another environment than the fleet, its scheduler and its elector take
// nothing, and their Run returns the reason. The order in which they and the registry start does
// not matter. If the registry was down at the start, they stop as soon as the conflict is
// discovered. A registry that is down or hangs prevents no work.
//
// Fails when a part does not ask, ignores the answer, or asks only once; when PreStopDelay passes
// before it stops; and when a hanging registry delays the start by more than StoreTimeout.
func TestPartsOfAnotherEnvironment(t *testing.T) {
	start := func(t *testing.T, environment string) (f *fleet, p *taker) {
		f = newFleet(t)
		f.start(cluster.Config{Environment: "production"})
		return f, f.taker(environment)
	}
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { bubble(t, test) })
	}
	for name, first := range map[string]bool{"registry first": true, "parts first": false} {
		run(name, func(t *testing.T) {
			f, p := start(t, "staging")
			p.add()
			if first {
				p.begin()
			}
			p.work()
			if !first {
				p.begin()
			}
			p.stopped(time.Second)
			if n := p.took.Load(); n != 0 {
				t.Errorf("it has taken %d", n)
			}
			p.leave(f)
		})
	}
	for name, fault := range map[string]func(*link){
		"registry down":  func(l *link) { l.err = errDown },
		"registry hangs": func(l *link) { l.hangs = time.Hour },
	} {
		run(name, func(t *testing.T) {
			f, p := start(t, "staging")
			p.link.set(fault)
			p.add()
			p.begin()
			p.work()
			time.Sleep(cluster.DefaultStoreTimeout + 5*time.Second)
			if n := p.took.Load(); n < 3 || p.timers.Ready() != nil {
				t.Errorf("it has taken %d, %v: the registry keeps it from working", n, p.timers.Ready())
			}
			p.link.heal()
			p.stopped(ttl)
			p.leave(f)
		})
	}
	run("added while they run", func(t *testing.T) {
		f, p := start(t, "staging")
		p.begin()
		p.work()
		time.Sleep(5 * time.Second)
		p.add()
		p.stopped(time.Second)
		p.leave(f)
	})
	run("of the same environment", func(t *testing.T) {
		f, p := start(t, "production")
		p.add()
		p.begin()
		p.work()
		time.Sleep(time.Minute)
		if n := p.took.Load(); n < 50 {
			t.Errorf("it has taken %d", n)
		}
		p.stop()
		for range 2 {
			if err := <-p.ended; err != nil {
				t.Error(err)
			}
		}
		f.end()
	})
}

// leave ends the refused host and the hosts of its fleet.
func (p *taker) leave(f *fleet) {
	p.t.Helper()
	if p.cancel(); !isRefusal(<-p.host.ended) {
		p.t.Error("Run of the registry returns no error")
	}
	p.host.cancel = nil
	f.end()
}
