package page

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
)

// A runView is a run of a timer that has ended.
type runView struct {
	pagekit.Seen
	Run cluster.HistoryRun `json:"run"`
}

// run shows one run. It asks for the runs of the timer, as the page of the timer does.
func (p *Page) run(ctx context.Context, q url.Values) (Content, error) {
	name, id := q.Get("name"), q.Get("id")
	runs := p.timers.runs.Get(ctx, name, p.readRuns(name))
	at := slices.IndexFunc(runs.Value, func(r cluster.HistoryRun) bool { return r.ID == id })
	if at < 0 && runs.Err != nil {
		return Content{}, fmt.Errorf("run of timer %q: %w", name, runs.Err)
	}
	if at < 0 {
		return Content{}, fmt.Errorf("%w: of timer %q the last %d runs are kept, and this is not one of them",
			ErrNotFound, name, cluster.RunsPerTimer)
	}
	return Content{"Run of " + name, runView{pagekit.SeenOf(runs.At, runs.Err), runs.Value[at]}}, nil
}

// readRuns returns a function that reads the runs of a timer.
func (p *Page) readRuns(name string) func(context.Context) ([]cluster.HistoryRun, error) {
	return func(ctx context.Context) ([]cluster.HistoryRun, error) { return p.config.Registry.Runs(ctx, name) }
}
