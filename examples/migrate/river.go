package migrate

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

type cleanArgs struct{}

func (cleanArgs) Kind() string { return "clean" }

func riverBefore(
	pool *pgxpool.Pool, clean func(context.Context, *river.Job[cleanArgs]) error,
) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(clean))
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Workers: workers,
		PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(
			river.PeriodicInterval(15*time.Minute),
			func() (river.JobArgs, *river.InsertOpts) {
				return cleanArgs{}, &river.InsertOpts{
					MaxAttempts: 3,
					UniqueOpts:  river.UniqueOpts{ByPeriod: 15 * time.Minute},
				}
			},
			&river.PeriodicJobOpts{ID: "clean"},
		)},
	}) // client.Start(ctx), and at the end client.Stop(ctx)
}

func riverAfter(lock dlock.DistributedLock, clean timer.Handler) (*timer.Scheduler, error) {
	return timer.New(timer.Config{Store: lock, MaxRuns: 10},
		timer.Timer{
			Name:        "clean",
			Schedule:    schedule.Every(15 * time.Minute),
			MaxRunTime:  time.Minute, // River's default; here it is an hour
			Retry:       timer.Retry{MaxAttempts: 3},
			OnStoreDown: timer.StoreDownSkip,
			Run:         clean,
		},
	) // timers.Run(ctx), which drains when ctx ends
}
