package timer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/timer"
)

// A host that starts with a thousand timers whose ticks were missed makes at most 64 calls at the
// same time, and runs all of these ticks.
//
// Fails when setNext starts attempts itself.
func TestManyMissedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		timers := many(1000, tenMinutes, f.handler(time.Second))
		for i := range timers {
			timers[i].CatchUp.Policy, timers[i].MaxConcurrency = timer.CatchUpOnce, 1
		}
		f.start(timer.Config{}, timers...)
		time.Sleep(15 * time.Minute)
		f.ended()
		time.Sleep(10 * time.Minute)
		slow := &countingLock{DistributedLock: f.store, delay: 100 * time.Millisecond}
		h := f.startOn(slow, timer.Config{}, timers...)
		time.Sleep(time.Minute)
		for _, st := range h.Status().Timers {
			if st.Started != 1 {
				t.Fatalf("timer %s: %+v", st.Name, st)
			}
		}
		if most := slow.most.Load(); most < 32 || most > 65 { // includes the prober's calls
			t.Errorf("%d calls at once", most)
		}
		f.ended()
	})
}

// Hosts start and stop at random for hours, some are suspended, and the store sometimes fails. No
// tick of a CatchUpOnce timer runs twice. Each tick that a host could run within the window runs.
// The counts of every host add up.
//
// Fails when setNext does not count missed ticks, or when one of the tests above does.
func TestMissedAtRandom(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				chance := rand.New(rand.NewPCG(seed, 0))
				job := timer.Timer{Name: "job", Schedule: tenMinutes, CatchUp: timer.CatchUp{Policy: timer.CatchUpOnce},
					OnStoreDown: timer.StoreDownSkip, Run: f.handler(time.Second),
					Delay: timer.Delay{Jitter: []float64{0, .5}[seed%2],
						ByTimer: []time.Duration{0, time.Hour}[seed/2%2]}}
				naps := map[*host]*sleeper{}
				steps := testkit.Rounds(t, 30, 500)
				for range steps {
					time.Sleep(time.Duration(chance.IntN(300)) * time.Second)
					switch n := chance.IntN(10); {
					case n < 3 && len(f.Hosts) < 4:
						s := &sleeper{every: time.Minute}
						naps[f.start(timer.Config{}, job, s.timer())] = s
					case n < 6 && len(f.Hosts) > 0:
						i := chance.IntN(len(f.Hosts))
						h := f.Hosts[i]
						f.Hosts = slices.Delete(f.Hosts, i, i+1)
						h.Stopped(t)
						h.Accounted(t)
					case n < 8 && len(f.Hosts) > 0:
						h := f.Hosts[chance.IntN(len(f.Hosts))]
						naps[h].sleep(time.Now().Add(time.Duration(chance.IntN(3600)) * time.Second))
					}
				}
				f.start(timer.Config{}, job) // a host that is not suspended
				time.Sleep(time.Hour + 21*time.Minute)
				synctest.Wait()
				f.ended()
				ran, most := f.watch.ticks("job")
				if most != 1 || ran < steps/13 {
					t.Errorf("%d ticks ran, up to %d times", ran, most)
				}
				f.watch.check(t)
			})
		})
	}
}
