package migrate

import (
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

func hangfireAfter(lock dlock.DistributedLock, send timer.Handler) (*timer.Scheduler, error) {
	return timer.New(timer.Config{Store: lock},
		timer.Timer{
			Name:        "send-reports",
			Schedule:    schedule.Daily("02:30", "Europe/Berlin"),
			CatchUp:     timer.CatchUp{Policy: timer.CatchUpOnce, Window: timer.NoLimit},
			Retry:       timer.Retry{MaxAttempts: 4},
			OnStoreDown: timer.StoreDownSkip,
			Run:         send,
		},
	) // timers.Run(ctx), which drains when ctx ends
}
