package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	tickslotriver "github.com/tickslot/tickslot/contrib/river"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
)

// riverSide configures River. Zero values mean defaults.
type riverSide struct {
	postgres *postgresServer
	config   river.Config
	counted  bool
	periodic int          // jobs that are not due during the measurement
	ticking  int          // jobs due each second, spread over it
	limit    int          // concurrent jobs of all clients, enforced by tickslot; 0: none
	redis    *redisServer // for the limit
	history  int          // number of discarded, and of completed, jobs before the first is inserted
}

// quick has the settings of River's own benchmark, which perform "much better than the client's
// default values". By default, a client fetches at most every 100 ms.
var quick = river.Config{FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond}

// riverPlaces is the number of workers per client in that benchmark.
const riverPlaces = 2000

// riverFleet is a fleet of River's clients.
type riverFleet struct {
	*pgDatabase
	client  *river.Client[pgx.Tx] // inserts only
	workers []*river.Client[pgx.Tx]
	running int
	stop    []func() error
	history int
}

// A riverWorker does the work.
type riverWorker struct {
	river.WorkerDefaults[job]
	work func(due time.Time)
}

func (r *riverWorker) Work(_ context.Context, j *river.Job[job]) error {
	due := j.Args.at()
	if j.Args.Due == 0 { // a periodic job
		due = j.ScheduledAt
	}
	r.work(due)
	return nil
}

// A secondly is due each second, at this offset.
type secondly time.Duration

func (s secondly) Next(now time.Time) time.Time {
	next := now.Truncate(time.Second).Add(time.Duration(s))
	if !next.After(now) {
		next = next.Add(time.Second)
	}
	return next
}

func periodicJob(s river.PeriodicSchedule, id string) *river.PeriodicJob {
	return river.NewPeriodicJob(s, func() (river.JobArgs, *river.InsertOpts) { return job{}, nil },
		&river.PeriodicJobOpts{ID: id})
}

func (r riverSide) fleet(workers, places int, work func(due time.Time)) (fleet, error) {
	database, err := r.postgres.newDatabase(r.counted)
	if err != nil {
		return nil, err
	}
	f := &riverFleet{pgDatabase: database, history: r.history}
	if err := f.fill(r, workers, places, work); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (r *riverFleet) fill(s riverSide, workers, places int, work func(due time.Time)) (err error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(r.admin), &rivermigrate.Config{Logger: warnings})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	open := func(config river.Config) (*river.Client[pgx.Tx], error) {
		pool, err := r.pool()
		if err != nil {
			return nil, err
		}
		config.Logger = warnings
		return river.NewClient(riverpgxv5.New(pool), &config)
	}
	if r.client, err = open(river.Config{FetchCooldown: s.config.FetchCooldown}); err != nil {
		return err
	}
	for range workers {
		config := s.config
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: places}}
		config.Workers = river.NewWorkers()
		river.AddWorker(config.Workers, &riverWorker{work: work})
		for i := range s.ticking {
			config.PeriodicJobs = append(config.PeriodicJobs, periodicJob(
				secondly(time.Second*time.Duration(i)/time.Duration(s.ticking)), fmt.Sprint("secondly-", i)))
		}
		for i := range s.periodic {
			config.PeriodicJobs = append(config.PeriodicJobs, periodicJob(river.PeriodicInterval(365*24*time.Hour),
				fmt.Sprint("yearly-", i)))
		}
		if s.limit > 0 {
			limit, err := r.limited(s)
			if err != nil {
				return err
			}
			config.Middleware = []rivertype.Middleware{limit}
		}
		client, err := open(config)
		if err != nil {
			return err
		}
		r.workers = append(r.workers, client)
	}
	return r.finished(s.history)
}

// limited enforces the limit for one client with its own session, as in a separate process.
func (r *riverFleet) limited(s riverSide) (rivertype.WorkerMiddleware, error) {
	client := s.redis.client()
	store := redislock.New(client, redislock.Options{Prefix: r.name + ":", NoQuarantine: true})
	session, err := dlock.NewSession(store, dlock.SessionOptions{})
	if err != nil {
		return nil, errors.Join(err, store.Close(), client.Close())
	}
	r.stop = append(r.stop, func() error { return errors.Join(session.Close(ctx), store.Close(), client.Close()) })
	return tickslotriver.Limit(session, tickslotriver.LimitOptions{Max: map[string]int{job{}.Kind(): s.limit},
		Logger: warnings})
}

// finished writes jobs in the state long after they were completed or discarded.
func (r *riverFleet) finished(n int) error {
	if n == 0 {
		return nil
	}
	_, err := r.admin.Exec(ctx, `INSERT INTO river_job (args, attempt, attempted_at, finalized_at, kind, max_attempts,
			state)
		SELECT '{"due":0}', 1, now(), now(), $1, 25,
			(CASE i % 2 WHEN 0 THEN 'discarded' ELSE 'completed' END)::river_job_state
		FROM generate_series(1, $2::bigint) AS i`, job{}.Kind(), 2*n)
	return err
}

func (r *riverFleet) start() error {
	for _, w := range r.workers {
		if err := w.Start(ctx); err != nil {
			return err
		}
		r.running++
	}
	return nil
}

func (r *riverFleet) queue(due []time.Time) error {
	if len(due) == 1 {
		_, err := r.client.Insert(ctx, jobDue(due[0]), riverWhen(due[0]))
		return err
	}
	return inBatches(due, func(part []time.Time) error {
		var params []river.InsertManyParams
		for _, at := range part {
			params = append(params, river.InsertManyParams{Args: jobDue(at), InsertOpts: riverWhen(at)})
		}
		_, err := r.client.InsertMany(ctx, params)
		return err
	})
}

func riverWhen(at time.Time) *river.InsertOpts {
	if !at.After(time.Now()) {
		return nil
	}
	return &river.InsertOpts{ScheduledAt: at}
}

func (r *riverFleet) done() (int, error) {
	n, err := r.count("SELECT count(*) FROM river_job WHERE state = 'completed'")
	return n - r.history, err
}

func (r *riverFleet) close() (err error) {
	limited, cancel := context.WithTimeout(ctx, childGrace)
	defer cancel()
	for _, w := range r.workers[:r.running] {
		err = errors.Join(err, w.Stop(limited))
	}
	for _, stop := range r.stop {
		err = errors.Join(err, stop())
	}
	return errors.Join(err, r.pgDatabase.close())
}
