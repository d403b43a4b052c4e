//go:build unix

package acceptance

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/internal/testkit"
)

var storeNames = []string{"redis", "postgres", "sqlite"}

// The leader's process is killed (SIGKILL). Within a TTL, no survivor names it any more. Within
// another RetryInterval, each survivor names the new leader.
//
// Fails when an expired lease is shown as held, when a process identifies itself only by its host,
// and when a snapshot is shared for longer than a TTL.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	for _, store := range storeNames {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			if store == "sqlite" {
				testkit.Long(t) // examples/registry shows one round
			}
			f := newFleet(t, shared(t, store))
			for range testkit.Rounds(t, 1, 5) {
				dead := f.leader()
				survivors := f.without(dead)
				dead.signal(syscall.SIGKILL)
				since := time.Now()
				f.within("none names the dead leader", since, ttl, survivors, func(_ *process, a answer) error {
					for _, l := range a.Leaders {
						if l.Holder == dead.holder {
							return errors.New("it is named")
						}
					}
					return nil
				})
				f.newLeader(since, ttl+retryInterval, survivors)
				f.sees(cluster.HostGone, dead, since, 2*ttl, survivors)

				f.members = append(survivors, f.start())
				f.members[2].awaitAddress()
				f.newLeader(time.Now(), ttl, f.members) // as before, and the others see the new host
			}
			f.end(f.members)
		})
	}
}

// The leader's process is paused (SIGSTOP). The others see it as alive, suspect after a TTL, gone
// after two, and alive when it resumes. Then it names the new leader itself.
//
// Fails when a host is gone at once, when a resumed process sends its heartbeat only after a whole
// TTL, and when it believes that it still leads.
func TestLeaderStandsStill(t *testing.T) {
	t.Parallel()
	for _, store := range storeNames {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			if store != "redis" {
				testkit.Long(t)
			}
			f := newFleet(t, shared(t, store))
			still := f.leader()
			others := f.without(still)
			since := f.stop(still)
			f.sees(cluster.HostSuspect, still, since, ttl, others)
			suspect := time.Now()
			f.newLeader(since, ttl+retryInterval, others)
			f.sees(cluster.HostGone, still, since, 2*ttl, others)
			if took := time.Since(suspect); took < ttl/2 {
				t.Errorf("it is gone %v after it was suspect, want about %v", took, ttl)
			}
			still.signal(syscall.SIGCONT)
			f.newLeader(time.Now(), ttl, f.members)
			f.end(f.members)
		})
	}
}

// stop pauses a process at a moment when it does not block the others' writes, and returns the
// time.
func (f *fleet) stop(p *process) time.Time {
	f.t.Helper()
	for range 20 {
		p.signal(syscall.SIGSTOP)
		since := time.Now()
		if f.ground.free(f.t) {
			return since
		}
		p.signal(syscall.SIGCONT)
	}
	f.t.Fatal("whenever the process is stopped it holds the write lock")
	return time.Time{}
}

// The leader's link to the store drops everything. The leader reports that, the age of its data,
// and that it does not lead. The others see it as suspect, then gone, and name the new leader. When
// the link is back, the leader's process recovers.
//
// Fails when a snapshot hides a failed read, and when an answer takes longer than a store call.
func TestLeaderIsCutOff(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"redis", "postgres"} { // SQLite has no network
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			testkit.Long(t)
			f := newFleet(t, shared(t, store))
			cut := f.leader()
			others := f.without(cut)
			cut.link.BlackHole(true)
			since := time.Now()
			f.within("it says that it knows no more", since, storeTimeout, []*process{cut}, knowsNoMore(since))
			f.within("it does not lead, and the others name the new leader", since, ttl+retryInterval, f.members,
				func(p *process, a answer) error {
					switch {
					case p != cut:
						return a.right(others)
					case a.Leading:
						return errors.New("it leads")
					}
					return knowsNoMore(since)(p, a)
				})
			f.sees(cluster.HostGone, cut, since, 2*ttl, others)
			f.within("it still says so", time.Now(), storeTimeout, []*process{cut}, knowsNoMore(since))
			cut.link.BlackHole(false)
			f.newLeader(time.Now(), ttl, f.members)
			f.end(f.members)
		})
	}
}

// knowsNoMore accepts an answer that has an error and data read before an instant.
func knowsNoMore(since time.Time) func(*process, answer) error {
	return func(_ *process, a answer) error {
		switch {
		case a.Err == "":
			return errors.New("it has no error")
		case a.ReadAge < time.Since(since)-slack:
			return fmt.Errorf("its age is %v", a.ReadAge)
		case len(a.Hosts) != 3 || len(a.Leaders) != 1:
			return fmt.Errorf("it does not show what it knew: %+v", a)
		}
		return nil
	}
}
