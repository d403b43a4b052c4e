package durable_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
)

var (
	simulateSeed  = flag.Uint64("simulate.seed", 0, "seed of TestSimulate; 0: at random")
	simulateSeeds = flag.Int("simulate.seeds", 0, "how many seeds TestSimulate runs; 0: a few, or many if long "+
		"proofs are wanted")
)

// Five workers have ticks and triggered runs. Their calls are lost, late, duplicated or never
// answered. Some workers are killed, stopped for longer than their lease, cut off, or replaced.
// Their handlers fail, panic, or ignore their context. Nothing is lost, no tick has two runs, no
// run has two valid owners, no limit is exceeded, and only results of owners count. The one worker
// that is always healthy reclaims an expired lease within a poll interval.
//
// The order of goroutines is not part of the seed, so a seed reproduces a fault most of the time,
// but not always.
//
// Fails for each of the planted bugs that proof/mutants lists for it.
func TestSimulate(t *testing.T) {
	seeds := testkit.Rounds(t, 3, 100)
	if *simulateSeeds > 0 {
		seeds = *simulateSeeds
	}
	first := *simulateSeed
	if first == 0 {
		first = rand.Uint64() >> 1
	}
	for i := range seeds {
		seed := first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { bubble(t, func(t *testing.T) { newWorld(t, seed).play() }) })
	}
}

// A world is a fleet and the source of its faults.
type world struct {
	*fleet
	mu       sync.Mutex // used by all goroutines
	random   *rand.Rand
	late     time.Duration // the longest delay of a reclaim
	calm     atomic.Bool   // handlers do not misbehave any more
	triggers int
}

const (
	simulatedLease = 9 * time.Second
	simulatedPoll  = 5 * time.Second
	troubledFor    = 8 * time.Minute
	calmFor        = 6 * time.Minute
	workers        = 5
)

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{fleet: newFleet(t), random: rand.New(rand.NewPCG(seed, 1))}
	w.store.Reclaimed = func(late time.Duration) { w.late = max(w.late, late) }
	return w
}

// n returns a random number below n.
func (w *world) n(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *world) play() {
	for i := range workers {
		w.begin(fmt.Sprint("w", i))
	}
	over := time.Now().Add(troubledFor)
	for time.Now().Before(over) {
		time.Sleep(time.Duration(1+w.n(4)) * time.Second)
		w.queue()
		if w.n(2) == 0 {
			w.harm()
		}
	}
	for _, h := range w.hosts {
		if !w.watch.isDead(h) {
			h.link.set(well)
		}
	}
	w.calm.Store(true)
	pass(calmFor)
	pause := time.Hour
	for _, name := range []string{"coalesced", "backfilled"} {
		if err := w.store.SetSchedule(w.t.Context(), name, store.Override{PausedUntil: &pause}); err != nil {
			w.t.Fatal(err)
		}
	}
	pass(2 * time.Minute)
	w.judge()
}

// begin starts a worker. The first worker never gets faults.
func (w *world) begin(name string) {
	// In about one of several hundred worlds, a run loses five leases and would become a dead
	// letter.
	h := w.add(durable.Config{Name: name, MaxRuns: 4, MaxActive: 9, TTL: simulatedLease, CallTimeout: 3 * time.Second,
		PollInterval: simulatedPoll, DrainTimeout: 5 * time.Second, MaxCrashes: durable.NoLimit})
	often := durable.Retry{MaxAttempts: 1000, FirstWait: time.Millisecond, MaxWait: time.Second}
	h.handle("some", w.work(24), durable.HandlerOptions{MaxConcurrency: 4, MaxRunTime: 20 * time.Second, Retry: often}).
		handle("any", w.work(20), durable.HandlerOptions{Retry: often}).
		schedule("coalesced", "any", schedule.Every(7*time.Second).Offset(0), durable.ScheduleOptions{}).
		schedule("backfilled", "some", schedule.Every(31*time.Second).Offset(0), durable.ScheduleOptions{
			CatchUp: durable.CatchUp{Policy: durable.CatchUpBackfill, Max: 3}})
	if len(w.hosts) > 1 {
		h.link.on(w.trouble)
	}
	h.start()
}

// trouble returns the fault of a call. About one of six calls fails in some way.
func (w *world) trouble(string) (fault, time.Duration) {
	if w.n(6) > 0 {
		return well, time.Duration(w.n(20)) * time.Millisecond
	}
	return []fault{refused, lost, slow, answer, twice, zombie, hang}[w.n(7)],
		time.Duration(w.n(4000)) * time.Millisecond
}

