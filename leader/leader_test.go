package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/leader"
)

const interval = time.Second

// Whatever happens to the links of five hosts, no more than Max lead at the same time, fences grow,
// no host runs the function twice, and a host leads again when the links work.
//
// Fails when a host leads after a store error, when the function's context is not derived from the
// lease's, when the lease is released before the function has returned, and when a host whose
// function has not returned takes part again.
func TestI13LeadersUnderFaults(t *testing.T) {
	for _, most := range []int{1, 3} {
		t.Run(fmt.Sprint("Max ", most), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				work := func(ctx context.Context, term *leader.Term) error {
					timeout := time.NewTimer(rand.N(5 * time.Minute))
					defer timeout.Stop()
					select {
					case <-timeout.C:
						return errors.New("no luck")
					case <-ctx.Done():
						time.Sleep(rand.N(time.Minute)) // the function ends slowly
						if term.Valid() && !errors.Is(context.Cause(ctx), context.Canceled) {
							t.Error("the term is valid after its context has ended")
						}
						return ctx.Err()
					}
				}
				for range 5 {
					f.start(leader.Role{Max: most, RetryInterval: interval, StopTimeout: 2 * time.Minute, Run: work})
				}
				faults := []dlocktest.Fault{dlocktest.Hang, dlocktest.Error(errDown), dlocktest.LostReply,
					dlocktest.Late(800 * time.Millisecond), dlocktest.Patchy(errDown),
					dlocktest.Slow(400 * time.Millisecond)}
				for range testkit.Rounds(t, 200, 2000) {
					h := f.hosts[rand.N(len(f.hosts))]
					h.link.Inject(faults[rand.N(len(faults))])
					time.Sleep(rand.N(30 * time.Second))
					if rand.N(3) > 0 {
						h.link.Heal()
					}
				}
				for _, h := range f.hosts {
					h.link.Heal()
				}
				before := len(f.watch.terms())
				time.Sleep(30 * time.Minute)
				if n := len(f.watch.terms()); n == before || n < 20 {
					t.Errorf("%d terms, of which %d after the faults: the test is too tame", n, n-before)
				}
				f.end()
			})
		})
	}
}

// Each of several leaders has a slot of its own, and a further host stands by.
//
// Fails when a term has no slot, when Max is not passed on, or when every name that the store
// returns for one of several leaders is logged.
func TestSeveralLeaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 5 {
			f.start(leader.Role{Max: 3, RetryInterval: interval})
		}
		time.Sleep(time.Minute)
		slots, standby := map[int]bool{}, 0
		for _, h := range f.hosts {
			switch s := h.Status(); s.State {
			case leader.StateLeading:
				slots[s.Slot] = true
			case leader.StateStandby:
				standby++
				if s.Leader == (dlock.Holder{}) || s.ElectedAt.IsZero() {
					t.Errorf("who leads is not known: %+v", s)
				}
			}
			if err := h.Healthy(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(h.log.String(), "leader: standing by"); n > 1 {
				t.Errorf("it was logged %d times who leads", n)
			}
		}
		if len(slots) != 3 || !slots[0] || !slots[1] || !slots[2] || standby != 2 {
			t.Errorf("slots %v, %d stand by", slots, standby)
		}
		f.end()
	})
}

// Another host leads within a RetryInterval after a drain, and within a TTL and a RetryInterval
// after the leader was cut off or killed.
//
// Fails when the end of Run does not release the role, or a host waits for longer than
// RetryInterval.
func TestFailOver(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(t *testing.T, h *host)
		within time.Duration
	}{
		"drained": {func(t *testing.T, h *host) { h.stop(t) }, interval},
		"killed":  {func(t *testing.T, h *host) { h.link.Inject(dlocktest.Hang) }, dlock.DefaultTTL + interval},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for range testkit.Rounds(t, 20, 200) {
					f := newFleet(t)
					for range 3 {
						f.start(leader.Role{RetryInterval: interval})
					}
					time.Sleep(20*time.Second + rand.N(20*time.Second))
					old, ended := f.leads(), time.Now()
					c.end(t, old)
					time.Sleep(c.within - time.Since(ended) + time.Millisecond)
					now := f.leads()
					if now == nil || now == old {
						t.Fatalf("nobody else leads after %v", c.within)
					}
					if took := f.watch.terms()[1].at.Sub(ended); name == "killed" && took < dlock.DefaultTTL/2 {
						t.Errorf("another host led %v after the last was cut off", took)
					}
					f.end()
				}
			})
		})
	}
}

