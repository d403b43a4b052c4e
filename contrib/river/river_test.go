package tickslotriver_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	tickslotriver "github.com/tickslot/tickslot/contrib/river"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

type report struct{ N int }

func (report) Kind() string { return "report" }

type reporter struct {
	river.WorkerDefaults[report]
	work func(ctx context.Context, n int) error
}

func (w *reporter) Work(ctx context.Context, job *river.Job[report]) error {
	return w.work(ctx, job.Args.N)
}

// database returns a database with River's tables.
func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	server := sqltest.SharedPostgres(t)
	pool, err := pgxpool.New(t.Context(), server.DSN("", "", server.NewDatabase(t))+"&pool_max_conns=20")
	must(t, err)
	t.Cleanup(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	must(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	must(t, err)
	return pool
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, pool *pgxpool.Pool, work func(ctx context.Context, n int) error,
	middleware ...rivertype.Middleware) *river.Client[pgx.Tx] {
	t.Helper()
	workers := river.NewWorkers()
	river.AddWorker(workers, &reporter{work: work})
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Workers: workers, Middleware: middleware,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
		Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	return c
}

// Four clients with a session each, like four processes, share a limit of 3. Fails when a fourth
// job is worked, or when slots are idle although jobs wait.
func TestFourClientsKeepALimitOfThree(t *testing.T) {
	t.Parallel()
	pool := database(t)
	server := redistest.Shared(t)
	const limit, jobs, takes = 3, 90, 200 * time.Millisecond
	var active, most, done atomic.Int32
	var first sync.Once
	var began time.Time // when the first job began
	work := func(ctx context.Context, _ int) error {
		first.Do(func() { began = time.Now() })
		n := active.Add(1)
		defer active.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		done.Add(1)
		return nil
	}
	var clients []*river.Client[pgx.Tx]
	for range 4 {
		c := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: servertest.Canary})
		t.Cleanup(func() { c.Close() })
		// The server has just been started, so it cannot have forgotten a lease that a process
		// still holds.
		store := redislock.New(c, redislock.Options{Prefix: t.Name() + ":", NoQuarantine: true})
		session, err := dlock.NewSession(store, dlock.SessionOptions{})
		must(t, err)
		t.Cleanup(func() { session.Close(context.Background()) })
		middleware, err := tickslotriver.Limit(session,
			tickslotriver.LimitOptions{Max: map[string]int{"report": limit}})
		must(t, err)
		clients = append(clients, client(t, pool, work, middleware))
	}
	var batch []river.InsertManyParams
	for i := range jobs {
		batch = append(batch, river.InsertManyParams{Args: report{i}})
	}
	_, err := clients[0].InsertMany(t.Context(), batch)
	must(t, err)
	for _, c := range clients {
		must(t, c.Start(context.Background()))
		t.Cleanup(func() { c.Stop(context.Background()) })
	}
	testkit.Eventually(t, testkit.Patience, "all jobs are done", func() bool { return done.Load() == jobs })
	took := time.Since(began)
	if most.Load() != limit {
		t.Errorf("%d jobs were worked at once, want %d", most.Load(), limit)
	}
	used := float64(jobs*takes) / float64(limit) / float64(took)
	t.Logf("%d jobs of %v, limit %d: %v, %.1f %% of the slots used", jobs, takes, limit, took, 100*used)
	if used < .6 { // low enough for a busy machine; an idle one exceeds 95 %
		t.Errorf("%.1f %% of the slots were used", 100*used)
	}
}

// A message is delivered three times but inserts one job. Fails when the job is not inserted in the
// transaction of the inbox.
func TestOneJobForAMessage(t *testing.T) {
	t.Parallel()
	pool := database(t)
	box := pgxoutbox.New(pool, outbox.Options{})
	t.Cleanup(func() { box.Close() })
	must(t, box.Migrate(t.Context()))
	var mu sync.Mutex
	worked := map[int]int{}
	c := client(t, pool, func(_ context.Context, n int) error {
		mu.Lock()
		defer mu.Unlock()
		worked[n]++
		return nil
	})
	sink := tickslotriver.Sink(pool, c, pgxoutbox.New(pool, outbox.Options{}).Inbox(),
		func(d outbox.Delivery) (river.JobArgs, *river.InsertOpts, error) {
			if len(d.Payload) == 0 {
				return nil, nil, outbox.Permanent(fmt.Errorf("no payload"))
			}
			return report{int(d.Payload[0])}, nil, nil
		})
	for range 3 {
		for n := range 10 {
			must(t, sink.Deliver(t.Context(), outbox.Delivery{Message: outbox.Message{ID: outbox.NewID("a", 1, n),
				Topic: "t", Payload: []byte{byte(n)}}}))
		}
	}
	if err := sink.Deliver(t.Context(), outbox.Delivery{}); err == nil {
		t.Error("a message without a job is delivered")
	}
	must(t, c.Start(context.Background()))
	t.Cleanup(func() { c.Stop(context.Background()) })
	testkit.Eventually(t, testkit.Patience, "all are worked", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(worked) == 10
	})
	mu.Lock()
	defer mu.Unlock()
	for n, times := range worked {
		if times != 1 {
			t.Errorf("job %d was worked %d times", n, times)
		}
	}
}
