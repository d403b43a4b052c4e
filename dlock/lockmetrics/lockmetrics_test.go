package lockmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/lockmetrics"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// open returns a session whose metrics are in a registry.
func open(t *testing.T, store dlock.DistributedLock, o lockmetrics.Options, own dlock.Hooks) (
	*dlock.Session, *prometheus.Registry,
) {
	t.Helper()
	m, reg := lockmetrics.New(o), prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	session, err := dlock.NewSession(store, dlock.SessionOptions{Hooks: m.Hooks(own)})
	if err != nil {
		t.Fatal(err)
	}
	return session, reg
}

// values returns the values of counters and the number of observations of histograms, by name and
// labels.
func values(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	synctest.Wait() // until hooks have been called
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), "tickslot_lock_")
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			got[key] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if h := m.GetHistogram(); h != nil {
				got[key+" sum"] = h.GetSampleSum()
			}
		}
	}
	return got
}

func expect(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for key, value := range want {
		if n, there := got[key]; !there || n != value {
			t.Errorf("%s is %v (there: %t), want %v", key, n, there, value)
		}
	}
	if t.Failed() {
		for key, value := range got {
			t.Log(key, value)
		}
	}
}

// The metrics count attempts, the wait of a blocking Acquire, how long leases were held, lost
// leases and expired leases. Every metric passes Prometheus' linter. Counters that alerts use begin
// at 0 when a lock is first seen.
//
// Fails when a refusal counts as an error, wait is measured from the last attempt, ended does not
// count lost leases, and begin omits a counter.
func TestLocksAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		link := dlocktest.NewFaulty(store)
		session, reg := open(t, link, lockmetrics.Options{}, dlock.Hooks{})
		a := session.Mutex("a")
		lease, err := a.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expect(t, values(t, reg), map[string]float64{"attempts_total a acquired": 1, "wait_duration_seconds a": 1,
			"lost_total a": 0, "expired_total a": 0, "store_errors_total extend": 0})
		if _, err := a.TryAcquire(t.Context()); !errors.Is(err, dlock.ErrNotAcquired) {
			t.Fatal(err)
		}
		time.AfterFunc(7*time.Second, func() { _ = lease.Release(t.Context()) })
		lease, err = a.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := values(t, reg)
		expect(t, got, map[string]float64{"attempts_total a acquired": 2, "wait_duration_seconds a": 2,
			"hold_duration_seconds a": 1, "hold_duration_seconds a sum": 7, "renewals_total a ok": 1})
		if waited := got["wait_duration_seconds a sum"]; waited < 7 || waited > 9 || got["attempts_total a full"] < 5 {
			t.Errorf("waited for %v s, refused %v times", waited, got["attempts_total a full"])
		}
		link.Inject(dlocktest.Error(errors.New("down")))
		<-lease.Context().Done()
		if _, err := session.Mutex("b").TryAcquire(t.Context()); err == nil {
			t.Fatal("the store is down")
		}
		link.Heal()
		time.Sleep(dlock.DefaultTTL)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		link.Inject(dlocktest.Hang)
		if _, err := session.Mutex("b").TryAcquire(ctx); err == nil {
			t.Fatal("the store hangs")
		}
		link.Heal()
		other, err := dlock.NewSession(store, dlock.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		dies, err := other.Mutex("c").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		dies.StopRenewing()
		time.Sleep(2 * dlock.DefaultTTL)
		lease, err = session.Mutex("c").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(lease.Release(t.Context()), session.Close(t.Context()),
			other.Close(t.Context())); err != nil {
			t.Error(err)
		}
		got = values(t, reg)
		expect(t, got, map[string]float64{"lost_total a": 1, "lost_total b": 0, "expired_total c": 1,
			"hold_duration_seconds a": 2, "hold_duration_seconds c": 1})
		if got["attempts_total b error"] == 0 || got["renewals_total a unknown"] == 0 ||
			got["store_errors_total acquire"] == 0 || got["store_call_duration_seconds extend"] == 0 {
			t.Errorf("%v", got)
		}
		problems, err := testutil.GatherAndLint(reg)
		if err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

// For any number of lock names, there are at most MaxLabels labels plus "other".
//
// Fails when label does not check the number.
func TestLabelsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, most := range []int{0, 3} {
			session, reg := open(t, memlock.New(), lockmetrics.Options{MaxLabels: most}, dlock.Hooks{})
			const n = 150
			for i := range n {
				lease, err := session.Mutex(fmt.Sprintf("order:%d", i)).TryAcquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if most == 0 {
				most = lockmetrics.DefaultMaxLabels
			}
			got, labels := values(t, reg), 0
			for key := range got {
				if strings.HasPrefix(key, "lost_total ") {
					labels++
				}
			}
			if labels != most+1 || got["attempts_total other acquired"] != float64(n-most) ||
				got["hold_duration_seconds other"] != float64(n-most) || got["attempts_total order:0 acquired"] != 1 {
				t.Errorf("%d labels, want %d and other: %v", labels, most, got)
			}
			if err := session.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Some faults of other code cost no count and no lease: a Label that panics or returns an invalid
// label, a store that invents reasons or gives none, and hooks of the user that panic. The user's
// hooks get every event that is counted. A refusal without a reason is not a failure of the store.
//
// Fails when callLabel does not recover; when label or resultOf accepts every text; when resultOf
// counts an error as a failure because it is not a *NotAcquiredError; when Refused does not check
// for a nil one; and when then calls own first.
func TestWhatOthersDoHarmsNoCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &odd{DistributedLock: memlock.New()}
		var told atomic.Int32
		session, reg := open(t, store, lockmetrics.Options{ClassicHistograms: true, Label: func(name string) string {
			switch name {
			case "panics":
				panic("oh")
			case "empty":
				return ""
			case "long":
				return strings.Repeat("a", driver.MaxNameLen+1)
			case "bytes":
				return "\xff\xfe"
			}
			return name
		}}, dlock.Hooks{
			Called:   func(dlock.StoreCall) { told.Add(1); panic("called") },
			Acquired: func(dlock.LeaseAcquired) { told.Add(1); panic("acquired") },
			Released: func(dlock.LeaseEnded) { told.Add(1); panic("released") },
		})
		for _, name := range []string{"panics", "empty", "long", "bytes"} {
			lease, err := session.Mutex(name).TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * dlock.DefaultTTL)
			if !lease.Valid() {
				t.Errorf("%s: %v", name, lease.Err())
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for _, err := range []error{&dlock.NotAcquiredError{Reason: "made up \xff"}, errors.New("down"),
			&dlock.NotAcquiredError{Reason: driver.ReasonTickEarly}, (*dlock.NotAcquiredError)(nil),
			fmt.Errorf("no: %w", dlock.ErrNotAcquired)} {
			before := told.Load()
			store.err = err
			if _, err := session.Mutex("a").TryAcquire(t.Context()); err == nil {
				t.Error("acquired")
			}
			if told.Load() == before {
				t.Errorf("%T: its own hook was not told", err)
			}
		}
		got := values(t, reg)
		expect(t, got, map[string]float64{"attempts_total other acquired": 4, "lost_total other": 0,
			"hold_duration_seconds other": 4, "attempts_total a other": 2, "attempts_total a tick_early": 1,
			"attempts_total a error": 4, "store_errors_total acquire": 4}) // two calls for each failure
		if got["renewals_total other ok"] < 20 || told.Load() < 20 {
			t.Errorf("told of %d: %v", told.Load(), got)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// odd refuses the locks that it is configured to refuse.
type odd struct {
	dlock.DistributedLock
	err error
}

func (s *odd) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if s.err != nil {
		return driver.Grant{}, s.err
	}
	return s.DistributedLock.TryAcquire(ctx, req)
}
