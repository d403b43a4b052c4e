package timer

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// No attempt begins while the lease cannot be trusted, even if the run's context has not been
// canceled yet, because the host may have been suspended during the wait. The attempt begins once
// the run continues without the store. It never begins if the context ends instead.
//
// Fails when waitToRetry checks only the context (it then returns too early), gives up immediately,
// or ends not with the context but at its next check.
func TestI2NoRetryWithoutAValidLease(t *testing.T) {
	for _, goesOn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(t.Context())
			lease, err := session.Semaphore("timer:a", 1).TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			n, s := &runner{registry: newRegistry(Config{}), ledger: new(ledger),
				log:     newLineLog(slog.New(slog.DiscardHandler)),
				runHost: runHost{base: ctx}},
				inForce(&settings{timer: Timer{MaxRunTime: time.Hour}})
			n.registry.setPhase(PhaseRunning)
			r := &Run{settings: s, host: &n.runHost, startedAt: time.Now(),
				retrying: &retrying{alarm: time.NewTimer(0)}}
			r.ctx.run = r
			r.lease.Store(lease)
			began := time.Now()
			time.AfterFunc(10500*time.Millisecond, func() {
				if goesOn {
					r.degraded.Store(true)
				} else {
					cancel()
				}
			})
			yes := n.waitToRetry(s, r, time.Now().Add(3*time.Second))
			if took := time.Since(began); yes != goesOn || !goesOn && took != 10500*time.Millisecond ||
				took < 10500*time.Millisecond || took > 11*time.Second {
				t.Errorf("goes on %v: attempt %v after %v, want that after 10.5s", goesOn, yes, took)
			}
			cancel()
		})
	}
}

// Extreme values of a Retry cause neither a busy loop nor an overflow.
//
// Fails when a quarter is subtracted by multiplying (the first wait of 1 ns becomes 0, and so do
// all others), or when the longest accepted wait overflows.
func TestRetryWaitsAtTheExtremes(t *testing.T) {
	for _, p := range []Retry{{FirstWait: 1, MaxWait: maxRetryWait}, {FirstWait: maxRetryWait, MaxWait: maxRetryWait},
		{FirstWait: 1, MaxWait: 1}} {
		b := p.withDefaults().backOff()
		for i := range maxRetryAttempts {
			if wait := b.NextBackOff(); wait < p.FirstWait/2 || wait > p.MaxWait+1 || i > 60 && wait < p.MaxWait/2 {
				t.Fatalf("%+v: wait %d is %v", p, i, wait)
			}
		}
	}
}

// A run that does not fail costs the same with and without Retry. So does a run that fails
// permanently.
//
// Fails when the waits are created before they are needed.
func TestRetryCostsNothingUntilItIsNeeded(t *testing.T) {
	fail := errors.New("no")
	allocs := func(retry Retry, err error) float64 {
		s, newErr := New(Config{Logger: slog.New(slog.DiscardHandler)},
			Timer{Name: "a", Retry: retry, Run: func(context.Context) error { return err }})
		if newErr != nil {
			t.Fatal(newErr)
		}
		s.start(context.Background())
		set := s.registry.get("a")
		return testing.AllocsPerRun(1000, func() {
			s.registry.enter(set, unlimited)
			s.runner.carryOut(s.runner.startRun(tick{s: set}, nil, nil, false))
		})
	}
	for name, err := range map[string]error{"success": nil, "permanent": Permanent(fail)} {
		without, with := allocs(Retry{}, err), allocs(Retry{MaxAttempts: 5, FirstWait: time.Millisecond}, err)
		t.Logf("%s: %v allocations without Retry, %v with", name, without, with)
		// The margin of one covers the duration in the log line, which a run of less than 256 ns
		// logs without an allocation. The waits would take three.
		if with > without+1 {
			t.Errorf("%s: %v allocations with Retry, %v without", name, with, without)
		}
	}
}
