package billing

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// miniredis is a Redis inside the test: a real connection, real commands, no server to install.
// Real connections do not work with synctest (virtual time does not advance while a goroutine waits
// for the network), so here time is real, runs are started by Trigger instead of by the clock, and
// leases expire by FastForward.
func openRedis(t *testing.T) (*miniredis.Miniredis, *redislock.Store) {
	t.Helper()
	mini := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	lock := redislock.New(client, redislock.Options{Prefix: "test:", Embedded: true})
	t.Cleanup(func() { _, _ = lock.Close(), client.Close() })
	return mini, lock
}

func TestARunHoldsItsSlotInRedis(t *testing.T) {
	mini, lock := openRedis(t)
	began, finish := make(chan struct{}), make(chan struct{})
	host := startHost(t, lock, Jobs{RefreshRates: noRates, SendInvoices: func(context.Context, time.Time) error {
		close(began)
		<-finish
		return nil
	}})
	eventually(t, "the host is ready", func() bool { return host.Ready() == nil })

	if err := host.Trigger(t.Context(), sendInvoices); err != nil {
		t.Fatal(err)
	}
	<-began
	const key = "test:timer:send-invoices:slot:0"
	if ttl := mini.TTL(key); ttl <= 0 || ttl > dlock.DefaultTTL {
		t.Errorf("%s expires in %v, want more than nothing and at most %v", key, ttl, dlock.DefaultTTL)
	}
	// A second run is refused, and the error says why.
	err := host.Trigger(t.Context(), sendInvoices)
	if refused, ok := errors.AsType[*timer.RefusedError](err); !ok || refused.Reason != timer.ReasonHostFull {
		t.Errorf("a second run: %v, want it refused: %s", err, timer.ReasonHostFull)
	}

	close(finish)
	eventually(t, "the slot is free", func() bool { return !mini.Exists(key) })
}

func TestSlotOfADeadHostComesBack(t *testing.T) {
	mini, lock := openRedis(t)
	began := make(chan struct{}, 1)
	host := startHost(t, lock, Jobs{RefreshRates: noRates, SendInvoices: func(context.Context, time.Time) error {
		began <- struct{}{}
		return nil
	}})
	eventually(t, "the host is ready", func() bool { return host.Ready() == nil })

	// A dead host leaves a lease that is not renewed: one call to the store creates one.
	dead := dlock.Holder{Host: "dead-host", PID: 1, ID: "x"}
	if _, err := lock.TryAcquire(t.Context(), dlock.Request{
		Name: "timer:" + sendInvoices, Slots: 1, Holder: dead, Token: "token-of-the-dead", TTL: dlock.DefaultTTL,
	}); err != nil {
		t.Fatal(err)
	}

	err := host.Trigger(t.Context(), sendInvoices)
	no, ok := errors.AsType[*dlock.NotAcquiredError](err)
	if !ok || no.Reason != dlock.ReasonFull || no.Holder != dead {
		t.Fatalf("got %v, want it to be held by %v", err, dead)
	}

	mini.FastForward(dlock.DefaultTTL) // ages every lease in the server, including those in use
	if err := host.Trigger(t.Context(), sendInvoices); err != nil {
		t.Fatalf("after a TTL: %v", err)
	}
	<-began
}

// eventually waits for a condition that soon holds, and fails the test if it does not.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// Without Embedded there is an error at once: miniredis does not report when it was started, as a
// server that outlives this process must.
//
// Fails when timers run without a store that is set up wrongly.
func TestMiniredisThatIsNotSaidToBeEmbedded(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	lock := redislock.New(client, redislock.Options{Prefix: "test:"})
	defer func() { _, _ = lock.Close(), client.Close() }()
	s, err := timer.New(timer.Config{Lock: lock}, timer.Timer{Name: "a", Schedule: schedule.Every(time.Millisecond),
		Run: func(context.Context) error {
			t.Error("it ran without the store")
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if err := s.Run(ctx); !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "Embedded") {
		t.Errorf("Run returned %v", err)
	}
}
