package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/torture/crowd"
)

// The master dies, Sentinel promotes the replica, and the store continues there after the
// quarantine. Leases never overlap. One of the sentinels hangs during the failover.
//
// Fails when the pool keeps the address of the first master (nothing is granted any more), and when
// the first sentinel of the list must answer.
func TestI1SentinelFailover(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	s := redistest.NewSentinel(t, redistest.SentinelOptions{Sentinels: 3})
	var stores []driver.Store
	for range 2 {
		stores = append(stores, openFailover(t, s, "", redislock.Options{QuarantineTTL: quarantineTTL}))
	}
	c := crowd.Gather(t, crowdOptions, stores...)
	c.Grants(20, 10*time.Second)
	must(t, s.Sentinels[0].Pause())
	defer s.Sentinels[0].Resume()
	must(t, s.Master.Kill())
	c.Grants(1, backWithin)
	c.Grants(20, testkit.Patience)
	c.Disperse()
}

// backWithin is the maximum time from the death of a master to the first grant of the new one.
const backWithin = 500*time.Millisecond + // down-after-milliseconds
	4*time.Second + // the election, and another one after twice failover-timeout
	time.Second + // until a host asks the sentinels again
	2*time.Second + // in which the host makes no calls
	quarantineTTL + time.Second + // in which the new master grants nothing
	2*faultTTL // as in any store: a TTL until the old leases have ended, and one for failed calls

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The sentinels and the replica lose contact with the master, but all hosts reach all servers.
// Another sentinel reaches only the old master and keeps naming it. Every host switches to the new
// master, however it started.
//
// Fails with connections that stay with the old master, and when the first answer of a sentinel
// counts. In both cases, two leases are valid for as long as the test checks.
func TestMasterThatOnlyHostsReach(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	s := redistest.NewSentinel(t, redistest.SentinelOptions{Sentinels: 3, Relays: true})
	r := newRivals(t, s)
	one := r.store()
	warm(t, one)
	r.join(one)
	r.granted(one)
	s.Relays[s.Master].BlackHole(true)
	must(t, s.FailedOver(s.Replica))
	blind, err := s.Watch(s.Master.Addr(), 1)
	must(t, err)
	defer blind.Close()
	addrs := append([]string{blind.Addr()}, s.SentinelAddrs()...)
	for range 3 { // hosts that start now
		r.join(openFailover(t, s, "", redislock.Options{QuarantineTTL: quarantineTTL}, addrs...))
	}
	r.watch(5 * time.Second)
	wantHolder(t, s.Replica)
}

// wantHolder waits until the slot is held on a server.
func wantHolder(t *testing.T, server *redistest.Server) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the slot is held", func() error {
		n, err := server.Client().Exists(t.Context(), "job:slot:0").Result()
		if err == nil && n == 0 {
			err = errors.New("nobody has the slot")
		}
		return err
	})
}

// The master's machine is suspended for longer than Sentinel waits, and then resumed. For ten
// seconds, until Sentinel demotes it, it acts as the master. A host that was idle meanwhile has
// connections to it but takes no lease there.
//
// Fails when connections to the old master are used without asking (two leases are valid for as
// long).
func TestMasterThatStoodStill(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	s := redistest.NewSentinel(t, redistest.SentinelOptions{Sentinels: 3})
	r := newRivals(t, s)
	one, two := r.store(), r.store()
	warm(t, one)
	warm(t, two)
	session := newSession(t, two, faultTTL, 300*time.Millisecond)
	lease, err := session.Semaphore("job", 1).TryAcquire(t.Context()) // makes the name known
	must(t, err)
	lease.Release(t.Context())
	must(t, s.Master.Pause())
	must(t, s.FailedOver(s.Replica))
	r.join(two)
	r.granted(two)
	must(t, s.Master.Resume())
	r.join(one)
	r.watch(5 * time.Second)
	if role := s.Master.Client().Do(t.Context(), "ROLE").Val().([]any)[0]; role != "master" {
		t.Errorf("the old master is a %v: nothing to see here", role)
	}
}

