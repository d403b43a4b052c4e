package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
)

// A runDatabase is the database of tickslot's durable runs.
type runDatabase interface {
	store() (*durable.Store, error) // another store, as another process would have
	transact(func(durable.Tx) error) error
	settle() error
	count(query string) (int, error)
	asked() (statements, trips int64, err error)
	hold() (release func() error, err error)
	dead() (int, error)
	close() error
}

// durableSide configures tickslot. Zero values mean defaults.
type durableSide struct {
	open      func() (runDatabase, error)
	config    durable.Config
	handler   durable.HandlerOptions
	schedules int // not due during the measurement
	ticking   int // schedules due each second, spread over it
}

// durableFleet is a fleet of tickslot's workers.
type durableFleet struct {
	runDatabase
	client  *durable.Store
	workers []*durable.Worker
	stop    context.CancelFunc
	ended   chan error
	running int
}

func (d durableSide) fleet(workers, places int, work func(due time.Time)) (fleet, error) {
	database, err := d.open()
	if err != nil {
		return nil, err
	}
	f := &durableFleet{runDatabase: database, ended: make(chan error, workers), stop: func() {}}
	if err := f.fill(d, workers, places, work); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (d *durableFleet) fill(s durableSide, workers, places int, work func(due time.Time)) (err error) {
	if d.client, err = d.store(); err != nil {
		return err
	}
	if err := d.client.Migrate(ctx); err != nil {
		return err
	}
	for range workers {
		store, err := d.store()
		if err != nil {
			return err
		}
		config := s.config
		config.MaxRuns, config.Logger = places, warnings
		w, err := durable.NewWorker(store, config)
		if err != nil {
			return err
		}
		w.Handle("job", durable.JSON(func(_ context.Context, j job) error { work(j.at()); return nil }), s.handler)
		w.Handle("tick", func(_ context.Context, run *durable.Run) error { work(run.DueAt); return nil }, s.handler)
		for i := range s.ticking {
			w.Schedule(fmt.Sprint("secondly-", i), "tick", schedule.Every(time.Second), durable.ScheduleOptions{})
		}
		for i := range s.schedules {
			w.Schedule(fmt.Sprint("yearly-", i), "job", schedule.Cron("@yearly", ""), durable.ScheduleOptions{})
		}
		d.workers = append(d.workers, w)
	}
	return nil
}

func (d *durableFleet) start() error {
	life, stop := context.WithCancel(ctx)
	d.stop = stop
	for _, w := range d.workers {
		d.running++
		go func() { d.ended <- w.Run(life) }()
	}
	return testkit.Poll(30*time.Second, "the workers", func(context.Context) error {
		for _, w := range d.workers {
			if err := w.Ready(); err != nil {
				return err
			}
		}
		return nil
	})
}

// queue triggers one run separately, and many in transactions. Then it notifies.
func (d *durableFleet) queue(due []time.Time) error {
	var err error
	if len(due) == 1 {
		err = d.trigger(nil, due[0])
	} else {
		err = inBatches(due, func(part []time.Time) error {
			return d.transact(func(tx durable.Tx) error {
				for _, at := range part {
					if err := d.trigger(tx, at); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	if err != nil {
		return err
	}
	d.client.Notify()
	return nil
}

func (d *durableFleet) trigger(tx durable.Tx, at time.Time) error {
	payload, err := json.Marshal(jobDue(at))
	if err != nil {
		return err
	}
	var options durable.TriggerOptions
	if at.After(time.Now()) {
		options.RunAt = at
	}
	_, err = d.client.Trigger(ctx, tx, "job", payload, options)
	return err
}

// done counts the runs that have an attempt in the history.
func (d *durableFleet) done() (int, error) {
	return d.count("SELECT count(*) FROM tickslot_durable_runs AS r JOIN tickslot_durable_attempts AS a " +
		"ON a.run_id = r.id WHERE r.state = 'succeeded' AND a.outcome = 'ok'")
}

// serverCPU returns the CPU time of Postgres.
func (d *durableFleet) serverCPU() time.Duration {
	if onPostgres, ok := d.runDatabase.(*runsOnPostgres); ok {
		return onPostgres.serverCPU()
	}
	return 0
}

func (d *durableFleet) close() (err error) {
	d.stop()
	for range d.running {
		err = errors.Join(err, <-d.ended)
	}
	return errors.Join(err, d.runDatabase.close())
}

// runsOnPostgres is a database in the run's Postgres.
type runsOnPostgres struct {
	*pgDatabase
	client *pgxpool.Pool // the pool of the first store
}

func (p *postgresServer) runs(counted bool) func() (runDatabase, error) {
	return func() (runDatabase, error) {
		d, err := p.newDatabase(counted)
		return &runsOnPostgres{pgDatabase: d}, err
	}
}

func (r *runsOnPostgres) store() (*durable.Store, error) {
	pool, err := r.pool()
	if r.client == nil {
		r.client = pool
	}
	return pgxdurable.New(pool, durable.Options{}), err
}

func (r *runsOnPostgres) transact(f func(durable.Tx) error) error {
	tx, err := r.client.Begin(ctx)
	if err != nil {
		return err
	}
	if err := f(pgxdurable.Tx(tx)); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

// runsOnSQLite is a file in its own directory.
type runsOnSQLite struct {
	dir  string
	dbs  []*sql.DB
	only *durable.Store // shared by all workers and the client, so that Notify reaches them
}

func newRunsOnSQLite() (runDatabase, error) {
	dir, err := os.MkdirTemp("", "tickslot-bench")
	return &runsOnSQLite{dir: dir}, err
}

func (r *runsOnSQLite) open() (*sql.DB, error) {
	file := url.URL{Scheme: "file", Path: filepath.Join(r.dir, "runs.db"),
		RawQuery: "_pragma=synchronous(normal)&_pragma=busy_timeout(5000)&_txlock=immediate"}
	db, err := sql.Open("sqlite", file.String())
	if err == nil {
		r.dbs = append(r.dbs, db)
	}
	return db, err
}

func (r *runsOnSQLite) store() (*durable.Store, error) {
	if r.only == nil {
		db, err := r.open()
		if err != nil {
			return nil, err
		}
		r.only = durable.SQLite(db, durable.Options{})
	}
	return r.only, nil
}

func (r *runsOnSQLite) transact(f func(durable.Tx) error) error {
	tx, err := r.dbs[0].BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(durable.SQLTx(tx)); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (r *runsOnSQLite) settle() error { return nil }

func (r *runsOnSQLite) count(query string) (n int, err error) {
	err = r.dbs[0].QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

func (r *runsOnSQLite) asked() (statements, trips int64, err error) { return 0, 0, errUncounted }

func (r *runsOnSQLite) hold() (func() error, error) {
	return nil, errors.New("there is no xmin in SQLite")
}

func (r *runsOnSQLite) dead() (int, error) { return 0, nil }

func (r *runsOnSQLite) close() (err error) {
	for _, db := range r.dbs {
		err = errors.Join(err, db.Close())
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}
