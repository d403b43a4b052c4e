package migrate

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func asynqBefore(
	redis asynq.RedisConnOpt, berlin *time.Location, report func(context.Context, *asynq.Task) error,
) (*asynq.Scheduler, *asynq.Server, *asynq.ServeMux, error) {
	scheduler := asynq.NewScheduler(redis, &asynq.SchedulerOpts{Location: berlin})
	task := asynq.NewTask("report", nil, asynq.MaxRetry(3), asynq.Timeout(10*time.Minute))
	if _, err := scheduler.Register("30 2 * * *", task, asynq.Unique(time.Hour)); err != nil {
		return nil, nil, nil, err
	}
	server := asynq.NewServer(redis, asynq.Config{Concurrency: 10})
	mux := asynq.NewServeMux()
	mux.HandleFunc("report", report)
	return scheduler, server, mux, nil // scheduler.Start() on one host, server.Run(mux) on all
}

func asynqAfter(lock dlock.DistributedLock, report timer.Handler) (*timer.Scheduler, error) {
	return timer.New(timer.Config{Store: lock, MaxRuns: 10},
		timer.Timer{
			Name:        "report",
			Schedule:    schedule.Cron("30 2 * * *", "Europe/Berlin"),
			MaxRunTime:  10 * time.Minute,
			Retry:       timer.Retry{MaxAttempts: 4}, // the first and three more
			OnStoreDown: timer.StoreDownSkip,
			Run:         report,
		},
	) // timers.Run(ctx) on all hosts
}
