package migrate

import (
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func quartzAfter(lock dlock.DistributedLock, report timer.Handler) (*timer.Scheduler, error) {
	return timer.New(timer.Config{Store: lock},
		timer.Timer{
			Name:        "report",
			Schedule:    schedule.Cron("0 30 8 ? * MON-SAT", "Europe/Berlin"), // names, not 2-7
			CatchUp:     timer.CatchUp{Policy: timer.CatchUpOnce, Window: 24 * time.Hour},
			OnStoreDown: timer.StoreDownSkip,
			Run:         report,
		},
	) // timers.Run(ctx), which drains when ctx ends
}
