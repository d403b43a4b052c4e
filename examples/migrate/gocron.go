package migrate

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func gocronBefore(
	berlin *time.Location, locker gocron.Locker, report, poll func(context.Context) error,
) (gocron.Scheduler, error) {
	s, err := gocron.NewScheduler(
		gocron.WithLocation(berlin),
		gocron.WithDistributedLocker(locker),
		gocron.WithLimitConcurrentJobs(10, gocron.LimitModeWait),
	)
	if err != nil {
		return nil, err
	}
	if _, err := s.NewJob(gocron.DailyJob(1, gocron.NewAtTimes(gocron.NewAtTime(2, 30, 0))),
		gocron.NewTask(report), gocron.WithName("report")); err != nil {
		return nil, err
	}
	if _, err := s.NewJob(gocron.DurationJob(10*time.Second), gocron.NewTask(poll), gocron.WithName("poll"),
		gocron.WithSingletonMode(gocron.LimitModeReschedule)); err != nil {
		return nil, err
	}
	return s, nil // s.Start(), and at the end s.Shutdown()
}

func gocronAfter(lock dlock.DistributedLock, report, poll timer.Handler) (*timer.Scheduler, error) {
	return timer.New(timer.Config{Store: lock, MaxRuns: 10},
		timer.Timer{
			Name:     "report",
			Schedule: schedule.Daily("02:30", "Europe/Berlin"),
			Run:      report,
		},
		timer.Timer{
			Name:        "poll",
			Schedule:    schedule.Every(10 * time.Second),
			OnStoreDown: timer.StoreDownSkip, // as with a Locker: without the lock nothing runs
			Run:         poll,
		},
	) // timers.Run(ctx), which drains when ctx ends
}
