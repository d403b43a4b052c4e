package page

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/internal/mask"
)

// A chartSpan is how much time a chart shows.
type chartSpan struct {
	name                string // the value of chart in the URL
	title, within, each string
	length, bucket      time.Duration
}

var chartSpans = []chartSpan{
	{"", "A day", "a day", "5 min", cluster.FineRetention, cluster.FineBucket},
	{"month", "A month", "a month", "an hour", cluster.CoarseRetention, cluster.CoarseBucket},
}

// A runChart draws how many runs of a timer, or of the fleet, ended when, and how long they took. A
// registry counts no skipped ticks, so there are none.
type runChart struct {
	Spans         []tab
	Within        string // "a day"
	Fault         string // why nothing is known; "": something is
	Ended, Failed int    // runs
	Counts, Times pagekit.Bars

	P50Took, P95Took time.Duration // of all runs that it shows
}

// Succeeded is how many runs did.
func (r runChart) Succeeded() int { return r.Ended - r.Failed }

// chart draws the runs of a timer; "": those of the fleet. It waits as long as ctx has patience.
func (p *Page) chart(ctx context.Context, q url.Values, timer string) runChart {
	read := p.timers.buckets.Get(ctx, timer, p.readBuckets(timer))
	c := &clock{}
	if read.Err != nil {
		c.now = read.At
	}
	span, page := chartSpans[0], ""
	if q.Get("chart") == chartSpans[1].name {
		span = chartSpans[1]
	}
	if timer != "" {
		page = "timer"
	}
	r := chartOf(read.Value, span, c)
	if read.At.IsZero() {
		r.Fault = mask.Text(read.Err.Error())
	}
	for _, s := range chartSpans {
		r.Spans = append(r.Spans, tab{Title: s.title, URL: URL(page, "name", timer, "chart", s.name),
			Current: s == span})
	}
	return r
}

func (p *Page) readBuckets(timer string) func(context.Context) ([]cluster.HistoryBucket, error) {
	return func(ctx context.Context) ([]cluster.HistoryBucket, error) {
		return p.config.Registry.Buckets(ctx, timer)
	}
}

// chartOf draws the buckets of a span that ends with the clock's time.
func chartOf(buckets []cluster.HistoryBucket, span chartSpan, c *clock) runChart {
	columns := int(span.length / span.bucket)
	from := c.time().UTC().Truncate(span.bucket).Add(span.bucket - span.length)
	r, shown := runChart{Within: span.within}, make([]cluster.HistoryBucket, columns)
	var all, most cluster.HistoryBucket
	for _, b := range buckets {
		i := int(b.StartedAt.Sub(from) / span.bucket)
		if b.Interval != span.bucket || b.StartedAt.Before(from) || i >= columns || b.Runs <= 0 {
			continue
		}
		shown[i] = b
		all.Add(b)
		most.Runs, most.LongestTook = max(most.Runs, b.Runs), max(most.LongestTook, b.LongestTook)
	}
	if r.Ended, r.Failed = all.Runs, all.Failed; r.Ended == 0 {
		return r
	}
	counts := pagekit.Bars{From: from, MiddleAt: from.Add(span.length / 2), EndsAt: c.now, Columns: columns,
		Height: pagekit.ChartHeight}
	times := counts
	counts.Top, times.Top = fmt.Sprintf("%d in %s", most.Runs, span.each), pagekit.Took(most.LongestTook)
	counts.Text = fmt.Sprintf("Runs by when they ended, within %s: %d, of which %d failed; at most %s",
		span.within, all.Runs, all.Failed, counts.Top)
	times.Text = fmt.Sprintf("How long runs took, by when they ended, within %s: %s", span.within, tookText(all))
	r.P50Took, r.P95Took = all.TookPercentile(50), all.TookPercentile(95)
	// Each is drawn over the one before it: a single failure over the others.
	counts.Layers = []pagekit.Layer{{Class: "ran"}, {Class: "failed"}}
	times.Layers = []pagekit.Layer{{Class: "longest"}, {Class: "p95"}, {Class: "p50"}}
	for i, b := range shown {
		if b.Runs == 0 {
			continue
		}
		counts.Layers[0].Path += pagekit.BarOf(i, b.Failed, b.Runs, most.Runs)
		counts.Layers[1].Path += pagekit.BarOf(i, 0, b.Failed, most.Runs)
		for k, took := range []time.Duration{b.LongestTook, b.TookPercentile(95), b.TookPercentile(50)} {
			times.Layers[k].Path += pagekit.BarOf(i, 0, took, most.LongestTook)
		}
		when := b.StartedAt.UTC().Format("2 Jan 15:04 UTC")
		counts.AddTip(i, "%s: %s, %d failed", when, pagekit.Count(b.Runs, "run"), b.Failed)
		times.AddTip(i, "%s: %s", when, tookText(b))
	}
	r.Counts, r.Times = counts, times
	return r
}

// tookText says how long the runs of a bucket took.
func tookText(b cluster.HistoryBucket) string {
	return fmt.Sprintf("p50 %s, p95 %s, longest %s", pagekit.Took(b.TookPercentile(50)),
		pagekit.Took(b.TookPercentile(95)), pagekit.Took(b.LongestTook))
}
