package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/testkit"
)

// While somebody has a table locked, calls fail when their context ends.
func TestTableThatIsLocked(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	s.running(t, 1)
	release := d.hold(t, "LOCK TABLE "+s.names["runs"]+", "+s.names["handlers"]+", "+s.names["schedules"])
	defer release()
	late := testkit.MeasureLateness(t, 10*time.Millisecond)
	for _, call := range calls(s) {
		if call.name == "Verify" || call.name == "Notify" {
			continue
		}
		const limit = 150 * time.Millisecond
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := call.make(ctx)
		cancel()
		if took := time.Since(began); err == nil || took > limit+200*time.Millisecond+late.Since(began) {
			t.Errorf("%s: %v after %v, want an error within %v", call.name, err, took, limit)
		}
	}
	release()
	if failed := failing(t, s); len(failed) > 0 {
		t.Error(failed)
	}
}

// A transaction that waits for a lock ends when its call may take no longer, although its client is
// cut off and cannot cancel it.
//
// Fails when the server waits without a limit.
func TestClientThatIsCutOffWhileItWaits(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.migrated(t)
	_, p := d.proxy(t)
	s := on(t, d.pool(t, p.Addr(), ""), "durable")
	renew := func(ctx context.Context) error {
		_, err := s.Renew(ctx, "w", []store.RunKey{{ID: 1, Attempt: 1}}, time.Minute)
		return err
	}
	if err := renew(t.Context()); err != nil { // prepares the statements, which no transaction does
		t.Fatal(err)
	}
	release := d.hold(t, "LOCK TABLE "+s.names["runs"])
	defer release()
	pool := d.pool(t, "", "")
	waiting := func(ctx context.Context, want int) error {
		var n int
		err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "+
			"AND wait_event_type = 'Lock'").Scan(&n)
		if err == nil && n != want {
			err = fmt.Errorf("%d transactions wait, want %d", n, want)
		}
		return err
	}
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		ended <- renew(ctx)
	}()
	testkit.Eventually(t, testkit.Patience, "the call waits for the lock",
		func(ctx context.Context) error { return waiting(ctx, 1) })
	p.BlackHole(true)
	if err := <-ended; err == nil {
		t.Error("the call has succeeded")
	}
	testkit.Eventually(t, 10*time.Second, "nobody waits for the lock",
		func(ctx context.Context) error { return waiting(ctx, 0) })
}

// A client that stops after it has sent the first half of a call holds the locks of that half for
// no longer than the call may take.
//
// Fails when the time that a transaction may idle is not bounded.
func TestClientThatStopsInTheMiddle(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	s.running(t, 1)
	conn, err := pgx.Connect(t.Context(), d.server.DSN("", "", d.name))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	limited := []store.Handler{{Name: "orders", MaxAttempts: 3, MaxConcurrency: 5}}
	var half pgx.Batch
	half.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	half.Queue(s.texts["begin"], "300", "300")
	half.Queue(s.texts["claim_lock"], handlersJSON(limited), 0)
	if err := conn.SendBatch(t.Context(), &half).Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = s.Claim(ctx, store.ClaimRequest{Worker: "w", Handlers: limited, Limit: 1, TTL: time.Minute})
	if err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("Claim took %v: it has not waited for the lock", took)
	}
}
