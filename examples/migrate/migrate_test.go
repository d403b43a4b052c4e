package migrate

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/robfig/cron/v3"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

var berlin = func() *time.Location {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return zone
}()

// counters count the runs of two handlers on all hosts.
type counters struct{ first, second atomic.Int64 }

func (c *counters) addFirst(context.Context) error  { c.first.Add(1); return nil }
func (c *counters) addSecond(context.Context) error { c.second.Add(1); return nil }

func (c *counters) check(t *testing.T, who string, first, second int64) {
	t.Helper()
	if c.first.Load() != first || c.second.Load() != second {
		t.Errorf("%s: %d and %d runs, want %d and %d", who, c.first.Load(), c.second.Load(), first, second)
	}
}

// run runs schedulers as the hosts of a fleet until the context ends. A host starts every three
// seconds.
func run(ctx context.Context, t *testing.T, schedulers ...*timer.Scheduler) {
	t.Helper()
	var running sync.WaitGroup
	for _, s := range schedulers {
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(3 * time.Second)
	}
	running.Wait()
}

// onHosts makes a scheduler for each of two hosts, which share a store.
func onHosts(t *testing.T, after func(dlock.DistributedLock) (*timer.Scheduler, error)) []*timer.Scheduler {
	t.Helper()
	store := memlock.New()
	var all []*timer.Scheduler
	for range 2 {
		s, err := after(store)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

const day = 24*time.Hour - time.Second

// Two hosts run for a day. With robfig/cron, each runs everything.
func TestRobfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var before counters
		var all []*cron.Cron
		for range 2 {
			c, err := robfigBefore(berlin, func() { before.first.Add(1) }, func() { before.second.Add(1) })
			if err != nil {
				t.Fatal(err)
			}
			c.Start()
			all = append(all, c)
		}
		time.Sleep(day)
		for _, c := range all {
			<-c.Stop().Done()
		}
		before.check(t, "robfig/cron", 2, 2*143) // the first ten minutes after the start have no tick
	})
	synctest.Test(t, func(t *testing.T) {
		var after counters
		ctx, stop := context.WithTimeout(t.Context(), day)
		defer stop()
		run(ctx, t, onHosts(t, func(lock dlock.DistributedLock) (*timer.Scheduler, error) {
			return robfigAfter(lock, after.addFirst, after.addSecond)
		})...)
		after.check(t, "tickslot", 1, 144)
	})
}

// mutexes are a gocron.Locker for one process.
type mutexes struct {
	mu   sync.Mutex
	held map[string]bool
}

func (m *mutexes) Lock(_ context.Context, key string) (gocron.Lock, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[key] {
		return nil, errors.New("held")
	}
	m.held[key] = true
	return unlock(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.held, key)
	}), nil
}

type unlock func()

func (u unlock) Unlock(context.Context) error { u(); return nil }

// Two hosts run for a day, the second starting three seconds later. With gocron, each runs its own
// intervals, even with a Locker.
func TestGocron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var before counters
		var all []gocron.Scheduler
		locker := &mutexes{held: map[string]bool{}}
		slowly := func(ctx context.Context) error { time.Sleep(time.Second); return before.addFirst(ctx) }
		for range 2 {
			s, err := gocronBefore(berlin, locker, slowly, before.addSecond)
			if err != nil {
				t.Fatal(err)
			}
			s.Start()
			all = append(all, s)
			time.Sleep(3 * time.Second)
		}
		time.Sleep(day - 6*time.Second)
		for _, s := range all {
			if err := s.Shutdown(); err != nil {
				t.Error(err)
			}
		}
		before.check(t, "gocron", 1, 2*8639)
	})
	synctest.Test(t, func(t *testing.T) {
		var after counters
		ctx, stop := context.WithTimeout(t.Context(), day)
		defer stop()
		run(ctx, t, onHosts(t, func(lock dlock.DistributedLock) (*timer.Scheduler, error) {
			return gocronAfter(lock, after.addFirst, after.addSecond)
		})...)
		after.check(t, "tickslot", 1, 8640)
	})
}

// The programs that need a server are built but not run.
func TestProgramsAreBuilt(t *testing.T) {
	t.Parallel()
	scheduler, server, mux, err := asynqBefore(asynq.RedisClientOpt{Addr: "127.0.0.1:1"}, berlin,
		func(context.Context, *asynq.Task) error { return nil })
	if err != nil || scheduler == nil || server == nil || mux == nil {
		t.Error("asynq:", err)
	}
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none") // connects on first use
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := riverBefore(pool, func(context.Context, *river.Job[cleanArgs]) error { return nil }); err != nil {
		t.Error("River:", err)
	}
}

