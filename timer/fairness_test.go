package timer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/timertest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A slowStore delays its calls. The delay differs between hosts.
type slowStore struct {
	dlock.DistributedLock
	away time.Duration
	mu   sync.Mutex
	more *rand.Rand
}

func (d *slowStore) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	d.mu.Lock()
	way := d.away + time.Duration(d.more.Int64N(int64(time.Millisecond)))
	d.mu.Unlock()
	time.Sleep(way)
	defer time.Sleep(way)
	return d.DistributedLock.TryAcquire(ctx, req)
}

// List implements driver.Lister, so that hosts are counted. LeastRecentFirst makes a host wait
// longer if there are more hosts.
func (d *slowStore) List(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
	return driver.CapabilitiesOf(d.DistributedLock).Lister.List(ctx, name, slots)
}

// shares returns the share of each host in a timer's runs, in percent.
func (f *virtualFleet) shares(name string) (shares []float64, sum int) {
	for _, h := range f.Hosts {
		st, _ := h.Status().Timer(name)
		shares = append(shares, float64(st.Started))
		sum += int(st.Started)
	}
	for i := range shares {
		shares[i] *= 100 / float64(sum)
	}
	return shares, sum
}

// With LeastRecentFirst five hosts share the ticks evenly, whichever is closest to the store, and
// no tick is lost. Without it, the closest host runs most ticks.
//
// Fails when gate.yield never makes a tick wait.
func TestLeastRecentFirstIsFair(t *testing.T) {
	ticks := testkit.Rounds(t, 150, 1000)
	for _, leastRecent := range []bool{false, true} {
		for _, perTick := range []int{1, 2} {
			for period, name := range map[time.Duration]string{time.Second: "a second",
				10 * time.Millisecond: "ten milliseconds"} {
				t.Run(fmt.Sprintf("least recent first %t, %d per tick, every %s", leastRecent, perTick, name),
					func(t *testing.T) {
						bubble(t, func(t *testing.T) {
							f := newFleet(t)
							for i := range 5 {
								store := &slowStore{DistributedLock: f.store,
									away: time.Duration(i) * 200 * time.Microsecond,
									more: rand.New(rand.NewPCG(uint64(i), 0))}
								f.startOn(store, timer.Config{}, timer.Timer{Name: "a", MaxConcurrency: perTick,
									MaxPerTick: perTick,
									Schedule:   schedule.Every(time.Hour).Offset(30 * time.Minute), Run: nop,
									LeastRecentFirst: leastRecent})
							}
							time.Sleep(2 * time.Minute) // until the hosts have been counted
							job := timer.Timer{Name: "job", MaxConcurrency: 5, MaxPerTick: perTick,
								Schedule: schedule.Every(period).Offset(0), LeastRecentFirst: leastRecent,
								Run: f.handler(period / 10)}
							time.Sleep(period / 2)
							for _, h := range f.Hosts {
								if err := h.Register(job); err != nil {
									t.Fatal(err)
								}
							}
							time.Sleep(time.Duration(ticks) * period)
							shares, runs := f.shares("job")
							t.Logf("%.1f %%", shares)
							if ran, most := f.watch.ticks("job"); ran != ticks || most != perTick ||
								runs != ticks*perTick {
								t.Errorf("%d ticks ran, up to %d times, %d runs", ran, most, runs)
							}
							for i, s := range shares {
								if leastRecent && period == time.Second && (s < 12 || s > 30) {
									t.Errorf("host %d has %.1f %%", i, s)
								}
							}
							f.ended()
							f.watch.check(t)
						})
					})
			}
		}
	}
}

// While the store is down no tick yields, because hosts then do not compete.
//
// Fails when gate.yield ignores the breaker.
func TestLeastRecentFirstDoesNotWaitWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, rec := newFleet(t), recorder{}
		for i := range 3 {
			f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: minutely(), LeastRecentFirst: true,
				Run: rec.handler(fmt.Sprint(i))})
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		for _, h := range f.Hosts {
			h.Link.Inject(dlocktest.Error(errors.New("down")))
		}
		time.Sleep(time.Minute)
		testkit.Eventually(t, time.Minute, "the breakers are open", func() bool {
			for _, h := range f.Hosts {
				if !h.Status().Store.BreakerOpen {
					return false
				}
			}
			return true
		})
		from := time.Now()
		time.Sleep(10 * time.Minute)
		n := 0
		for host := range 3 {
			for tick, at := range rec.of(fmt.Sprint(host)) {
				if tick.Before(from) {
					continue
				}
				n++
				if len(at) != 1 || !at[0].Equal(tick) {
					t.Errorf("host %d: the run of %v began at %v", host, tick, at)
				}
			}
		}
		if n != 30 {
			t.Errorf("%d runs, want 3 of each of 10 ticks", n)
		}
		for _, h := range f.Hosts {
			h.Link.Heal()
		}
		f.ended()
	})
}

// A tick that yields is tried when its wait is over, or counted as skipped when the host drains or
// the timer is removed.
//
// Fails when Scheduler.drain loses a tick that yields, or counts it as missed.
func TestYieldedTicksAreAccountedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, remove := range []bool{false, true} {
			f := newFleet(t)
			for range 5 {
				f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: minutely(), MaxConcurrency: 5, MaxPerTick: 5,
					LeastRecentFirst: true, Run: f.handler(0)})
			}
			// All hosts ran the previous tick, so they all yield.
			time.Sleep(10*time.Minute - time.Since(time.Now().Truncate(10*time.Minute)) + time.Millisecond)
			st, _ := f.Hosts[0].Status().Timer("a")
			if timertest.Unaccounted(st) != 1 {
				t.Fatalf("it does not yield: %+v", st)
			}
			if remove {
				for _, h := range f.Hosts {
					if err := h.Remove(t.Context(), "a"); err != nil {
						t.Error(err)
					}
				}
				f.Stop()
				continue
			}
			if skipped := f.ended(); skipped[timer.ReasonDraining] != 5 {
				t.Errorf("skipped %v", skipped)
			}
		}
	})
}

// A tick that yielded, and then had to wait for a store in quarantine, is checked against the
// blackouts again.
//
// Fails when tick.anew does not reset yielded.
func TestYieldedThenQuarantined(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		tick := time.Now().Truncate(time.Minute).Add(10 * time.Minute)
		for range 5 {
			f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: minutely(), MaxConcurrency: 5, MaxPerTick: 5,
				LeastRecentFirst: true, Run: f.handler(0),
				Blackouts: []schedule.Blackout{schedule.Between(tick.Add(10*time.Second), tick.Add(50*time.Second))}})
		}
		time.Sleep(time.Until(tick) - time.Second)
		for _, h := range f.Hosts {
			h.Link.Inject(dlocktest.Error(&dlock.NotAcquiredError{Reason: dlock.ReasonQuarantine,
				ExpiresIn: 30 * time.Second}), dlocktest.OpAcquire)
		}
		time.Sleep(2 * time.Second)
		for _, h := range f.Hosts {
			h.Link.Heal()
		}
		time.Sleep(40 * time.Second)
		if n := f.watch.startsOf("a", tick.UTC()); n != 0 {
			t.Errorf("%d runs started in a blackout", n)
		}
		if skipped := f.ended(); skipped[timer.ReasonBlackout] != 5 {
			t.Errorf("skipped %v", skipped)
		}
	})
}
