package durable

import (
	"context"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/loop"
)

const (
	// registerInterval is how often a worker registers its handlers and schedules.
	registerInterval = time.Minute
	// unseenAfter is the time since its last registration after which a handler or a schedule
	// counts as one that no worker has.
	unseenAfter = store.UnseenAfter
	// maxRegistered is how many schedules one call registers.
	maxRegistered = 1000
)

// A registrar registers the handlers and schedules of this worker in the database.
type registrar struct {
	*loop.Loop
	worker    string
	store     store.Worker
	database  *database
	reader    store.Reader
	events    *events
	handlers  []store.Handler
	schedules []store.Schedule
	takenOver func() map[string]bool // schedules of a worker of another version

	seen map[string]sighting // last registrations; used only by the loop's goroutine
}

// A sighting is the last registration of a schedule. at is the time of the registration by the
// database's clock. since is when this host first read that value, by its own clock.
type sighting struct{ at, since time.Time }

// first makes the first registration and takes over schedules for which the database has another
// spec. It retries until it succeeds, ctx ends, or the database reports that it is not set up
// correctly.
func (r *registrar) first(ctx context.Context, verify func(context.Context) error) error {
	return lifecycle.FirstAnswer(ctx, dlock.ErrSetup, func() error {
		_, err := call(r.database, opVerify, func(ctx context.Context) (none struct{}, err error) {
			return none, verify(ctx)
		})
		if err == nil {
			err = r.call(true, r.schedules)
		}
		return err
	})
}

// register is a step of the loop.
func (r *registrar) register() time.Duration {
	if r.call(false, r.schedules) == nil {
		r.takeAbandoned()
	}
	return loop.Never
}

// takeAbandoned takes back schedules from another version that has no worker left. That happens
// when a deploy is rolled back while this worker runs.
func (r *registrar) takeAbandoned() {
	names := r.takenOver()
	if len(names) == 0 {
		r.seen = nil
		return
	}
	rows, err := call(r.database, opRead, r.reader.Schedules)
	if err != nil {
		return
	}
	mine := make(map[string]store.Schedule, len(r.schedules))
	for _, s := range r.schedules {
		mine[s.Name] = s
	}
	seen := map[string]sighting{}
	var abandoned []store.Schedule
	for _, row := range rows {
		s, ok := mine[row.Name]
		if !ok || !names[row.Name] || row.Spec == s.Spec {
			continue
		}
		last, known := r.seen[row.Name]
		if !known || !last.at.Equal(row.SeenAt) {
			last = sighting{row.SeenAt, time.Now()}
		}
		if seen[row.Name] = last; time.Since(last.since) > unseenAfter {
			abandoned = append(abandoned, s)
			r.events.Log(slog.LevelInfo, "durable: took over a schedule: no worker of the version that had it is "+
				"left", "schedule", row.Name)
		}
	}
	r.seen = seen
	if len(abandoned) > 0 {
		_ = r.call(true, abandoned)
	}
}

// call registers all handlers, and registers the schedules in batches of maxRegistered.
func (r *registrar) call(takeOver bool, schedules []store.Schedule) error {
	handlers := r.handlers
	for {
		some := schedules[:min(maxRegistered, len(schedules))]
		_, err := call(r.database, opRegister, func(ctx context.Context) (none struct{}, err error) {
			return none, r.store.Register(ctx, r.worker, handlers, some, takeOver)
		})
		if schedules = schedules[len(some):]; err != nil || len(schedules) == 0 {
			return err
		}
		handlers = nil
	}
}