// work returns a handler that works for up to maxSeconds, or 50 % longer if it ignores its context.
func (w *world) work(maxSeconds int) durable.Handler {
	return func(ctx context.Context, run *durable.Run) error {
		time.Sleep(time.Duration(w.n(maxSeconds*1000)) * time.Millisecond / 2)
		trouble := w.n(10)
		if w.calm.Load() {
			trouble = 10
		}
		switch trouble {
		case 0, 3, 4: // the handler ignores its context, which may have ended
			time.Sleep(time.Duration(w.n(maxSeconds*1000)) * time.Millisecond)
			return nil
		case 1:
			return errors.New("no luck")
		case 2:
			panic("help")
		}
		return sleeps(time.Duration(w.n(maxSeconds*1000))*time.Millisecond/2)(ctx, run)
	}
}

// queue triggers one or a few runs.
func (w *world) queue() {
	for range w.n(3) * w.n(2) {
		w.trigger([]string{"some", "any"}[w.n(2)], durable.TriggerOptions{RunIn: time.Duration(w.n(3)) * time.Second,
			Priority: durable.Priority(w.n(3) - 1)})
		w.triggers++
	}
}

// harm kills, stops, cuts off or redeploys a worker other than the first.
func (w *world) harm() {
	h := w.hosts[len(w.hosts)-1-w.n(workers-1)]
	if h == w.hosts[0] || w.watch.isDead(h) {
		return
	}
	switch w.n(10) {
	case 0: // kill -9, and started again
		h.kill()
		w.begin([]string{h.name, fmt.Sprint("w", len(w.hosts))}[w.n(2)])
	case 1, 2, 3, 4: // stopped, possibly for longer than the lease
		until := time.Now().Add(time.Duration(w.n(40)) * time.Second)
		h.link.on(func(op string) (fault, time.Duration) {
			if left := time.Until(until); left > 0 {
				return stopped, left
			}
			return w.trouble(op)
		})
	case 5, 6, 7, 8: // cut off
		until := time.Now().Add(time.Duration(w.n(60)) * time.Second)
		how := []fault{hang, refused}[w.n(2)]
		h.link.on(func(op string) (fault, time.Duration) {
			if time.Now().Before(until) {
				return how, 0
			}
			return w.trouble(op)
		})
	case 9: // redeployed; its handlers may ignore their context, and its database may be away
		h.cancel()
		h.replaced = true
		w.begin(fmt.Sprint("w", len(w.hosts)))
	}
}

// judge reports every broken promise.
func (w *world) judge() {
	t := w.t
	succeeded := w.runs(store.StateSucceeded)
	for _, r := range w.runs(store.StateQueued, store.StateRunning, store.StateDead, store.StateCanceled) {
		t.Errorf("lost: %+v", r)
	}
	var ticks int64
	for name, s := range map[string]schedule.Schedule{"coalesced": schedule.Every(7 * time.Second).Offset(0),
		"backfilled": schedule.Every(31 * time.Second).Offset(0)} {
		row := w.accounted(name, s, w.firstTick(name))
		ticks += row.Queued
		if w.store.Now().Sub(row.LastDueAt) > 30*time.Second {
			t.Errorf("%s: no tick was planned since %v", name, row.LastDueAt)
		}
	}
	if len(succeeded) != w.triggers+int(ticks) {
		t.Errorf("%d runs, of %d triggers and %d ticks", len(succeeded), w.triggers, ticks)
	}
	ended := map[store.Outcome]int{}
	for _, r := range succeeded {
		_, attempts := w.run(r.ID)
		if w.watch.called(r.ID) == 0 {
			t.Errorf("run %d has succeeded, but no worker called its handler", r.ID)
		}
		for i, a := range attempts {
			ended[a.Outcome]++
			if last := i == len(attempts)-1; a.Attempt != i+1 || (a.Outcome == store.OutcomeOK) != last {
				t.Errorf("run %d: attempt %d of %+v", r.ID, i+1, attempts)
				break
			}
		}
	}
	if most := simulatedPoll * 12 / 10; w.late > most {
		t.Errorf("a lease was reclaimed %v after its end, at most %v", w.late, most)
	}
	var discarded, losses uint64
	for _, h := range w.hosts {
		for _, s := range h.Status().Handlers {
			discarded, losses = discarded+s.Discarded, losses+s.LeasesLost
		}
	}
	t.Logf("%d workers, %d triggers, %d ticks queued, attempts %v, %d leases lost, %d results discarded, the latest "+
		"reclaim %v after the lease", len(w.hosts), w.triggers, ticks, ended, losses, discarded, w.late)
	if ended[store.OutcomeLeaseLost] == 0 {
		t.Error("nothing happened")
	}
	w.end()
}
