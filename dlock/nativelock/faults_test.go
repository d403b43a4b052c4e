package nativelock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/torture/crowd"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// onOwn is like onEach, but each subject has its own server, which the test may break.
func onOwn(t *testing.T, test func(t *testing.T, s subject)) {
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgresOn(t, sqltest.Postgres(t)))
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		test(t, mysqlOn(t, sqltest.MariaDB(t)))
	})
}

// When the server ends the session, all its locks are lost, and the next heartbeat reports the
// loss. Other hosts can get the locks immediately, and this process can acquire again with its next
// call.
//
// Fails when a dead connection is not replaced, when its leases are kept (a second acquire is
// refused, an extend is ok), and when acquire does not retry (an error).
func TestSessionKilled(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s subject) {
		a := s.open(t, nativelock.Options{})
		for range 2 {
			grants := []driver.Grant{
				mustGet(t, a, request("x", 0, time.Minute)), mustGet(t, a, request("s", 2, time.Minute)),
				mustGet(t, a, request("s", 2, time.Minute)),
			}
			s.kill(t)
			b := s.open(t, nativelock.Options{})
			mustGet(t, b, request("x", 0, time.Minute))
			results, err := a.Extend(t.Context(), time.Minute, grants...)
			outcomes(t, results, err, driver.GrantLost)
			results, err = a.Release(t.Context(), grants...)
			outcomes(t, results, err, driver.GrantLost)
			mustBeFull(t, a, request("x", 0, time.Minute))
			again := mustGet(t, a, request("s", 2, time.Minute))
			s.kill(t)
			mustGet(t, a, request("s", 2, time.Minute)) // without a heartbeat in between
			results, err = a.Extend(t.Context(), time.Minute, again)
			outcomes(t, results, err, driver.GrantLost)
			s.kill(t)
			results, err = a.Release(t.Context(), again)
			outcomes(t, results, err, driver.GrantLost)
		}
	})
}

// A server that is killed and restarted has no locks. Calls fail while it is down and succeed when
// it is back.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	onOwn(t, func(t *testing.T, s subject) {
		n := s.open(t, nativelock.Options{})
		held := mustGet(t, n, request("x", 0, time.Minute))
		if err := s.server.Kill(); err != nil {
			t.Fatal(err)
		}
		results, err := n.Extend(t.Context(), time.Minute, held)
		outcomes(t, results, err, driver.GrantLost)
		if _, err := n.TryAcquire(t.Context(), request("x", 0, time.Minute)); err == nil ||
			errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrFault) || errors.Is(err,
			driver.ErrSetup) {
			t.Errorf("while the server is away: %v", err)
		}
		if err := s.server.Restart(); err != nil {
			t.Fatal(err)
		}
		mustGet(t, n, request("x", 0, time.Minute))
	})
}

