package timer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/proof/timertest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A run that loses its slot while it waits is not retried, and ends immediately. A run that may
// continue without the store is retried.
//
// Fails when mayRetry ignores the context, when waitToRetry treats a degraded run as invalid, or
// gives up as soon as the lease is in doubt.
func TestRetryAfterALostLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		retry := timer.Retry{MaxAttempts: 2, FirstWait: 20 * time.Minute}
		saw := map[string]*attempts{}
		var timers []timer.Timer
		for name, policy := range map[string]timer.StoreDownPolicy{"skips": timer.StoreDownSkip,
			"goes on": timer.StoreDownRunLocal, "revoked": timer.StoreDownRunLocal} {
			saw[name] = &attempts{script: []error{errFlaky}}
			timers = append(timers, timer.Timer{Name: name, OnStoreDown: policy, Retry: retry, Run: saw[name].handle})
		}
		h := f.start(timer.Config{}, timers...)
		trigger(t, h, "skips", "goes on", "revoked")
		if err := f.store.Revoke(t.Context(), "timer:revoked", 0, saw["revoked"].runs[0].fence,
			driver.Cause{By: "ann", Note: "it hangs"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(dlock.DefaultTTL)
		if res := last(t, h, "revoked"); res.Outcome != timer.OutcomeCanceled || res.Attempt != 1 ||
			res.Err != errFlaky {
			t.Errorf("revoked: %+v", res)
		}
		h.Link.Inject(dlocktest.Hang)
		time.Sleep(dlock.DefaultTTL + 2*dlock.DefaultStoreTimeout) // the release is tried, without success
		if res := last(t, h, "skips"); res.Outcome != timer.OutcomeLeaseLost || res.Attempt != 1 ||
			res.Took > 2*dlock.DefaultTTL {
			t.Errorf("skips: %+v", res)
		}
		time.Sleep(time.Hour)
		if res := last(t, h, "goes on"); res.Outcome != timer.OutcomeFailed || res.Attempt != 2 ||
			!saw["goes on"].runs[1].degraded {
			t.Errorf("goes on: %+v, %+v", res, saw["goes on"].runs)
		}
		for _, name := range []string{"skips", "revoked"} {
			if n := saw[name].calls(); n != 1 {
				t.Errorf("%s: %d calls", name, n)
			}
		}
		trigger(t, h, "goes on") // starts and is retried without the store
		time.Sleep(time.Hour)
		if r := saw["goes on"].runs; len(r) != 4 || r[3].number != 2 || r[3].slot != -1 || !r[3].degraded {
			t.Errorf("without the store: %+v", r)
		}
		h.Link.Heal()
		f.Stop()
	})
}

// If a timer is removed while its run waits for a retry, the run is not retried, and Remove does
// not wait for the end of that wait.
//
// Fails when mayRetry ignores removed, or when Remove does not end waits.
func TestRemoveEndsAWaitForARetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reg := newRegistry()
		f := newFleet(t)
		a := &attempts{script: []error{errFlaky}}
		h := f.start(timer.Config{Registerer: reg}, timer.Timer{Name: "a",
			Retry: timer.Retry{MaxAttempts: 3, FirstWait: 30 * time.Minute}, Run: a.handle})
		trigger(t, h, "a")
		began := time.Now()
		if err := h.Remove(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("Remove took %v", took)
		}
		time.Sleep(time.Hour)
		if a.calls() != 1 {
			t.Errorf("%d calls", a.calls())
		}
		if _, there := values(t, reg)["tickslot_retries_total a"]; there {
			t.Error("retries_total is left of a timer that was removed")
		}
		if list, _ := f.store.List(t.Context(), "timer:a", 1); len(list) != 0 {
			t.Errorf("slot still held: %+v", list)
		}
		f.Stop()
	})
}

// A run that waits for a retry keeps its place and its slot, which is renewed. No other run starts
// on any host. The wait needs no goroutine besides the run's own.
//
// Fails when the lease or the place is released between attempts, or when a wait has its own
// goroutine.
func TestWaitForARetryKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // not in parallel, because it counts goroutines
		f := newFleet(t)
		const n = 50
		gate := make(chan struct{})
		var timers []timer.Timer
		for i := range n {
			timers = append(timers, timer.Timer{Name: fmt.Sprint(i), Retry: timer.Retry{MaxAttempts: 2,
				FirstWait: 50 * time.Minute}, Run: func(context.Context) error {
				<-gate
				return errFlaky
			}})
		}
		h := f.start(timer.Config{}, timers...)
		other := f.start(timer.Config{}, timers...)
		for _, tm := range timers {
			trigger(t, h, tm.Name)
		}
		running := runtime.NumGoroutine()
		close(gate)
		synctest.Wait()
		if waiting := runtime.NumGoroutine(); waiting > running {
			t.Errorf("%d goroutines while %d runs wait, %d while their handlers ran", waiting, n, running)
		}
		time.Sleep(20 * time.Minute)
		if err := h.Trigger(t.Context(), "0"); !refused(err, timer.ReasonHostFull) {
			t.Errorf("on the same host: %v", err)
		}
		if err := other.Trigger(t.Context(), "0"); !refused(err, timer.ReasonFull) {
			t.Errorf("on another host: %v", err)
		}
		if st, _ := h.Status().Timer("0"); len(st.Running) != 1 || !st.Running[0].Valid {
			t.Errorf("%+v", st.Running)
		}
		f.Stop()
	})
}

