package demo

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

const (
	resizeImages = "resize-images"
	sendDigest   = "send-digest"
)

// timers is what every host registers. All hosts see the same ticks.
func timers(host string, rec *recorder) []timer.Timer {
	return []timer.Timer{
		{
			Name:           resizeImages,
			Schedule:       schedule.Every(500 * time.Millisecond),
			MaxConcurrency: 3, // runs at once in the fleet, however many hosts there are
			OnStoreDown:    timer.StoreDownSkip,
			Run:            rec.watched(host, work(1900*time.Millisecond, 2700*time.Millisecond)),
		},
		{
			Name:     sendDigest,
			Schedule: schedule.Every(time.Second), // once per tick in the fleet: that is the default
			// A host that is cut off must start nothing. With the default, StoreDownRunLocal, it
			// would run without the store, and log it.
			OnStoreDown: timer.StoreDownSkip,
			Run:         rec.watched(host, work(200*time.Millisecond, 400*time.Millisecond)),
		},
	}
}

// promises are the limits of the timers above, repeated so that the recorder checks them
// independently.
var promises = []promise{
	{timer: resizeImages, period: 500 * time.Millisecond, atOnce: 3, perTick: 3},
	{timer: sendDigest, period: time.Second, atOnce: 1, perTick: 1},
}

// work is a handler that is busy for a while. Like every handler it stops when its context ends,
// because its slot may then go to another host.
func work(least, most time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(least + rand.N(most-least)):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