// If a function fails, panics, exits or returns, its host gives up the role, and another host leads
// before the same one does. After failures in a row the host waits longer, up to MaxBackOff.
//
// Fails when backing off is shorter than RetryInterval, does not grow, or has no end; when a
// panic is not recovered.
func TestFunctionThatEndsLetsAnotherHostLead(t *testing.T) {
	errNo := errors.New("no")
	for name, c := range map[string]struct {
		work    func() error
		outcome leader.Outcome
		says    string
	}{
		"fails":    {func() error { return errNo }, leader.OutcomeFailed, "no"},
		"panics":   {func() error { panic("oh") }, leader.OutcomeFailed, "the function panicked: oh"},
		"no panic": {func() error { return (*leader.PanicError)(nil) }, leader.OutcomeFailed, "no panic"},
		"exits":    {func() error { runtime.Goexit(); return nil }, leader.OutcomeFailed, "runtime.Goexit"},
		"returns":  {func() error { return nil }, leader.OutcomeReturned, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				bad := f.start(leader.Role{RetryInterval: interval,
					Run: func(context.Context, *leader.Term) error { time.Sleep(time.Second); return c.work() }})
				time.Sleep(time.Second / 2)
				good := f.start(leader.Role{RetryInterval: interval})
				time.Sleep(time.Second / 2)
				synctest.Wait()
				s := bad.Status()
				if s.State != leader.StateBackingOff || s.Terms[c.outcome] != 1 || (s.Err == nil) != (c.says == "") ||
					s.Err != nil && !strings.Contains(s.Err.Error(), c.says) {
					t.Errorf("%+v", s)
				}
				if wait := time.Until(s.RetryAt); wait < interval-time.Millisecond || wait > 2*interval {
					t.Errorf("it backs off for %v", wait)
				}
				time.Sleep(time.Minute)
				if f.leads() != good {
					t.Error("the other host does not lead")
				}
				good.stop(t)
				time.Sleep(time.Hour)
				var longest time.Duration
				terms := f.watch.terms()[2:] // of the bad host
				for i := 1; i < len(terms); i++ {
					longest = max(longest, terms[i].at.Sub(terms[i-1].at))
				}
				least, most := 30*time.Second, leader.MaxBackOff+time.Second
				if c.outcome == leader.OutcomeReturned {
					least, most = 0, 3*interval+time.Second
				}
				if longest < least || longest > most {
					t.Errorf("at most %v between two of %d terms", longest, len(terms))
				}
				f.end()
			})
		})
	}
}

// A term that lasted long without a failure ends a series of failures.
//
// Fails when the back-off is never reset.
func TestBackOffEndsAfterALongTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		calls := 0
		h := f.start(leader.Role{RetryInterval: interval, Run: func(context.Context, *leader.Term) error {
			if calls++; calls > 20 {
				time.Sleep(2 * leader.MaxBackOff)
			}
			return errDown
		}})
		time.Sleep(30 * time.Minute)
		for h.Status().State != leader.StateBackingOff {
			time.Sleep(time.Second)
		}
		if wait := time.Until(h.Status().RetryAt); wait > 2*interval {
			t.Errorf("it waits for %v after a term that was long", wait)
		}
		f.end()
	})
}

