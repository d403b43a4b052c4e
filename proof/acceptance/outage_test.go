//go:build unix

package acceptance

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/internal/testkit"
)

// The server is paused for longer than a lease, so that nobody leads. Each process reports an error
// and the age of its data. When the server resumes, each process names the new leader without a
// restart.
//
// Fails when a snapshot hides a failed read, when an answer takes longer than a store call, and
// when a process gives up.
func TestStoreStandsStill(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"redis", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			if store != "redis" {
				testkit.Long(t)
			}
			f := newFleet(t, own(t, store))
			since := time.Now()
			must(t, f.ground.server.Pause())
			f.outage(since)
			must(t, f.ground.server.Resume())
			f.newLeader(time.Now(), ttl+retryInterval, f.members)
			f.end(f.members)
		})
	}
}

// The server is killed and restarted after longer than a lease, Redis without its data. Meanwhile
// each process reports that its data is stale. Afterwards each names the new leader. Redis, which
// may have lost a lease, grants none for a TTL.
//
// Fails when a host is not registered again after the registry was emptied.
func TestStoreIsKilled(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"redis", "postgres"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			testkit.Long(t)
			f := newFleet(t, own(t, store))
			since := time.Now()
			must(t, f.ground.server.Kill())
			f.outage(since)
			must(t, f.ground.server.Restart())
			f.newLeader(time.Now(), ttl+retryInterval, f.members)
			f.end(f.members)
		})
	}
}

// outage checks all answers during an outage that began at since.
func (f *fleet) outage(since time.Time) {
	f.t.Helper()
	f.within("each says that it knows no more", since, storeTimeout, f.members, knowsNoMore(since))
	f.within("nobody leads", since, ttl, f.members, func(_ *process, a answer) error {
		if a.Leading {
			return errors.New("it does")
		}
		return nil
	})
	testkit.Eventually(f.t, testkit.Patience, "all leases have ended", func() bool {
		return time.Since(since) > ttl+ttl/2
	})
	for _, p := range f.members {
		began := time.Now()
		a, err := p.ask()
		took := time.Since(began)
		if err == nil {
			err = knowsNoMore(began.Add(-ttl))(p, a)
		}
		if most := storeTimeout + f.late.Since(began) + slack; err != nil || took > most {
			f.t.Errorf("%s: after %v, want at most %v: %v", p.holder, took, most, err)
		}
	}
}

// An application's transaction holds the write lock of the SQLite file for longer than a lease.
// Nothing can be written, but the file can be read. So each process shows, without an error, that
// nobody leads and that the hosts are silent. When the lock is free again, each names the new
// leader.
//
// Fails when a snapshot needs the write lock.
func TestFileIsLocked(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	f := newFleet(t, sqliteOn(t))
	since := time.Now()
	release := f.ground.hold(t)
	f.within("each shows that nobody leads", since, ttl, f.members, func(_ *process, a answer) error {
		if a.Err != "" || a.Leading || len(a.Leaders) > 0 {
			return fmt.Errorf("it leads %v and names %v: %s", a.Leading, a.Leaders, a.Err)
		}
		return nil
	})
	for _, p := range f.members {
		f.sees(cluster.HostSuspect, p, since, ttl, f.members)
	}
	release()
	f.newLeader(time.Now(), ttl+retryInterval, f.members)
	f.end(f.members)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
