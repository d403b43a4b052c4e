package migrate

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func shedLockAfter(lock dlock.DistributedLock, report timer.Handler) (*timer.Scheduler, error) {
	return timer.New(timer.Config{Store: lock},
		timer.Timer{
			Name:        "report",
			Schedule:    schedule.Cron("0 */15 * * * *", "Europe/Berlin"), // six fields, as in Spring
			MaxRunTime:  14 * time.Minute,
			OnStoreDown: timer.StoreDownSkip,
			Run:         report,
		},
	) // timers.Run(ctx), which drains when ctx ends
}