// The role is not free before the function has returned, and is free immediately afterwards. If a
// function does not return, Run returns an error after StopTimeout, and the role expires.
//
// Fails when Run releases the role when its context ends, or waits forever.
func TestRoleIsReleasedWhenTheFunctionHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		release := make(chan struct{})
		h := f.start(leader.Role{RetryInterval: interval, StopTimeout: time.Minute,
			Run: func(ctx context.Context, _ *leader.Term) error { <-release; return nil }})
		time.Sleep(time.Second)
		other := f.start(leader.Role{RetryInterval: interval})
		time.Sleep(10 * time.Second)
		h.cancel()
		time.Sleep(59 * time.Second)
		if h.Status().State != leader.StateEnding || other.Status().State != leader.StateStandby {
			t.Errorf("%v and %v", h.Status().State, other.Status().State)
		}
		time.Sleep(2 * time.Second)
		stuck, ok := errors.AsType[*leader.StuckError](<-h.ended)
		if !ok || stuck.Role != "relay" || h.Status().State != leader.StateStopped || f.leads() != nil {
			t.Errorf("%v; %v", stuck, h.Status().State)
		}
		h.ended <- nil
		time.Sleep(dlock.DefaultTTL + interval)
		if f.leads() != other {
			t.Error("the role has not expired")
		}
		close(release)
		f.end()
	})
}

// A panic after the end of the context is logged, and harms no other host.
//
// Fails when the panic is dropped, because the term already has another outcome.
func TestFunctionThatPanicsInTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(leader.Role{RetryInterval: interval,
			Run: func(ctx context.Context, _ *leader.Term) error { <-ctx.Done(); panic("oh") }})
		time.Sleep(time.Second)
		f.end()
		if n := strings.Count(h.log.String(), "the function panicked: oh"); n != 1 {
			t.Errorf("it was logged %d times:\n%s", n, h.log.String())
		}
	})
}

// A host whose function ignores that the role was lost does not take part again before the function
// has returned, and is not healthy; another host leads meanwhile.
//
// Fails when a second call runs beside the first.
func TestFunctionThatIgnoresALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		release := make(chan struct{})
		h := f.start(leader.Role{RetryInterval: interval,
			Run: func(context.Context, *leader.Term) error { <-release; return nil }})
		time.Sleep(time.Second)
		other := f.start(leader.Role{RetryInterval: interval})
		h.link.Inject(dlocktest.Hang)
		time.Sleep(20 * time.Second)
		h.link.Heal()
		time.Sleep(10 * time.Minute)
		if s := h.Status(); s.State != leader.StateEnding || !errors.Is(s.Err, dlock.ErrLost) || f.leads() != other {
			t.Errorf("%+v", s)
		}
		if err := h.Healthy(); err == nil || !strings.Contains(err.Error(), "has ignored the end of its context") {
			t.Error(err)
		}
		close(release)
		time.Sleep(time.Minute)
		if s := h.Status(); s.State != leader.StateStandby || s.Terms[leader.OutcomeLeaseLost] != 1 ||
			h.Healthy() != nil {
			t.Errorf("%+v, %v", s, h.Healthy())
		}
		f.end()
	})
}

// While the store is down no host leads, whatever the reason, and one line is logged. A host whose
// store is not set up correctly leads once that is fixed. Recovery needs no restart.
//
// Fails when a failed try leads, and when each try is logged.
func TestNobodyLeadsWithoutTheStore(t *testing.T) {
	for name, fault := range map[string]dlocktest.Fault{
		"down": dlocktest.Error(errDown), "hangs": dlocktest.Hang,
		"not set up": dlocktest.Error(fmt.Errorf("no table: %w", dlock.ErrSetup)), "panics": dlocktest.Panic,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				h := f.start(leader.Role{RetryInterval: interval})
				time.Sleep(time.Minute)
				h.link.Inject(fault)
				time.Sleep(10 * time.Minute)
				if s := h.Status(); s.State != leader.StateStoreDown || s.Err == nil || len(f.watch.now) > 0 {
					t.Errorf("%+v, %d functions run", s, len(f.watch.now))
				}
				if err := h.Healthy(); err == nil || !strings.Contains(err.Error(), "no host is known to have led") {
					t.Error(err)
				}
				h.link.Heal()
				time.Sleep(time.Minute)
				if f.leads() != h || h.Healthy() != nil {
					t.Errorf("%+v, %v", h.Status(), h.Healthy())
				}
				f.end()
				for line, want := range map[string]int{"leader: lost": 1, "leader: the store fails": 1,
					"leader: elected": 2} {
					if n := strings.Count(h.log.String(), line); n != want {
						t.Errorf("%q was logged %d times, want %d:\n%s", line, n, want, h.log.String())
					}
				}
			})
		})
	}
}

