package dlocktest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// bubble tests a Faulty around a memlock in virtual time.
func bubble(t *testing.T, test func(t *testing.T, f *dlocktest.Faulty)) {
	synctest.Test(t, func(t *testing.T) { test(t, dlocktest.NewFaulty(memlock.New())) })
}

// ask acquires "m" with a timeout of one second and returns how long the call took.
func ask(f *dlocktest.Faulty, token string) (grant driver.Grant, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	before := time.Now()
	grant, err = f.TryAcquire(ctx, driver.Request{Name: "m", Token: token, TTL: time.Hour})
	return grant, time.Since(before), err
}

// isHeld reports whether the lock is held.
func isHeld(t *testing.T, f *dlocktest.Faulty) bool {
	t.Helper()
	list, err := f.List(t.Context(), "m", 0)
	if err != nil {
		t.Fatal(err)
	}
	return len(list) > 0
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name    string
		fault   dlocktest.Fault
		err     error // nil if the lease is granted
		took    time.Duration
		applied bool
	}{
		{name: "none", applied: true},
		{name: "error", fault: dlocktest.Error(io.EOF), err: io.EOF},
		{name: "lost reply", fault: dlocktest.LostReply, err: dlocktest.ErrInjected, applied: true},
		{name: "silent reply", fault: dlocktest.SilentReply, err: context.DeadlineExceeded, took: time.Second,
			applied: true},
		{name: "hang", fault: dlocktest.Hang, err: context.DeadlineExceeded, took: time.Second},
		{name: "late", fault: dlocktest.Late(time.Minute), err: context.DeadlineExceeded, took: time.Second},
		{name: "late, while the caller is there", fault: dlocktest.Late(time.Millisecond),
			err: context.DeadlineExceeded, took: time.Second, applied: true},
		{name: "slow", fault: dlocktest.Slow(900 * time.Millisecond), took: 900 * time.Millisecond, applied: true},
		{name: "too slow", fault: dlocktest.Slow(1100 * time.Millisecond), err: dlocktest.ErrInjected,
			took: time.Second, applied: true},
		{name: "short", fault: dlocktest.Short, applied: true},
		{name: "patchy", fault: dlocktest.Patchy(io.EOF), applied: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *dlocktest.Faulty) {
				f.Inject(test.fault, dlocktest.OpAcquire)
				_, took, err := ask(f, "a")
				if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
					t.Errorf("error %v: want %v", err, test.err)
				}
				if errors.Is(err, driver.ErrNotAcquired) {
					t.Errorf("a fault looks like a refusal: %v", err)
				}
				if took != test.took {
					t.Errorf("took %v: want %v", took, test.took)
				}
				if got := isHeld(t, f); got != test.applied {
					t.Errorf("applied: %v, want %v", got, test.applied)
				}
			})
		})
	}
}

// A late refusal is still a refusal, not an error.
func TestSlowRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, f *dlocktest.Faulty) {
		ask(f, "a")
		f.Inject(dlocktest.Slow(time.Millisecond))
		if _, _, err := ask(f, "b"); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("error %v: want a refusal", err)
		}
	})
}

func TestPanic(t *testing.T) {
	bubble(t, func(t *testing.T, f *dlocktest.Faulty) {
		f.InjectN(1, dlocktest.Panic)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			ask(f, "a")
		}()
		if isHeld(t, f) {
			t.Error("the request was applied")
		}
		if _, _, err := ask(f, "a"); err != nil {
			t.Error(err)
		}
	})
}

func TestLateRequestArrives(t *testing.T) {
	bubble(t, func(t *testing.T, f *dlocktest.Faulty) {
		f.Inject(dlocktest.Late(time.Minute), dlocktest.OpAcquire)
		ask(f, "a")
		time.Sleep(time.Minute - time.Second - time.Nanosecond)
		synctest.Wait()
		if isHeld(t, f) {
			t.Fatal("it arrived too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !isHeld(t, f) {
			t.Fatal("it did not arrive")
		}
	})
}

func TestHeal(t *testing.T) {
	bubble(t, func(t *testing.T, f *dlocktest.Faulty) {
		f.Inject(dlocktest.Late(time.Hour), dlocktest.OpAcquire)
		ask(f, "a")

		f.Inject(dlocktest.Hang)
		f.InjectN(3, dlocktest.Error(io.EOF), dlocktest.OpExtend)
		returned := make(chan error)
		go func() {
			_, err := f.Release(context.Background(), driver.Grant{Name: "m", Token: "a"})
			returned <- err
		}()
		synctest.Wait()
		f.Heal()
		if !isHeld(t, f) {
			t.Error("the late request has not arrived when Heal returns")
		}
		if err := <-returned; !errors.Is(err, dlocktest.ErrInjected) {
			t.Errorf("a call that hung came back with %v", err)
		}
		if results, err := f.Extend(t.Context(), time.Hour, driver.Grant{Name: "m", Token: "a"}); err != nil ||
			results[0].Outcome != driver.GrantOK {
			t.Errorf("after Heal: %v, %v", results, err)
		}
	})
}

func TestInjectN(t *testing.T) {
	bubble(t, func(t *testing.T, f *dlocktest.Faulty) {
		standing, counted := errors.New("standing"), errors.New("counted")
		f.InjectN(1, dlocktest.Fault{}) // lets one call through
		f.InjectN(2, dlocktest.Error(counted), dlocktest.OpAcquire)
		f.Inject(dlocktest.Error(standing), dlocktest.OpAcquire, dlocktest.OpRelease)
		for i, want := range []error{nil, counted, counted, standing, standing} {
			if _, _, err := ask(f, "a"); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("call %d: %v, want %v", i, err, want)
			}
		}
		if _, err := f.Extend(t.Context(), time.Hour); err != nil {
			t.Errorf("extend: %v, want no fault", err)
		}
		f.Inject(dlocktest.Fault{}, dlocktest.OpRelease)
		if _, err := f.Release(t.Context()); err != nil {
			t.Errorf("release: %v, want no fault", err)
		}
		for op, want := range map[dlocktest.Op]int{dlocktest.OpAcquire: 5, dlocktest.OpExtend: 1,
			dlocktest.OpRelease: 1} {
			if got := f.Calls(op); got != want {
				t.Errorf("%d calls of %v: want %d", got, op, want)
			}
		}
	})
}

