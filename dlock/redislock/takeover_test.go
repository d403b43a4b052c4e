package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

// In this file, servers take over from each other, come back, and have their clocks set. Nothing is
// granted before earlier leases have ended.

// forms are the forms of the keys. Each records the start of a server at a different key.
var forms = map[string]redislock.KeyForm{"plain": redislock.KeysPlain, "tagged": redislock.KeysTagged}

// A master fails over to another server and back. It is the same process, but it lacks the other
// server's writes.
//
// Fails when the server is identified by its run_id, which has not changed.
func TestI1FailoverAndBack(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for form, keys := range forms {
		for _, meanwhile := range []bool{false, true} { // the other server grants, and so records its run
			t.Run(fmt.Sprint(form, meanwhile), func(t *testing.T) {
				t.Parallel()
				p := newPair(t)
				ctx := t.Context()
				a, b := p.formed(p.master, keys), p.formed(p.replica, keys)
				awake(t, a)
				request := func(token string, slots int) driver.Request {
					return driver.Request{Name: "a", Slots: slots, Token: token, TTL: pairTTL}
				}
				held := untilGranted(t, a, request("first", 2))
				p.caughtUp()
				p.promote()
				back := servertest.NewProxyFor(t, p.replica.Addr())
				_, port, _ := strings.Cut(back.Addr(), ":")
				if err := p.master.Client().ReplicaOf(ctx, "127.0.0.1", port).Err(); err != nil {
					t.Fatal(err)
				}
				inSync(t, p.master)
				back.BlackHole(true) // b's later writes do not reach a
				extend := func() time.Time {
					t.Helper()
					sent := time.Now()
					if r, err := b.Extend(ctx, pairTTL, held); err != nil || r[0].Outcome != driver.GrantOK {
						t.Fatal(r, err)
					}
					return sent
				}
				for began := time.Now(); time.Since(began) < 3*pairTTL/2; {
					extend()
					if meanwhile {
						meanwhile = false
						_, err := b.TryAcquire(ctx, request("second", 2))
						if err != nil && !isReason(err, driver.ReasonQuarantine) {
							t.Fatal(err)
						}
					}
					time.Sleep(pairTTL / 10) // until the next heartbeat
				}
				until := extend().Add(pairTTL)
				if err := p.master.Client().ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
					t.Fatal(err)
				}
				_, early := a.TryAcquire(ctx, request("third", 1))
				g := untilGranted(t, a, request("third", 1))
				if time.Now().Before(until) {
					t.Errorf("two valid leases of slot 0: the fences are %d and %d", held.Fence, g.Fence)
				}
				if !isReason(early, driver.ReasonQuarantine) {
					t.Errorf("no quarantine was seen: %v", early)
				}
			})
		}
	}
}

// formed returns a store with another prefix and the given form of the keys.
func (p *pair) formed(s *redistest.Server, keys redislock.KeyForm) *redislock.Store {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: canary})
	p.t.Cleanup(func() { client.Close() })
	return open(p.t, client, redislock.Options{Prefix: "formed:", QuarantineTTL: pairTTL, Keys: keys})
}

// inSync waits until a replica has its master's data.
func inSync(t *testing.T, s *redistest.Server) {
	t.Helper()
	err := testkit.Poll(10*time.Second, "replica", func(ctx context.Context) error {
		info, err := s.Client().Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = fmt.Errorf("not in sync: %s", info)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// untilGranted repeats the request until the quarantine is over.
func untilGranted(t *testing.T, store *redislock.Store, req driver.Request) (g driver.Grant) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, "a grant", func() (err error) {
		g, err = store.TryAcquire(t.Context(), req)
		if err != nil && !isReason(err, driver.ReasonQuarantine) {
			t.Fatal(err)
		}
		return err
	})
	return g
}

// A quarantine is not shortened by the part of a millisecond that had passed at its beginning.
// Scripts truncate times to whole milliseconds.
//
// Fails when the takeover counts from the start of its millisecond.
func TestI1QuarantineIsNotAMillisecondShort(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.promote()
	_, err := p.onOther.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "token", TTL: pairTTL})
	no, _ := errors.AsType[*driver.NotAcquiredError](err)
	if !isReason(err, driver.ReasonQuarantine) || no.ExpiresIn <= pairTTL {
		t.Errorf("the takeover was noted just now: %+v, want that it ends in more than %v", err, pairTTL)
	}
}