// A host is cut off together with the old master and one of three sentinels. It stops even if that
// sentinel names the old master, because a minority may have missed the failover.
//
// Fails when the answer of any single sentinel counts.
func TestHostsCutOffWithTheOldMaster(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	s := redistest.NewSentinel(t, redistest.SentinelOptions{Sentinels: 3, Relays: true})
	r := newRivals(t, s)
	var addrs []string
	var ways []*servertest.Proxy
	for _, addr := range s.SentinelAddrs() {
		way := servertest.NewProxyFor(t, addr)
		ways, addrs = append(ways, way), append(addrs, way.Addr())
	}
	one := openFailover(t, s, "", redislock.Options{QuarantineTTL: quarantineTTL}, addrs...)
	warm(t, one)
	r.join(one)
	r.granted(one)
	s.Relays[s.Master].BlackHole(true)
	ways[1].BlackHole(true)
	ways[2].BlackHole(true)
	must(t, s.FailedOver(s.Replica))
	other := r.store()
	r.join(other)
	r.granted(other)
	r.watch(2 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := one.List(ctx, "job", 1) // does not wait for a batch
	if err == nil || !strings.Contains(err.Error(), "of 3 sentinels name the same master") {
		t.Errorf("cut off: %v", err)
	}
}

// The sentinels lose a master for a long time and find it again when its successor hangs. They make
// it the master again before they have demoted it. It has the same replid as before, and does not
// know the grants of its successor.
//
// Fails when only the replid shows that a server took over (two leases are valid for a second or
// more).
func TestMasterAgainWithoutKnowing(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	const ttl = 10 * time.Second // longer than the failovers take
	s := redistest.NewSentinel(t, redistest.SentinelOptions{Sentinels: 3, Relays: true})
	opts := redislock.Options{QuarantineTTL: ttl}
	take := func(store *redislock.Store) (lease *dlock.Lease) {
		t.Helper()
		session := newSession(t, store, ttl, time.Second)
		testkit.Eventually(t, testkit.Patience, "a grant", func() (err error) {
			lease, err = session.Semaphore("job", 1).TryAcquire(t.Context())
			return err
		})
		return lease
	}
	take(openFailover(t, s, "", opts)).Release(t.Context()) // makes the name known
	s.Relays[s.Master].BlackHole(true)
	must(t, s.FailedOver(s.Replica))
	one := take(openFailover(t, s, "", opts))
	s.Relays[s.Master].BlackHole(false)
	must(t, s.Replica.Pause())
	defer s.Replica.Resume()
	must(t, s.FailedOver(s.Master))
	if !one.Valid() {
		servertest.Require(t, errors.New("a failover that takes less than a lease"),
			"this machine is too busy: run it again")
	}
	two := take(openFailover(t, s, "", opts))
	if one.Valid() {
		t.Errorf("two valid leases of a semaphore of one: fences %d and %d", one.Fence(), two.Fence())
	}
	if offset := s.Master.Client().InfoMap(t.Context(), "replication").Item("Replication",
		"second_repl_offset"); offset != "-1" {
		t.Errorf("the master was a replica meanwhile (%s): nothing to see here", offset)
	}
}

// A host learns of a failover immediately and renews its lease on the new master. The old master
// still works, and another host may still call it for a second. There the lease is not renewed and
// ends.
//
// Fails when a host calls the new master as soon as it learns of it: the old master grants the slot
// while its lease is valid on the new one.
func TestI1RenewedOnTheNewMaster(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for range 5 {
		if renewedOnTheNewMaster(t) {
			return
		}
	}
	servertest.Require(t, errors.New("a lease that is renewed until the failover"),
		"this machine is too busy: run it again")
}

// renewedOnTheNewMaster reports whether the lease was valid at the failover.
func renewedOnTheNewMaster(t *testing.T) bool {
	// The replica has the lease from before its promotion, which must last until the sentinels
	// agree. After that, the lease is so short that it ends on the old master within the second.
	const before, after = 3 * time.Second, 500 * time.Millisecond
	s := redistest.NewSentinel(t, redistest.SentinelOptions{Sentinels: 3})
	opts := redislock.Options{QuarantineTTL: before}
	first, last := openFailover(t, s, "", opts), openFailover(t, s, "", opts)
	ctx := t.Context()
	acquire := func(store *redislock.Store, token string) (driver.Grant, error) {
		return store.TryAcquire(ctx, driver.Request{Name: "job", Slots: 1, Token: token, TTL: before})
	}
	var lease driver.Grant
	testkit.Eventually(t, testkit.Patience, "a grant", func() (err error) {
		lease, err = acquire(first, "first")
		return err
	})
	valid := time.Now()
	renew := func(ttl time.Duration) {
		asked := time.Now()
		if results, err := first.Extend(ctx, ttl, lease); err == nil && results[0].Outcome == driver.GrantOK {
			valid = asked.Add(ttl)
		}
	}
	// The sentinel refuses until it knows the replica.
	testkit.Eventually(t, testkit.Patience, "the sentinel begins a failover", func() error {
		renew(before)
		return s.Sentinels[0].Client().Do(ctx, "SENTINEL", "FAILOVER", s.MasterName()).Err()
	})
	_, _ = acquire(last, "last") // opens its connections
	testkit.Eventually(t, testkit.Patience, "the replica is promoted", func() error {
		renew(before)
		if role := s.Replica.Client().Do(ctx, "ROLE").Val().([]any)[0]; role != "master" {
			return fmt.Errorf("the replica is a %v", role)
		}
		return nil
	})
	for switched := 0; switched <= len(s.Sentinels)/2 && time.Now().Before(valid.Add(before)); {
		renew(after)
		last.TrustMaster()
		switched = 0
		for _, w := range s.Sentinels {
			addr, err := w.Client().Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName()).StringSlice()
			must(t, err)
			if net.JoinHostPort(addr[0], addr[1]) == s.Replica.Addr() {
				switched++
			}
		}
	}
	first.AskSentinels()
	if time.Now().After(valid) {
		return false
	}
	for attempt, end := 0, time.Now().Add(1500*time.Millisecond); time.Now().Before(end); attempt++ {
		renew(after)
		if _, err := acquire(last, fmt.Sprint("last", attempt)); err == nil {
			if left := time.Until(valid); left > 0 {
				t.Errorf("granted while the lease of another is valid for %v", left)
			}
			break
		}
		time.Sleep(10 * time.Millisecond) // a pause between attempts
	}
	return true
}