// All faults of a role come back together, before anything starts. Run returns the faults that
// cannot disappear without an operator: a store that is not set up correctly in its first answer, a
// session that is closed, and a second call.
//
// Fails when a check is left out.
func TestFaultsOfARole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		work := func(context.Context, *leader.Term) error { return nil }
		for _, role := range []leader.Role{
			{Max: -1, RetryInterval: time.Millisecond, StopTimeout: -1},
			{Name: strings.Repeat("a", 250), Max: driver.MaxSlots + 1, RetryInterval: 2 * time.Hour, StopTimeout: -1},
		} {
			_, err := leader.New(nil, role)
			for _, want := range []string{"Name: ", "Max: ", "RetryInterval: ", "StopTimeout: ", "Run: it is nil",
				"no session"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v: does not say %q", err, want)
				}
			}
		}
		link := dlocktest.NewFaulty(f.store)
		session, err := dlock.NewSession(link, dlock.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		link.Inject(dlocktest.Error(fmt.Errorf("no table: %w", dlock.ErrSetup)))
		role := leader.Role{Name: "a", Run: work}
		if err := leader.Run(t.Context(), session, role); !errors.Is(err, dlock.ErrSetup) {
			t.Error(err)
		}
		link.Heal()
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := leader.Run(t.Context(), session, role); !errors.Is(err, dlock.ErrClosed) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e, err := leader.New(session, leader.Role{Name: strings.Repeat("a", 249), Run: work})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
		if err := e.Run(ctx); err == nil || !strings.Contains(err.Error(), "called before") {
			t.Error(err)
		}
	})
}

// Standing by costs the store one call per try and nothing else, and hosts that started together do
// not stay in step.
//
// Fails when the interval is not varied, or differs from the setting, and when each try is logged.
func TestStandingByCostsOneCallPerTry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		f.start(leader.Role{RetryInterval: 10 * time.Second})
		time.Sleep(time.Second)
		h := f.start(leader.Role{RetryInterval: 10 * time.Second})
		time.Sleep(900 * time.Second)
		if n := h.link.Calls(dlocktest.OpAcquire); n < 90 || n > 115 {
			t.Errorf("%d tries in 90 intervals", n)
		}
		if n := h.link.Calls(dlocktest.OpExtend) + h.link.Calls(dlocktest.OpRelease); n != 0 {
			t.Errorf("%d other calls", n)
		}
		if n := strings.Count(h.log.String(), "leader: standing by"); n != 1 {
			t.Errorf("it was logged %d times who leads", n)
		}
		f.end()
	})
}

// A writer calls a function instead of writing.
type writer func()

func (w writer) Write(p []byte) (int, error) { w(); return len(p), nil }

// A Logger that blocks or panics costs no host the role.
//
// Fails when the Logger is called on the goroutine of Run.
func TestI10LoggerHarmsNobody(t *testing.T) {
	for name, write := range map[string]func(){
		"blocks": func() { time.Sleep(time.Hour) }, "panics": func() { panic("no disk") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				logger := slog.New(slog.NewTextHandler(writer(write), nil))
				h := f.start(leader.Role{RetryInterval: interval, Logger: logger})
				time.Sleep(time.Minute)
				if f.leads() != h {
					t.Errorf("%+v", h.Status())
				}
				began := time.Now()
				f.end()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("Run ended after %v", took)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}
