package durable

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/internal/flow"
)

// FlowInterval is the length of the intervals of a Flow.
const FlowInterval = flow.Interval

// A Flow is how many runs of each handler were created and ended when, within the last six hours.
type Flow struct {
	// From is since when all are counted. It is later than six hours ago if there were more than
	// 30,000 runs since then.
	From   time.Time
	Until  time.Time   // when they were counted, by the database's clock
	Counts []FlowCount // the oldest first; intervals in which nothing happened are left out
}

// A FlowCount is how many runs of a handler were created and ended within FlowInterval.
type FlowCount struct {
	Handler   string
	StartedAt time.Time // the interval began, a multiple of FlowInterval
	Created   int64
	Ended     int64 // succeeded, died or were canceled
}

// Flow counts runs. It is one statement that reads at most 30,000 runs of each state, so it is for
// people who look at it, and not for each second.
//
// Not promised: runs that were deleted meanwhile (see Retention) are not counted, and a dead run
// that was queued again does not count as ended.
func (s *Store) Flow(ctx context.Context) (Flow, error) {
	if err := s.ready(ctx); err != nil {
		return Flow{}, named(err)
	}
	counted, err := s.store.Flow(ctx)
	if err != nil {
		return Flow{}, named(err)
	}
	f := Flow{From: counted.From, Until: counted.Until}
	for _, c := range counted.Counts {
		f.Counts = append(f.Counts, FlowCount{c.Name, c.At, c.In, c.Out})
	}
	return f, nil
}
