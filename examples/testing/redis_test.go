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
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// miniredis is a Redis inside the test: a real connection and real commands, with no server to
// install. Real connections do not work with synctest, because virtual time does not advance while
// a goroutine waits for the network. So time is real here, Trigger starts the runs, and FastForward
// expires the leases.
func openRedis(t *testing.T) (*miniredis.Miniredis, *redislock.Store) {
	t.Helper()
	mini := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	store := redislock.New(client, redislock.Options{Prefix: "test:", Embedded: true})
	t.Cleanup(func() { store.Close(); client.Close() })
	return mini, store
}

func TestARunHoldsItsSlotInRedis(t *testing.T) {
	mini, store := openRedis(t)
	began, finish := make(chan struct{}), make(chan struct{})
	host := startHost(t, store, Jobs{RefreshRates: noRates, SendInvoices: func(context.Context, time.Time) error {
		close(began)
		<-finish
		return nil
	}})
	<-host.Running() // from now on, Trigger can start runs

	if _, err := host.Trigger(t.Context(), sendInvoices, timer.TriggerOptions{}); err != nil {
		t.Fatal(err)
	}
	<-began
	const key = "test:timer:send-invoices:slot:0"
	if ttl := mini.TTL(key); ttl <= 0 || ttl > dlock.DefaultTTL {
		t.Errorf("%s expires in %v, want more than nothing and at most %v", key, ttl, dlock.DefaultTTL)
	}
	// A second run is refused, and the error says why.
	_, err := host.Trigger(t.Context(), sendInvoices, timer.TriggerOptions{})
	if refused, ok := errors.AsType[*timer.RefusedError](err); !ok || refused.Reason != timer.ReasonHostFull {
		t.Errorf("a second run: %v, want it refused: %s", err, timer.ReasonHostFull)
	}

	close(finish)
	eventually(t, "the slot is free", func() bool { return !mini.Exists(key) })
}

func TestSlotOfADeadHostComesBack(t *testing.T) {
	mini, store := openRedis(t)
	began := make(chan struct{}, 1)
	host := startHost(t, store, Jobs{RefreshRates: noRates, SendInvoices: func(context.Context, time.Time) error {
		began <- struct{}{}
		return nil
	}})
	<-host.Running() // from now on, Trigger can start runs

	// A dead host leaves a lease that nobody renews. One call to the store creates one.
	dead := dlock.Holder{Host: "dead-host", PID: 1, ID: "x"}
	if _, err := store.TryAcquire(t.Context(), driver.Request{
		Name: "timer:" + sendInvoices, Slots: 1, Holder: dead, Token: "token-of-the-dead", TTL: dlock.DefaultTTL,
	}); err != nil {
		t.Fatal(err)
	}

	// While the host still asks for a tick that it may have missed, Trigger is refused here.
	var no *dlock.NotAcquiredError
	eventually(t, "the store refuses it", func() bool {
		_, err := host.Trigger(t.Context(), sendInvoices, timer.TriggerOptions{})
		var ok bool
		no, ok = errors.AsType[*dlock.NotAcquiredError](err)
		return ok
	})
	if no.Reason != dlock.ReasonFull || no.Holder != dead {
		t.Fatalf("got %v, want it to be held by %v", no, dead)
	}

	mini.FastForward(dlock.DefaultTTL) // ages every lease in the server, including current ones
	if _, err := host.Trigger(t.Context(), sendInvoices, timer.TriggerOptions{}); err != nil {
		t.Fatalf("after a TTL: %v", err)
	}
	<-began
}

// eventually fails the test if a condition does not hold within 10 seconds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// Without Embedded, Run returns an error at once, and no timer runs. A server that outlives this
// process must report its start time, and miniredis does not.
//
// Fails when timers run although the store is set up wrongly.
func TestMiniredisNeedsEmbedded(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	store := redislock.New(client, redislock.Options{Prefix: "test:"})
	defer func() { store.Close(); client.Close() }()
	timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
		Name:     "a",
		Schedule: schedule.Every(time.Millisecond),
		Run: func(context.Context) error {
			t.Error("a run without the store")
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if err := timers.Run(ctx); !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "Embedded") {
		t.Errorf("Run returned %v", err)
	}
}
