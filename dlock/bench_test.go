package dlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// An instantStore answers immediately and allocates nothing, so that a benchmark measures only
// package dlock. It takes one call at a time.
type instantStore struct {
	refuses error
	results []driver.Result
	renewed int
}

func (s *instantStore) TryAcquire(_ context.Context, req driver.Request) (driver.Grant, error) {
	if s.refuses != nil {
		return driver.Grant{}, s.refuses
	}
	return driver.Grant{Name: req.Name, Slots: req.Slots, Token: req.Token, Fence: 1}, nil
}

func (s *instantStore) Extend(_ context.Context, _ time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	s.renewed += len(grants)
	return s.ok(len(grants)), nil
}

func (s *instantStore) Release(_ context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return s.ok(len(grants)), nil
}

func (s *instantStore) ok(n int) []driver.Result {
	for len(s.results) < n {
		s.results = append(s.results, driver.Result{Outcome: driver.GrantOK})
	}
	return s.results[:n]
}

func newInstant(t testing.TB) (*dlock.Session, *instantStore) {
	store := &instantStore{}
	store.ok(dlock.BeatBatch)
	session, err := dlock.NewSession(store, dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close(bg) })
	return session, store
}

func BenchmarkAcquireRelease(b *testing.B) {
	session, _ := newInstant(b)
	job := session.Semaphore("job", 3)
	b.ReportAllocs()
	for b.Loop() {
		lease, err := job.TryAcquire(bg)
		if err != nil {
			b.Fatal(err)
		}
		lease.Release(bg)
	}
}

func BenchmarkRefused(b *testing.B) {
	session, store := newInstant(b)
	store.refuses = &dlock.NotAcquiredError{Name: "job", Slots: 3, Reason: dlock.ReasonFull}
	job, tick := session.Semaphore("job", 3), driver.Tick{At: time.Now(), Max: 1}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := job.TryAcquireTick(bg, tick); err == nil {
			b.Fatal("acquired")
		}
	}
}

// Each iteration renews 10,000 leases once.
func BenchmarkBeat(b *testing.B) {
	session, store := newInstant(b)
	const n = 10_000
	for i := range n {
		if _, err := session.Mutex(fmt.Sprint("job-", i)).TryAcquire(bg); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		session.RenewAll()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/n, "ns/lease")
	if store.renewed < b.N*n {
		b.Errorf("%d renewed, want %d", store.renewed, b.N*n)
	}
}

func BenchmarkValid(b *testing.B) {
	session, _ := newInstant(b)
	lease, err := session.Mutex("job").TryAcquire(bg)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		lease.Valid()
	}
}

func BenchmarkSuspended(b *testing.B) {
	for b.Loop() {
		dlock.Suspended()
	}
}
