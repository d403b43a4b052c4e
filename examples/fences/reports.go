package fences

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// Reports returns a timer that computes a total and writes it with the fence of its run.
func Reports(every time.Duration, compute func(context.Context) (int64, error),
	save func(ctx context.Context, fence dlock.Fence, day string, total int64) error,
) timer.Timer {
	return timer.Timer{
		Name:     "daily-report",
		Schedule: schedule.Every(every),
		// Without the store, a run has no fence, and all its writes would be refused.
		OnStoreDown: timer.StoreDownSkip,
		Run: func(ctx context.Context) error {
			run, _ := timer.RunFromContext(ctx)
			total, err := compute(ctx)
			if err != nil {
				return err
			}
			return save(ctx, run.Fence(), run.Tick().Format(time.DateOnly), total)
		},
	}
}
