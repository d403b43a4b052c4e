package durablepage

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/durable"
)

const (
	// flowTTL is for how long all viewers share what Flow has counted.
	flowTTL   = 15 * time.Second
	flowSpan  = 6 * time.Hour
	maxQueued = 100_000 // so many runs of a handler are counted at most
)

// A flowRead is what came and left, and what waited at the same time.
type flowRead struct {
	durable.Flow
	handlers []durable.HandlerRecord
}

func (s *section) readFlow(ctx context.Context) (r flowRead, err error) {
	if r.handlers, err = s.store.Handlers(ctx); err != nil {
		return r, err
	}
	r.Flow, err = s.store.Flow(ctx)
	return r, err
}

// chart draws the runs of a handler; "": of all.
func (s *section) chart(ctx context.Context, handler string) pagekit.FlowChart {
	read := s.flow.Get(ctx, "", s.readFlow)
	f := pagekit.FlowChart{Entries: "runs", Came: "queued", Waits: "queued or running"}
	if read.At.IsZero() {
		f.Fault = read.Err.Error()
		return f
	}
	for _, h := range read.Value.handlers {
		if handler != "" && h.Name != handler || f.Waiting < 0 {
			continue
		}
		if f.Waiting += h.Queued + h.Running; h.Queued >= maxQueued {
			f.Waiting = -1
		}
	}
	var counts []pagekit.FlowCount
	for _, c := range read.Value.Counts {
		if handler == "" || c.Handler == handler {
			counts = append(counts, pagekit.FlowCount{StartedAt: c.StartedAt, In: c.Created, Out: c.Ended})
		}
	}
	f.Draw(counts, pagekit.FlowSpan{From: read.Value.From, Until: read.Value.Until, Interval: durable.FlowInterval,
		Length: flowSpan})
	return f
}