// Two hosts run for a day. Each due tick runs once in the fleet, and a failure is retried as often
// as before.
func TestAfter(t *testing.T) {
	t.Parallel()
	errTryAgain := errors.New("try again")
	for name, c := range map[string]struct {
		after func(dlock.DistributedLock, timer.Handler) (*timer.Scheduler, error)
		fail  bool
		want  int64
	}{
		"asynq":             {asynqAfter, false, 1},
		"asynq, failing":    {asynqAfter, true, 4},
		"River":             {riverAfter, false, 96},
		"River, failing":    {riverAfter, true, 96 * 3},
		"ShedLock":          {shedLockAfter, false, 96 - 1}, // the first tick is due when the day starts
		"Quartz":            {quartzAfter, false, 1},
		"Hangfire":          {hangfireAfter, false, 1},
		"Hangfire, failing": {hangfireAfter, true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				ctx, stop := context.WithTimeout(t.Context(), day)
				defer stop()
				run(ctx, t, onHosts(t, func(lock dlock.DistributedLock) (*timer.Scheduler, error) {
					return c.after(lock, func(context.Context) error {
						calls.Add(1)
						if c.fail {
							return errTryAgain
						}
						return nil
					})
				})...)
				if calls.Load() != c.want {
					t.Errorf("%d calls, want %d", calls.Load(), c.want)
				}
			})
		})
	}
}

// The pages' claims about the nights when clocks change are true.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	theirs, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 30 2 * * *")
	if err != nil {
		t.Fatal(err)
	}
	ours := schedule.Cron("30 2 * * *", "Europe/Berlin")
	for _, c := range []struct {
		what         string
		month, day   int
		theirs, ours int // runs on that day
	}{
		{"the clocks skip half past two", 3, 29, 0, 1},
		{"the clocks show half past two twice", 10, 25, 2, 1},
		{"any other day", 6, 1, 1, 1},
	} {
		from := time.Date(2026, time.Month(c.month), c.day, 0, 0, 0, 0, berlin)
		on := func(s schedule.Schedule) (n int) {
			for at := s.Next(from); at.Before(from.AddDate(0, 0, 1)); at = s.Next(at) {
				n++
			}
			return n
		}
		if a, b := on(theirs), on(ours); a != c.theirs || b != c.ours {
			t.Errorf("%s: robfig/cron runs %d times, want %d; tickslot %d, want %d", c.what, a, c.theirs, b, c.ours)
		}
	}
}

// Intervals that count from the call give each host different ticks, so New refuses them.
func TestIntervalsOfOthers(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]schedule.Schedule{
		"robfig/cron": cron.Every(10 * time.Minute),
		"River":       river.PeriodicInterval(10 * time.Minute),
	} {
		if schedule.CheckShared(s) == nil {
			t.Errorf("an interval of %s is accepted", name)
		}
	}
}

// Without SkipIfStillRunning or WithSingletonMode, the runs of a job overlap.
func TestOthersOverlap(t *testing.T) {
	for name, start := range map[string]func(job func()) (stop func()){
		"robfig/cron": func(job func()) func() {
			c := cron.New()
			if _, err := c.AddFunc("@every 10m", job); err != nil {
				t.Fatal(err)
			}
			c.Start()
			return func() { <-c.Stop().Done() }
		},
		"gocron": func(job func()) func() {
			s, err := gocron.NewScheduler()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.NewJob(gocron.DurationJob(10*time.Minute), gocron.NewTask(job)); err != nil {
				t.Fatal(err)
			}
			s.Start()
			return func() { _ = s.Shutdown() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now, most atomic.Int64
				end := make(chan struct{})
				stop := start(func() {
					most.Store(max(most.Load(), now.Add(1)))
					defer now.Add(-1)
					select {
					case <-time.After(25 * time.Minute):
					case <-end:
					}
				})
				time.Sleep(65 * time.Minute)
				if most.Load() != 3 {
					t.Errorf("%d runs at once, want 3", most.Load())
				}
				close(end) // gocron polls the time until they have ended, so virtual time would not advance
				synctest.Wait()
				stop()
			})
		})
	}
}