// A replica lacks even the first grant of a name. When it takes over, it does not grant the name
// before that lease has ended, because the quarantine applies to the whole server. This also holds
// if the replica lacks the master's record of itself.
//
// Fails when an unknown name is granted because of the server's uptime alone.
func TestI1TakeoverWithoutTheFirstGrant(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for _, known := range []bool{true, false} { // whether the replica knows the prefix
		p := newPair(t)
		a, b := p.formed(p.master, redislock.KeysPlain), p.formed(p.replica, redislock.KeysPlain)
		if known {
			awake(t, a)
			p.caughtUp()
		}
		time.Sleep(2 * pairTTL) // otherwise the server would be refused as freshly started
		p.cut()
		sent := time.Now()
		first, err := a.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "first", TTL: pairTTL})
		if err != nil {
			t.Fatal(err)
		}
		p.promote()
		second := untilGranted(t, b, driver.Request{Name: "a", Token: "second", TTL: pairTTL})
		if since := time.Since(sent); since < pairTTL {
			t.Errorf("the prefix was known: %v; two valid leases, fences %d and %d, %v after the first was granted",
				known, first.Fence, second.Fence, since)
		}
	}
}

// A restart causes one quarantine, not one for each name. A restart long ago causes none, because
// the server reports that it has been a master since its start.
//
// Fails when only each name records which run of the server granted it last.
func TestRestartIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Persistence: redistest.AOF})
	client := redis.NewClient(&redis.Options{Password: canary, Addr: server.Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	request := func(name string) driver.Request {
		return driver.Request{Name: name, Token: "token", TTL: quarantineTTL}
	}
	names := []string{"a", "b", "c"}
	for _, wait := range []bool{true, false} { // for the first use of any name
		for _, name := range names {
			g := untilGranted(t, store, request(name))
			if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
				t.Fatal(r, err)
			}
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		if wait {
			if _, err := store.TryAcquire(t.Context(), request(names[0])); !isReason(err, driver.ReasonQuarantine) {
				t.Errorf("right after a restart: %v, want quarantine", err)
			}
			untilGranted(t, store, request(names[0]))
		} else {
			time.Sleep(quarantineTTL + 2*time.Second) // the uptime has whole seconds
		}
		for _, name := range append(names, "new") {
			if g, err := store.TryAcquire(t.Context(), request(name)); err != nil {
				t.Errorf("%s, first used long after a restart (another was used before: %t): %v", name, wait, err)
			} else if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
				t.Fatal(r, err)
			}
		}
	}
}

// A server's replid also changes when its first replica connects, and when it has had no replica
// for an hour. This is not a restart, and the server reports so. But on a Cluster, where keys may
// come from another node, each name has a quarantine.
//
// Fails when a server that has been a master since its start is quarantined whenever its replid
// changes.
func TestFirstReplicaIsNoRestart(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for form, keys := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			master := redistest.New(t)
			client := redis.NewClient(&redis.Options{Addr: master.Addr(), Password: canary})
			defer client.Close()
			store := open(t, client, redislock.Options{Keys: keys})
			request := func(name string) driver.Request {
				return driver.Request{Name: name, Token: name,
					TTL: quarantineTTL}
			}
			replid := func() string {
				info := client.Info(t.Context(), "replication").Val()
				_, info, _ = strings.Cut(info, "master_replid:")
				return info[:40]
			}
			untilGranted(t, store, request("a"))
			time.Sleep(quarantineTTL + 2*time.Second) // the uptime has whole seconds
			before := replid()
			replica := redistest.New(t, redistest.Options{Args: []string{"--replicaof", "127.0.0.1",
				fmt.Sprint(master.Port())}})
			inSync(t, replica)
			if replid() == before {
				t.Fatal("the same replid: there is nothing to see here")
			}
			for _, name := range []string{"a", "b"} {
				_, err := store.TryAcquire(t.Context(), request(name))
				if waits := form == "tagged" && name == "a"; waits && !isReason(err, driver.ReasonQuarantine) ||
					!waits && err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			untilGranted(t, store, request("a"))
		})
	}
}