// Calls in flight to the old master end when another call learns of a new one.
//
// Fails when the old connections stay open: the calls wait for their deadline.
func TestCallsToTheOldMasterEnd(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	s := redistest.NewSentinel(t, redistest.SentinelOptions{})
	store := openFailover(t, s, "", redislock.Options{QuarantineTTL: quarantineTTL})
	warm(t, store)
	must(t, s.Master.Pause())
	defer s.Master.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := store.List(ctx, "job", 1)
		ended <- err
	}()
	must(t, s.FailedOver(s.Replica))
	testkit.Eventually(t, testkit.Patience, "an answer", func() error {
		_, err := store.List(ctx, "job", 1)
		return err
	})
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a server that stands still has answered")
		}
	case <-time.After(2 * time.Second):
		t.Error("a call to the old master goes on")
	}
}

// A call to a master that hangs ends two seconds after the sentinels were asked, even if its
// context allows more. After that, this host may be the last one that treats the server as the
// master.
//
// Fails when only the call's own deadline ends it.
func TestCallEndsWithTheWordOfTheSentinels(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t)
	// This prevents a failover, which would end the call sooner.
	must(t, s.Sentinels[0].Client().Do(t.Context(), "SENTINEL", "SET", s.MasterName(), "down-after-milliseconds",
		time.Minute.Milliseconds()).Err())
	store := openFailover(t, s, "", redislock.Options{QuarantineTTL: quarantineTTL})
	awake(t, store)
	must(t, s.Master.Pause())
	defer s.Master.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store.AskSentinels()
	began := time.Now()
	_, err := store.List(ctx, "job", 1)
	took := time.Since(began)
	if err == nil || took < time.Second || took > 4*time.Second { // a read from a connection takes at most 5 s
		t.Errorf("after %v: %v", took, err)
	}
}

