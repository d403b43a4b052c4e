package dlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// An unanswered heartbeat is repeated after TTL/10 to TTL/10 + TTL/20, until the window closes.
// After an answer, the interval is TTL/3 again. A single failure never ends the heartbeat.
//
// Fails when beat does not shorten the wait after a failure, when retryWait is TTL/2 and, for
// "panics", when the call does not recover.
func TestUnansweredHeartbeatIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		fault dlocktest.Fault
		takes time.Duration
	}{
		"fails":             {down, 0},
		"hangs":             {dlocktest.Hang, timeout},
		"panics":            {dlocktest.Panic, 0},
		"loses the reply":   {dlocktest.LostReply, 0},
		"answers too short": {dlocktest.Short, 0},
		"knows nothing":     {dlocktest.Fault{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The TTL leaves time for two pauses before the last third of the window.
				const ttl, beat = 300 * time.Second, 100 * time.Second
				h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout})
				if name == "knows nothing" { // the answer is complete but says Unknown
					calls := 0
					h.spy.onExtend = func(results []driver.Result, err error) ([]driver.Result, error) {
						if calls++; calls <= 2 {
							results[0] = driver.Result{Outcome: driver.GrantUnknown}
						}
						return results, err
					}
				}
				lease := h.take(t, "job", 1)
				h.faulty.InjectN(2, c.fault, dlocktest.OpExtend)
				advance(20 * time.Minute)
				wantHeld(t, lease)
				calls := h.spy.extended()
				for i := 1; i < len(calls); i++ {
					gap := calls[i].at.Sub(calls[i-1].at)
					if i <= 2 {
						if gap -= c.takes; gap < ttl/10 || gap > ttl/10+ttl/20 {
							t.Errorf("repeated after %v, want %v to %v", gap, ttl/10, ttl/10+ttl/20)
						}
					} else if gap != beat {
						t.Errorf("beat %d came after %v, want %v", i, gap, beat)
					}
				}
			})
		})
	}
}

// A store that is back shortly before the window closes is noticed in time. In the last third of
// the window, the session calls it every half StoreTimeout with a timeout of the same length, and
// no more often even if calls fail fast.
//
// Fails when renew pauses as before, or waits for a whole StoreTimeout.
func TestLastThirdOfTheWindow(t *testing.T) {
	for name, fault := range map[string]dlocktest.Fault{"fails": down, "hangs": dlocktest.Hang} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // because the pauses are random
				synctest.Test(t, func(t *testing.T) {
					h := newHost(t, memlock.New(), dlock.SessionOptions{})
					lease := h.take(t, "job", 1)
					start := time.Now()
					h.faulty.Inject(fault, dlocktest.OpExtend)
					time.Sleep(trusted - timeout/2 - time.Millisecond)
					h.faulty.Heal()
					advance(2 * ttl)
					wantHeld(t, lease)
					late := 0
					calls := h.spy.extended()
					for i, c := range calls {
						if at := c.at.Sub(start); at >= trusted*2/3 && at < trusted && i > 0 {
							late++
							if gap := c.at.Sub(calls[i-1].at); gap < timeout/2 {
								t.Errorf("asked again after %v", gap)
							}
						}
					}
					if late < 2 {
						t.Errorf("%d calls in the last third of the window", late)
					}
				})
			}
		})
	}
}

// Failed leases wait for their retry and do not take the calls of leases that are not due yet.
//
// Fails when nextRenewal ignores failing (the retry comes after beat/2, too early).
func TestRetryIsNotHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		for _, name := range names("job", 10*dlock.BeatBatch) {
			h.take(t, name, 1)
		}
		h.faulty.Inject(down, dlocktest.OpExtend)
		advance(beat - time.Millisecond) // no lease is due yet
		tried := map[string]time.Time{}
		for _, c := range h.spy.extended() {
			name := c.grants[0].Name
			if before, ok := tried[name]; ok && c.at.Sub(before) < ttl/10 {
				t.Errorf("asked again after %v, want %v at least", c.at.Sub(before), ttl/10)
			}
			tried[name] = c.at
		}
		if len(h.spy.extended()) < 2 {
			t.Error("the test is wrong: nothing was asked again")
		}
	})
}
