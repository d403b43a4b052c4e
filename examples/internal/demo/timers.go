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

// timers returns the timers that every host registers. All hosts see the same ticks.
func timers(host string, rec *recorder) []timer.Timer {
	return []timer.Timer{
		{
			Name:           resizeImages,
			Schedule:       schedule.Every(500 * time.Millisecond),
			MaxConcurrency: 3, // concurrent runs in the fleet, however many hosts there are
			MaxPerTick:     3, // up to 3 hosts run each tick
			// A disconnected host must start nothing. With StoreDownRunLocal, the default, it would
			// continue with runs that are not valid.
			OnStoreDown: timer.StoreDownSkip,
			Run:         rec.watched(host, work(1900*time.Millisecond, 2700*time.Millisecond)),
		},
		{
			Name:        sendDigest,
			Schedule:    schedule.Every(time.Second), // one run at a time and per tick, the defaults
			OnStoreDown: timer.StoreDownSkip,
			Run:         rec.watched(host, work(200*time.Millisecond, 400*time.Millisecond)),
		},
	}
}

// allLimits repeats the limits of the timers above, so that the recorder does not rely on what it
// checks.
var allLimits = []limits{
	{timer: resizeImages, period: 500 * time.Millisecond, atOnce: 3, perTick: 3},
	{timer: sendDigest, period: time.Second, atOnce: 1, perTick: 1},
}

// work returns a handler that is busy for a while. Like every handler, it must stop when its
// context ends, because its slot may then go to another host.
func work(shortest, longest time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(shortest + rand.N(longest-shortest)):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
