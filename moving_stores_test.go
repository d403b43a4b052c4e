package tickslot_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// A witness records all runs of a timer, whichever store their hosts use.
type witness struct {
	mu         sync.Mutex
	active     int
	mostActive int
	starts     map[time.Time]int // by tick; the zero time for triggered runs
	latest     time.Time
}

func (w *witness) run(ctx context.Context) error {
	run, _ := timer.RunFromContext(ctx)
	w.mu.Lock()
	if w.starts == nil {
		w.starts = map[time.Time]int{}
	}
	w.active++
	w.mostActive = max(w.mostActive, w.active)
	w.starts[run.Tick()]++
	w.latest = run.Tick()
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.active--
	}()
	select {
	case <-time.After(60 * time.Millisecond):
	case <-ctx.Done():
	}
	return nil
}

// doubled returns how many ticks started more than once.
func (w *witness) doubled() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for tick, starts := range w.starts {
		if !tick.IsZero() && starts > 1 {
			n++
		}
	}
	return n
}

func (w *witness) ranSince(at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest.After(at)
}

// A movedFleet has hosts on one store and on another.
type movedFleet struct {
	*testing.T
	*witness
}

// A movedHost is a host of such a fleet.
type movedHost struct {
	*timer.Scheduler
	stop func()
}

// host starts a host on a store. Its timer uses StoreDownSkip: on a busy machine, a call could
// exceed StoreTimeout and start a run that no other host knows of.
func (f movedFleet) host(store dlock.DistributedLock) movedHost {
	f.Helper()
	timers, err := timer.New(timer.Config{Store: store, Logger: slog.New(slog.DiscardHandler)}, timer.Timer{
		Name: "poll", Schedule: schedule.Every(100 * time.Millisecond), OnStoreDown: timer.StoreDownSkip, Run: f.run})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- timers.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
	f.Cleanup(stop)
	<-timers.Running()
	return movedHost{timers, stop}
}

func (f movedFleet) control(store dlock.DistributedLock) *control.Control {
	return control.New(control.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
}

// skips waits until a host has skipped most of a second's ticks because of a pause.
func (f movedFleet) skips(h movedHost) {
	f.Helper()
	testkit.Eventually(f, testkit.Patience, "ticks are skipped", func() bool {
		return h.Status().Timers[0].Skipped[timer.ReasonPaused] > 7
	})
}

// runs waits until newly due ticks run.
func (f movedFleet) runs() {
	f.Helper()
	now := time.Now()
	testkit.Eventually(f, testkit.Patience, "a tick runs", func() bool { return f.ranSince(now) })
}

// A fleet moves host by host from Redis to Postgres and back, following docs/operate.md. No tick
// starts twice and no two runs overlap, although hosts of both stores are running. Ticks between
// the two pauses and the end of the second are skipped, not caught up.
//
// Fails when a pause does not bind hosts that start later, such as those on the new store, or when
// a tick during the pause counts as missed. Without the pauses, ticks do start twice.
func TestFleetMovesToAnotherStore(t *testing.T) {
	t.Parallel()
	redis, postgres := redisAndPostgres(t)
	by := driver.Cause{By: "ann", Note: "we move to another store"}
	for _, move := range []struct {
		name     string
		from, to driver.Store
	}{{"from Redis to Postgres", redis, postgres}, {"from Postgres to Redis", postgres, redis}} {
		t.Run(move.name, func(t *testing.T) {
			ctx, f := t.Context(), movedFleet{t, &witness{}}
			hosts := []movedHost{f.host(move.from), f.host(move.from)}
			held := func() int {
				list, err := driver.CapabilitiesOf(move.from).Lister.List(ctx, "timer:poll", driver.MaxSlots)
				if err != nil {
					t.Error(err)
				}
				return len(list)
			}
			testkit.Eventually(t, testkit.Patience, "a slot is held", func() bool { return held() == 1 })

			// 1. Pause on both stores. The new store knows no host yet.
			before, after := f.control(move.from), f.control(move.to)
			for _, c := range []*control.Control{after, before} {
				if err := c.Pause(ctx, "poll", time.Now().Add(time.Hour), by); err != nil {
					t.Fatal(err)
				}
			}
			// 2. Wait until no slot is held on the old store.
			testkit.Eventually(t, testkit.Patience, "no slot is held", func() bool { return held() == 0 })
			paused := time.Now()
			// 3. Roll out, one host at a time.
			for i, old := range hosts {
				hosts[i] = f.host(move.to)
				f.skips(old)
				f.skips(hosts[i])
				old.stop()
			}
			if f.ranSince(paused) {
				t.Error("a tick of the pause has run")
			}
			// 4. Resume on the new store.
			resumed := time.Now()
			if err := after.Resume(ctx, "poll", by); err != nil {
				t.Fatal(err)
			}
			f.runs()
			for _, h := range hosts {
				h.stop()
			}
			if doubled := f.doubled(); doubled > 0 || f.mostActive > 1 {
				t.Errorf("%d ticks were doubled, %d runs at once", doubled, f.mostActive)
			}
			// On a busy machine, a host may process a tick late, after the resume.
			for tick := range f.starts {
				if tick.After(paused) && tick.Before(resumed.Add(-time.Second)) {
					t.Errorf("the tick of %v ran, which came due in the pause from %v to %v", tick, paused, resumed)
				}
			}
			if err := before.Resume(ctx, "poll", by); err != nil { // so that the fleet can move back
				t.Error(err)
			}
		})
	}
	t.Run("without a pause", func(t *testing.T) {
		f := movedFleet{t, &witness{}}
		f.host(redis)
		f.host(postgres)
		testkit.Eventually(t, testkit.Patience, "a tick starts twice", func() bool { return f.doubled() > 0 })
	})
}

func redisAndPostgres(t *testing.T) (redis, postgres driver.Store) {
	t.Helper()
	server := sqltest.SharedPostgres(t)
	pool, err := pgxpool.New(t.Context(), server.DSN("", "", server.NewDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := pgxlock.New(pool, sqllock.Options{})
	t.Cleanup(func() { store.Close() })
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := redistest.New(t).Client()
	t.Cleanup(func() { client.Close() })
	return redislock.New(client, redislock.Options{NoQuarantine: true}), store
}