// A call that is cancelled while the server hangs costs no lease. The call continues, and its grant
// is found by its token. Close does not wait for it.
//
// Fails when calls run under the caller's context (the leases are lost), and when Close does not
// end the call in progress.
func TestCallersGo(t *testing.T) {
	t.Parallel()
	onOwn(t, func(t *testing.T, s subject) {
		n := s.open(t, nativelock.Options{})
		held := mustGet(t, n, request("x", 0, time.Minute))
		if err := s.server.Pause(); err != nil {
			t.Fatal(err)
		}
		late := request("late", 0, time.Minute)
		impatient := func(call func(ctx context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 2*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		for range 3 {
			impatient(func(ctx context.Context) error { _, err := n.TryAcquire(ctx, late); return err })
			impatient(func(ctx context.Context) error { _, err := n.Extend(ctx, time.Minute, held); return err })
		}
		time.Sleep(1500 * time.Millisecond) // longer than a call without leases continues
		if err := s.server.Resume(); err != nil {
			t.Fatal(err)
		}
		results, err := n.Extend(t.Context(), time.Minute, held)
		outcomes(t, results, err, driver.GrantOK)
		results, err = n.Release(t.Context(), driver.Grant{Name: "late", Slot: driver.AnySlot, Token: late.Token})
		outcomes(t, results, err, driver.GrantOK)
		if err := s.server.Pause(); err != nil {
			t.Fatal(err)
		}
		impatient(func(ctx context.Context) error { _, err := n.Extend(ctx, time.Minute, held); return err })
		began := time.Now()
		n.Close()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := s.server.Resume(); err != nil {
			t.Fatal(err)
		}
	})
}

// A connection that no longer answers is replaced when no answer could save a lease any more.
//
// Fails when a call in progress continues for as long as the driver lets it.
func TestI7NoAnswer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s subject) {
		proxy := servertest.NewProxyFor(t, s.server.Addr())
		s.dsn = strings.Replace(s.dsn, s.server.Addr(), proxy.Addr(), 1)
		n := s.open(t, nativelock.Options{})
		recovers := func(lost func(context.Context) error) {
			t.Helper()
			proxy.DropReplies(1)
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				if err := lost(ctx); err == nil || errors.Is(err, driver.ErrNotAcquired) {
					t.Errorf("%v, without an answer", err)
				}
				cancel()
			}
			testkit.Eventually(t, testkit.Patience, "another connection", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience/3)
				defer cancel()
				g, err := n.TryAcquire(ctx, request("y", 0, 2*time.Second))
				if err == nil {
					_, err = n.Release(ctx, g)
				}
				return err == nil
			})
		}
		// The server would wait forever.
		results, err := n.Release(t.Context(), mustGet(t, n, request("x", 0, time.Minute)))
		outcomes(t, results, err, driver.GrantOK)
		// All leases are short. On a busy machine, another reply than the first call's may be lost,
		// and a connection is kept until its leases have ended.
		recovers(func(ctx context.Context) error {
			_, err := n.TryAcquire(ctx, request("z", 0, 2*time.Second))
			return err
		})
		held := mustGet(t, n, request("x", 0, 2*time.Second))
		recovers(func(ctx context.Context) error { _, err := n.Extend(ctx, 2*time.Second, held); return err })
		results, err = n.Extend(t.Context(), time.Minute, held)
		outcomes(t, results, err, driver.GrantLost)
	})
}

// numbered gives each grant a different fence, so that a crowd can tell grants apart.
type numbered struct {
	driver.Store
	last *atomic.Int64
}

func (n numbered) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := n.Store.TryAcquire(ctx, req)
	g.Fence = driver.Fence(n.last.Add(1))
	return g, err
}

// While a server hangs for longer than a lease lasts, every call returns within StoreTimeout, no
// lease is valid beyond its trust window, and no slot has two valid holders. The crowd recovers
// with the server.
//
// Fails when calls wait for their turn without watching their context.
func TestI1I2I7Frozen(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	onOwn(t, func(t *testing.T, s subject) {
		open, last := s.hosts(t), new(atomic.Int64)
		c := crowd.Gather(t, crowdOptions, numbered{open(), last}, numbered{open(), last})
		c.Grants(20, 20*time.Second)
		for range 2 {
			froze := time.Now()
			if err := s.server.Pause(); err != nil {
				t.Fatal(err)
			}
			paused := time.Now()
			time.Sleep(5 * faultTTL / 2) // duration of the outage
			if n := c.ValidAfter(froze, paused.Add(c.TrustOf())); n > 0 {
				t.Errorf("%d leases were valid longer than %v after the server froze", n, c.TrustOf())
			}
			if err := s.server.Resume(); err != nil {
				t.Fatal(err)
			}
			c.Grants(10, 2*faultTTL+5*time.Second)
		}
		c.Disperse()
	})
}