// Without a quarantine, for services that do not reveal restarts, a server that restarts empty
// grants slots that others hold. The old holders learn of it with their next heartbeat, or within
// their trust window. Everything else works, although scripts may not call INFO.
//
// Fails when there is a quarantine, or when the old holder continues for longer.
func TestNoQuarantineIsAsWeakAsItSays(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Args: []string{"--rename-command", "INFO", ""}})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary})
	defer client.Close()
	store := open(t, client, redislock.Options{NoQuarantine: true})
	cycle(t, store)
	if _, err := store.TryAcquire(t.Context(), driver.Request{Name: "long", Token: "t",
		TTL: 2 * quarantineTTL}); err == nil {
		t.Error("a TTL beyond QuarantineTTL was accepted")
	}
	holder, other := newSession(t, store, quarantineTTL, quarantineTTL/3),
		newSession(t, store, quarantineTTL, quarantineTTL/3)
	for _, beats := range []bool{true, false} {
		first, err := holder.Mutex("a").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !beats {
			first.StopRenewing()
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.RestartEmpty(); err != nil {
			t.Fatal(err)
		}
		second, err := other.Mutex("a").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		granted := time.Now()
		for first.Valid() && time.Since(granted) < 2*quarantineTTL {
			time.Sleep(time.Millisecond) // until the next check, which a deadline limits
		}
		bound := quarantineTTL
		if beats {
			bound = 2 * quarantineTTL / 3 // a heartbeat may have failed while the server was down
		}
		if both := time.Since(granted); both > bound {
			t.Errorf("its heartbeat comes through: %t; two were valid for %v, want at most %v", beats, both, bound)
		}
		if err := second.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// If a server restarts while its clock is an hour ahead, its quarantine is no longer than any other
// once the clock is correct.
//
// Fails when the end of the quarantine is stored and trusted.
func TestQuarantineNotedByAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for form, keys := range forms {
		server, clock := redistest.NewWithClock(t, redistest.Options{})
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: canary})
		defer client.Close()
		store := open(t, client, redislock.Options{Keys: keys})
		g := untilGranted(t, store, driver.Request{Name: "a", Token: "first", TTL: quarantineTTL})
		if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
		saved := client.HGetAll(t.Context(),
			store.Key("a")+":slot:mutex").Val() // restarts with its data, as another run
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		clock.Set(time.Hour)
		if err := server.RestartEmpty(); err != nil {
			t.Fatal(err)
		}
		client.HSet(t.Context(), store.Key("a")+":slot:mutex", saved)
		request := driver.Request{Name: "a", Token: "second", TTL: quarantineTTL}
		if _, err := store.TryAcquire(t.Context(), request); !isReason(err, driver.ReasonQuarantine) {
			t.Errorf("%s: right after the restart: %v, want quarantine", form, err)
		}
		clock.Set(0)
		began := time.Now()
		_, err := store.TryAcquire(t.Context(), request)
		if !isReason(err, driver.ReasonQuarantine) {
			t.Errorf("%s: the clock was put right: %v, want quarantine", form, err)
		}
		untilGranted(t, store, request)
		if took := time.Since(began); took > 3*quarantineTTL { // the quarantine restarts once
			t.Errorf("%s: granted %v after the clock was put right", form, took)
		}
	}
}

// A tick that was claimed while the clock was an hour ahead does not block the ticks of that hour.
//
// Fails when a recorded last tick in the future counts.
func TestTickFromTheFuture(t *testing.T) {
	t.Parallel()
	store, clock := clocked(t)
	for slots := range 2 {
		claim := func(token string, at time.Time) (driver.Grant, error) {
			return store.TryAcquire(t.Context(), driver.Request{Name: "a", Slots: slots, Token: token,
				TTL: quarantineTTL, Tick: &driver.Tick{At: at, Max: 1}})
		}
		clock.Set(time.Hour)
		g, err := claim("ahead", time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
		clock.Set(0)
		now := time.Now()
		if g, err = claim("right", now); err != nil {
			t.Errorf("%d slots: the clock was put right: %v", slots, err)
			continue
		}
		if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatal(r, err)
		}
		if _, err := claim("twice", now); !isReason(err, driver.ReasonTickTaken) {
			t.Errorf("%d slots: the same tick again: %v", slots, err)
		}
		if _, err := claim("late", now.Add(-time.Second)); !isReason(err, driver.ReasonTickLate) {
			t.Errorf("%d slots: an older tick: %v", slots, err)
		}
	}
}