// With retries and a store that fails from time to time, every tick is still counted once. No tick
// starts more than MaxPerTick runs, and at most MaxConcurrency runs are in progress, including
// those that wait.
//
// Fails when runner.again counts a retry as a start (r.started++).
func TestI9RetriesAreNoTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var mu sync.Mutex
		type start struct {
			timer string
			tick  time.Time
		}
		firsts, now, most := map[start]int{}, map[string]map[*timer.Run]bool{}, map[string]int{}
		flaky := func(ctx context.Context) error {
			r, _ := timer.RunFromContext(ctx)
			mu.Lock()
			if r.Attempt() == 1 {
				firsts[start{r.Timer(), r.Tick()}]++
			}
			if now[r.Timer()] == nil {
				now[r.Timer()] = map[*timer.Run]bool{}
			}
			now[r.Timer()][r] = true
			for other := range now[r.Timer()] {
				if !other.Valid() {
					delete(now[r.Timer()], other)
				}
			}
			most[r.Timer()] = max(most[r.Timer()], len(now[r.Timer()]))
			mu.Unlock()
			if err := sleep(ctx, rand.N(time.Second)); err != nil {
				return err
			}
			if rand.IntN(3) == 0 {
				panic("now and then")
			}
			return errFlaky
		}
		var timers []timer.Timer
		for i := range 20 {
			timers = append(timers, timer.Timer{Name: fmt.Sprint(i),
				Schedule: schedule.Every(time.Duration(1+i%4) * 700 * time.Millisecond), MaxConcurrency: 1 + i%3,
				MaxPerTick:  1 + i%3,
				OnStoreDown: timer.StoreDownSkip, MaxRunTime: 20 * time.Second, Run: flaky,
				Retry: timer.Retry{MaxAttempts: 1 + i%4, FirstWait: time.Second, If: func(error) bool { return true }}})
		}
		for range 3 {
			f.start(timer.Config{DrainTimeout: time.Second}, timers...)
		}
		for i := range 9 {
			h := f.Hosts[i%len(f.Hosts)]
			h.Link.Inject([]dlocktest.Fault{dlocktest.Hang, dlocktest.LostReply,
				dlocktest.Error(errors.New("refused"))}[i%3])
			time.Sleep(12 * time.Second)
			h.Link.Heal()
			time.Sleep(5 * time.Second)
		}
		f.Stop()
		retried := 0
		for i, h := range f.Hosts {
			for _, st := range h.Status().Timers {
				if timertest.Unaccounted(st) != 0 || st.Ticks < 50 {
					t.Errorf("host %d, timer %s: %d ticks, %d started, skipped %v", i, st.Name, st.Ticks, st.Started,
						st.Skipped)
				}
				if st.Last != nil && st.Last.Attempt > 1 {
					retried++
				}
			}
		}
		if retried == 0 {
			t.Error("nothing was retried")
		}
		for i, tm := range timers {
			for first, n := range firsts {
				if first.timer == tm.Name && n > tm.MaxConcurrency {
					t.Errorf("%v started %d runs, MaxPerTick %d", first, n, tm.MaxConcurrency)
				}
			}
			if n := most[tm.Name]; n > 1+i%3 {
				t.Errorf("timer %s: %d valid runs at once, MaxConcurrency %d", tm.Name, n, 1+i%3)
			}
		}
	})
}

// An invalid Retry is a fault of the registration, in addition to all other faults.
//
// Fails when any of the checks is removed, because each has a row.
func TestI11RetryFaults(t *testing.T) {
	for want, tm := range map[string]timer.Timer{
		`timer "a": Retry.MaxAttempts: -1 is negative: use 1 to 1000, or 0 for no retry`: {Retry: timer.Retry{
			MaxAttempts: -1}},
		`timer "a": Retry.MaxAttempts: 1001 is more than 1000`: {Retry: timer.Retry{MaxAttempts: 1001}},
		`timer "a": Retry.MaxAttempts: it is not set`:          {Retry: timer.Retry{FirstWait: time.Second}},
		`timer "a": Retry.FirstWait: -2ns is negative`: {Retry: timer.Retry{MaxAttempts: 2,
			FirstWait: -2}},
		`timer "a": Retry.MaxWait: -3ns is negative`: {Retry: timer.Retry{MaxAttempts: 2,
			MaxWait: -3}},
		`timer "a": Retry.MaxWait: 2562047h47m16.854775807s is more than 24h0m0s`: {Retry: timer.Retry{MaxAttempts: 2,
			MaxWait: 1<<63 - 1}},
		`timer "a": Retry.MaxWait: 1s is less than FirstWait (2s)`: {Retry: timer.Retry{MaxAttempts: 2,
			FirstWait: 2 * time.Second, MaxWait: time.Second}},
		`timer "a": Retry.FirstWait: 1s is not shorter than MaxRunTime (1s)`: {Retry: timer.Retry{MaxAttempts: 2},
			MaxRunTime: time.Second},
		`timer "a": Retry.FirstWait: 1h0m0s is not shorter than MaxRunTime (1h0m0s)`: {Retry: timer.Retry{
			MaxAttempts: 2, FirstWait: time.Hour}},
	} {
		tm.Name, tm.Run = "a", nop
		tm.AlarmAfter = -7
		_, err := timer.New(timer.Config{}, tm)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "AlarmAfter: -7") {
			t.Errorf("err %v\nwant %s", err, want)
		}
	}
	for _, retry := range []timer.Retry{
		{}, {MaxAttempts: 1}, {MaxAttempts: 1, FirstWait: 2 * time.Hour}, {MaxAttempts: 1000},
		{MaxAttempts: 2, FirstWait: 2 * time.Minute},
		{MaxAttempts: 2, MaxWait: time.Millisecond}, {MaxAttempts: 2, FirstWait: 1, MaxWait: 24 * time.Hour},
	} {
		if _, err := timer.New(timer.Config{}, timer.Timer{Name: "a", Run: nop, Retry: retry}); err != nil {
			t.Error(err)
		}
	}
}