func TestBatchFaults(t *testing.T) {
	bubble(t, func(t *testing.T, f *dlocktest.Faulty) {
		grant, _, _ := ask(f, "a")
		stranger := driver.Grant{Name: "m", Token: "stranger"}
		f.InjectN(1, dlocktest.Short)
		if results, err := f.Extend(t.Context(), time.Hour, stranger, grant); err != nil || len(results) != 1 ||
			results[0].Outcome != driver.GrantLost {
			t.Errorf("short: %v, %v", results, err)
		}
		f.Inject(dlocktest.Patchy(io.EOF))
		results, err := f.Release(t.Context(), stranger, grant, stranger)
		if err != nil || len(results) != 3 || results[0].Outcome != driver.GrantLost ||
			results[1].Outcome != driver.GrantUnknown || results[1].Err != io.EOF ||
			results[2].Outcome != driver.GrantLost {
			t.Errorf("patchy: %v, %v", results, err)
		}
		if !isHeld(t, f) {
			t.Error("the grant that was not reached was released")
		}
		if results, err := f.Release(t.Context(), grant); err != nil || results[0].Outcome != driver.GrantOK {
			t.Errorf("patchy, the first: %v, %v", results, err)
		}
	})
}

// bare hides the optional interfaces of a store.
type bare struct{ driver.Store }

type bounded struct{ bare }

func (bounded) MaxTTL() time.Duration { return time.Minute }

func TestAbilitiesAreForwarded(t *testing.T) {
	f := dlocktest.NewFaulty(memlock.New())
	if _, err := f.List(t.Context(), "m", 0); err != nil {
		t.Error(err)
	}
	if page, err := f.Enumerate(t.Context(), "", 1); err != nil || len(page.Leases) > 0 {
		t.Error(page, err)
	}
	ann := driver.Cause{By: "ann"}
	if err := f.Update(t.Context(), "s", driver.Update{Trigger: &ann}); err != nil {
		t.Error(err)
	}
	if list, err := f.Inspect(t.Context(), "s"); err != nil || list[0].Trigger == nil {
		t.Errorf("overrides %+v, %v", list, err)
	}
	g, err := f.TryAcquire(t.Context(), driver.Request{Name: "s", Slots: 1, Token: "t", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Revoke(t.Context(), "s", g.Slot, g.Fence, ann); err != nil {
		t.Error(err)
	}
	if r, err := f.Extend(t.Context(), time.Minute, g); err != nil || r[0].RevokedBy == nil {
		t.Errorf("extend what is revoked: %+v, %v", r, err)
	}
	if f.String() != memlock.New().String() {
		t.Errorf("String %q", f)
	}
	f = dlocktest.NewFaulty(bare{memlock.New()})
	if _, err := f.List(t.Context(), "m", 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("List without a Lister: %v", err)
	}
	if _, err := f.Enumerate(t.Context(), "", 1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Enumerate without an Enumerator: %v", err)
	}
	_, err = f.Inspect(t.Context(), "s")
	for _, err := range []error{err, f.Update(t.Context(), "s", driver.Update{}),
		f.Revoke(t.Context(), "s", 0, 1, ann)} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("without a Controller: %v", err)
		}
	}
	if f.MaxTTL() != math.MaxInt64 {
		t.Errorf("MaxTTL without a bound: %v", f.MaxTTL())
	}
	if got := dlocktest.NewFaulty(bounded{bare{memlock.New()}}).MaxTTL(); got != time.Minute {
		t.Errorf("MaxTTL %v", got)
	}
	if _, err := dlock.NewSession(f, dlock.SessionOptions{}); err != nil {
		t.Error(err)
	}
}

// If a store stops answering, the lease is lost, and the error says that the store was silent.
func ExampleFaulty() {
	store := dlocktest.NewFaulty(memlock.New())
	session, _ := dlock.NewSession(store, dlock.SessionOptions{TTL: 150 * time.Millisecond,
		StoreTimeout: 50 * time.Millisecond})
	lease, _ := session.Mutex("report").TryAcquire(context.Background())

	store.Inject(dlocktest.Hang, dlocktest.OpExtend)
	<-lease.Done()
	fmt.Println("lost:", errors.Is(lease.Err(), dlock.ErrLost))

	store.Heal()
	session.Close(context.Background())
	// Output:
	// lost: true
}
