package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// A server that restarts empty votes again immediately, because there is no quarantine. Held leases
// survive if one of three servers restarts empty. They also survive if all three do, one after the
// other with a heartbeat in between.
//
// Fails when a heartbeat does not restore the key, and when one vote of three is enough.
func TestServerComesBackEmpty(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{0, 2} {
		servers, q, other := realQuorum(t)
		var held []driver.Grant
		for range max(1, slots) {
			g := quorumTake(t, q, quorumRequest(slots))
			votes(t, servers, g, 3)
			held = append(held, g)
		}
		for _, s := range servers {
			empty(t, s)
			quorumRefuses(t, other, quorumRequest(slots), driver.ReasonFull)
			for _, g := range held {
				votes(t, servers, g, 2)
				quorumExtend(t, q, driver.GrantOK, g)
				votes(t, servers, g, 3)
			}
		}
		for _, g := range held {
			quorumRelease(t, q, driver.GrantOK, g)
		}
	}
}

// If one server was down at the acquire and one of the other two then loses its data, the lease is
// lost, because two of three servers failed. The store grants a second lease, and both are trusted
// until the first holder's next heartbeat. But if a heartbeat came before the loss, the lease has
// three votes again and survives.
//
// Fails when a heartbeat does not restore the key, and when a heartbeat that a majority refused
// counts as a success.
func TestServerForgetsWhileAnotherWasAway(t *testing.T) {
	t.Parallel()
	servers, q, other := realQuorum(t)
	for _, beat := range []bool{true, false} {
		if err := servers[0].Kill(); err != nil {
			t.Fatal(err)
		}
		first := quorumTake(t, q, quorumRequest(0))
		if err := servers[0].RestartEmpty(); err != nil {
			t.Fatal(err)
		}
		votes(t, servers, first, 2)
		if beat {
			quorumExtend(t, q, driver.GrantOK, first)
			votes(t, servers, first, 3)
		}
		empty(t, servers[1])
		if beat {
			quorumRefuses(t, other, quorumRequest(0), driver.ReasonFull)
			quorumExtend(t, q, driver.GrantOK, first)
			quorumRelease(t, q, driver.GrantOK, first)
			continue
		}
		second := quorumTake(t, other, quorumRequest(0)) // the first lease is still trusted
		quorumExtend(t, q, driver.GrantLost, first)
		quorumRelease(t, q, driver.GrantLost, first)
		quorumExtend(t, other, driver.GrantOK, second)
		quorumRelease(t, other, driver.GrantOK, second)
	}
}

// realQuorum returns three servers and the stores of two hosts.
func realQuorum(t *testing.T) (servers []*redistest.Server, a, b *redlock.Store) {
	t.Helper()
	for range 3 {
		servers = append(servers, redistest.New(t))
	}
	host := func() *redlock.Store {
		var clients []redis.UniversalClient
		for _, s := range servers {
			client := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: canary})
			t.Cleanup(func() { client.Close() })
			clients = append(clients, client)
		}
		q := redlock.New(clients, redlock.Options{})
		t.Cleanup(func() { q.Close() })
		return q
	}
	return servers, host(), host()
}

// empty restarts the server without its data.
func empty(t *testing.T, s *redistest.Server) {
	t.Helper()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.RestartEmpty(); err != nil {
		t.Fatal(err)
	}
}

// votes waits until the given number of servers has the grant's token.
func votes(t *testing.T, servers []*redistest.Server, g driver.Grant, want int) {
	t.Helper()
	count := func() (n int) {
		for _, s := range servers {
			for _, key := range s.Client().Keys(context.Background(), g.Name+"*").Val() {
				if s.Client().Get(context.Background(), key).Val() == g.Token {
					n++
				}
			}
		}
		return n
	}
	// redsync does not wait for the last answer.
	testkit.Eventually(t, 5*time.Second, fmt.Sprint(want, " votes"), func() error {
		if n := count(); n != want {
			return fmt.Errorf("%d votes", n)
		}
		return nil
	})
}