// Timers without a limit per tick run on native locks and keep MaxConcurrency. A timer with a limit
// per tick is skipped with the reason.
//
// Fails when a session locks its own locks again (both hosts, or both runs of a host, hold one
// slot).
func TestTimers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s subject) {
		open := s.hosts(t)
		var now, most, runs, limited atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		var hosts []*timer.Scheduler
		for range 2 {
			timers, err := timer.New(timer.Config{Store: open(), TTL: 3 * time.Second},
				timer.Timer{Name: "job", Schedule: schedule.Every(20 * time.Millisecond), MaxConcurrency: 3,
					MaxPerTick: timer.NoLimit, OnStoreDown: timer.StoreDownSkip,
					Run: func(context.Context) error {
						n := now.Add(1)
						defer now.Add(-1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						runs.Add(1)
						time.Sleep(100 * time.Millisecond)
						return nil
					}},
				timer.Timer{Name: "limited", Schedule: schedule.Every(50 * time.Millisecond),
					OnStoreDown: timer.StoreDownSkip,
					Run:         func(context.Context) error { limited.Add(1); return nil }},
			)
			if err != nil {
				t.Fatal(err)
			}
			hosts = append(hosts, timers)
			go func() { ended <- timers.Run(ctx) }()
		}
		testkit.Eventually(t, time.Minute, "40 runs, three at once", func() bool {
			return runs.Load() >= 40 && most.Load() >= 3
		})
		for _, host := range hosts {
			for _, st := range host.Status().Timers {
				if st.Name == "limited" && st.Started > 0 {
					t.Errorf("%+v: must not run", st)
				}
			}
		}
		cancel()
		for range hosts {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if most.Load() > 3 || limited.Load() > 0 {
			t.Errorf("%d runs at once, want 3; %d runs of a timer with a limit per tick", most.Load(), limited.Load())
		}
	})
}

// A server that becomes read-only is being replaced. Its locks are lost, and nothing is granted
// until it is writable again.
//
// Fails when read_only is not part of the session in mysqlSession.
func TestReadOnlyMySQLGetLock(t *testing.T) {
	t.Parallel()
	s := mysqlOn(t, sqltest.MariaDB(t))
	n := s.open(t, nativelock.Options{})
	held := mustGet(t, n, request("x", 0, time.Minute))
	s.exec(t, "SET GLOBAL read_only = ON")
	results, err := n.Extend(t.Context(), time.Minute, held)
	outcomes(t, results, err, driver.GrantLost)
	for range 2 {
		_, err := n.TryAcquire(t.Context(), request("x", 0, time.Minute))
		if !errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), "connect to the primary") {
			t.Errorf("%v: must tell that the server is read-only", err)
		}
	}
	s.exec(t, "SET GLOBAL read_only = OFF")
	mustGet(t, n, request("x", 0, time.Minute))
	s.exec(t, "SET GLOBAL read_only = ON")
	if _, err := n.TryAcquire(t.Context(), request("y", 0, time.Minute)); !errors.Is(err, driver.ErrSetup) ||
		!strings.Contains(err.Error(), "connect to the primary") {
		t.Errorf("%v: must tell that the server is read-only", err)
	}
	if held := s.held(t, s.lock("", "mutex", 0, "x"), s.lock("", "mutex", 0, "y")); len(held) > 0 {
		t.Errorf("still locked: %v", held)
	}
}

// If a request has more locks than fit into one statement, several statements try and free them.
//
// Fails when the numbers of the second batch begin at 0 again.
func TestManyLocksMySQLGetLock(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s := mysql(t)
	n := s.open(t, nativelock.Options{})
	const slots, taken = 2100, 2050
	var locks []string
	for slot := range taken {
		locks = append(locks, "GET_LOCK('"+s.lock("", "slot", slot, "x")+"', 0)")
	}
	other, err := s.pool(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "DO "+strings.Join(locks, ", ")); err != nil {
		t.Fatal(err)
	}
	var grants []driver.Grant
	for slot := range slots - taken {
		g := mustGet(t, n, request("x", slots, time.Hour))
		if g.Slot != taken+slot {
			t.Fatalf("slot %d, want %d", g.Slot, taken+slot)
		}
		grants = append(grants, g)
	}
	mustBeFull(t, n, request("x", slots, time.Hour))
	for len(grants) < slots {
		grants = append(grants, mustGet(t, n, request(strconv.Itoa(len(grants)), 0, time.Hour)))
	}
	results, err := n.Extend(t.Context(), time.Hour, grants...)
	outcomes(t, results, err, driver.GrantOK)
	results, err = n.Release(t.Context(), grants...)
	outcomes(t, results, err, driver.GrantOK)
	for _, g := range []driver.Grant{grants[0], grants[999], grants[1000], grants[slots-1]} {
		mustGet(t, s.open(t, nativelock.Options{}), request(g.Name, g.Slots, time.Hour))
	}
}