// If a process or machine was paused, a reply may be read long after the sentinels were asked. It
// is then an error, because its slot may have another holder. This also applies to each reply of a
// pipeline in which another command failed, and to an empty reply.
//
// Fails when only deadlines end a call, and when the time is not checked after a failure.
func TestReplyThatIsReadTooLate(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t)
	// On a busy machine, the pauses below would last long enough for a failover.
	must(t, s.Sentinels[0].Client().Do(t.Context(), "SENTINEL", "SET", s.MasterName(), "down-after-milliseconds",
		60_000).Err())
	store := openFailover(t, s, "", redislock.Options{QuarantineTTL: quarantineTTL})
	var lease driver.Grant
	testkit.Eventually(t, testkit.Patience, "a grant", func() (err error) {
		lease, err = store.TryAcquire(t.Context(),
			driver.Request{Name: "job", Slots: 1, Token: "late", TTL: quarantineTTL})
		return err
	})
	calls := map[string]func() []error{
		"a single call": func() []error {
			_, err := store.List(t.Context(), "job", 1)
			return []error{err}
		},
		"a pipeline": func() []error {
			_, err := store.Extend(t.Context(), quarantineTTL, lease)
			return []error{err}
		},
		"a single command that finds nothing": func() []error {
			return []error{store.Client().Get(t.Context(), "nothing").Err()}
		},
		"a pipeline with a command that fails": func() []error {
			pipe := store.Client().Pipeline()
			cmds := []redis.Cmder{pipe.Do(t.Context(), "UNKNOWN"), pipe.Get(t.Context(), "nothing"),
				pipe.Ping(t.Context())}
			_, err := pipe.Exec(t.Context())
			errs := []error{err}
			for _, cmd := range cmds {
				errs = append(errs, cmd.Err())
			}
			return errs
		},
	}
	for _, what := range []string{"a single call", "a pipeline"} { // the server knows the scripts
		for _, err := range calls[what]() {
			must(t, err)
		}
	}
	for what, call := range calls {
		must(t, s.Master.Pause())
		store.AskSentinels()
		ended := make(chan []error, 1)
		go func() { ended <- call() }()
		testkit.Eventually(t, testkit.Patience, "a call is under way", store.AskedSentinels)
		store.AgeMaster(2 * time.Second)
		must(t, s.Master.Resume())
		for i, err := range <-ended {
			if !errors.Is(err, redislock.ErrTooLate) {
				t.Errorf("%s: error %d: %v", what, i, err)
			}
		}
	}
}

// Fails when a host that makes calls all the time asks the sentinels before each call, or never
// again.
func TestSentinelsAreAskedOnceASecond(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t)
	way := redistest.NewCountingProxyFor(t, s.Sentinels[0].Addr())
	store := openFailover(t, s, "", redislock.Options{QuarantineTTL: quarantineTTL}, way.Addr())
	asked := func() int { return way.Commands()["SENTINEL"] / 2 } // two commands in one pipeline
	awake(t, store)
	before, calls, began := asked(), 0, time.Now()
	for ; time.Since(began) < 2500*time.Millisecond; calls++ {
		_, err := store.List(t.Context(), "job", 1)
		must(t, err)
	}
	if n, most := asked()-before, int(time.Since(began)/time.Second)+1; n < 2 || n > most || calls < 3*most {
		t.Errorf("asked %d times for %d calls in %v", n, calls, time.Since(began))
	}
}

// Fails when only the calls report an invalid setup, or when the error does not say how to fix it.
func TestFailoverSetUpWrongly(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string]*redis.FailoverOptions{
		"no *redis.FailoverOptions": nil,
		"MasterName is empty":       {SentinelAddrs: []string{"a:1"}},
		"SentinelAddrs is empty":    {MasterName: "m"},
		"names a sentinel twice":    {MasterName: "m", SentinelAddrs: []string{"a:1", "b:1", "a:1"}},
		"lead to replicas":          {MasterName: "m", SentinelAddrs: []string{"a:1"}, ReplicaOnly: true},
	} {
		store := redislock.NewFailover(opts, redislock.Options{})
		if err := store.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		must(t, store.Close())
	}
	store := redislock.NewFailover(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"a:1"}},
		redislock.Options{SharedPool: true})
	if err := store.Check(); err == nil || !strings.Contains(err.Error(), "SharedPool") {
		t.Error(err)
	}
	must(t, store.Close())
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"a:1"}})
	defer client.Close()
	if err := redislock.New(client, redislock.Options{}).Check(); err == nil ||
		!strings.Contains(err.Error(), "to NewFailover") {
		t.Error(err)
	}

	s := redistest.NewSentinel(t, redistest.SentinelOptions{})
	acquire := func(opts *redis.FailoverOptions) error {
		opts.SentinelAddrs = s.SentinelAddrs()
		store := redislock.NewFailover(opts, redislock.Options{})
		defer store.Close()
		_, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "a", TTL: quarantineTTL})
		return err
	}
	if err := acquire(&redis.FailoverOptions{MasterName: "other"}); !errors.Is(err, driver.ErrSetup) ||
		!strings.Contains(err.Error(), "MasterName") {
		t.Errorf("an unknown master: %v", err)
	}
	must(t, s.Sentinels[0].Client().Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">"+canary).Err())
	if err := acquire(&redis.FailoverOptions{MasterName: s.MasterName(), SentinelPassword: "wrong",
		Password: canary}); err == nil || !strings.Contains(err.Error(), "check user, password and ACL") {
		t.Errorf("a password that the sentinels do not know: %v", err)
	}
}
