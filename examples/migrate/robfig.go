package migrate

import (
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func robfigBefore(berlin *time.Location, report, clean func()) (*cron.Cron, error) {
	c := cron.New(cron.WithLocation(berlin), cron.WithChain(
		cron.Recover(cron.DefaultLogger),
		cron.SkipIfStillRunning(cron.DefaultLogger),
	))
	if _, err := c.AddFunc("30 2 * * *", report); err != nil {
		return nil, err
	}
	if _, err := c.AddFunc("@every 10m", clean); err != nil {
		return nil, err
	}
	return c, nil // c.Start(), and at the end <-c.Stop().Done()
}

func robfigAfter(lock dlock.DistributedLock, report, clean timer.Handler) (*timer.Scheduler, error) {
	return timer.New(timer.Config{Store: lock},
		timer.Timer{
			Name:     "report",
			Schedule: schedule.Cron("30 2 * * *", "Europe/Berlin"),
			Run:      report,
		},
		timer.Timer{
			Name:     "clean",
			Schedule: schedule.Every(10 * time.Minute),
			Run:      clean,
		},
	) // timers.Run(ctx), which drains when ctx ends
}
