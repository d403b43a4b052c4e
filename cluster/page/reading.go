package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/internal/mask"
)

// seenOf is about a Snapshot, and about what else was read for a page; nil: without an error.
func seenOf(s *cluster.Snapshot, others ...error) pagekit.Seen {
	return pagekit.SeenOf(s.ReadAt, cmp.Or(append([]error{s.Err}, others...)...))
}

// snapshot is shared by all viewers: see cluster.Registry.Snapshot. Its Err says what could not be
// read.
func (p *Page) snapshot(ctx context.Context) *cluster.Snapshot {
	read := p.snapshots.Get(ctx, "", p.readSnapshot)
	s := p.latest.Load()
	switch {
	case s == nil:
		return &cluster.Snapshot{Err: read.Err, Stale: true}
	case read.Err != nil && s.Err == nil: // there is no answer yet, and this is old
		old := *s
		old.Err, old.Stale = read.Err, true
		return &old
	}
	return s
}

// readSnapshot keeps also one of which a store has told only a part.
func (p *Page) readSnapshot(ctx context.Context) (struct{}, error) {
	began := time.Now()
	s, _ := p.config.Registry.Snapshot(ctx)
	p.latest.Store(s)
	if s.Stale {
		p.failingSince.CompareAndSwap(nil, &began)
		return struct{}{}, s.Err
	}
	p.failingSince.Store(nil)
	return struct{}{}, nil // or there are more leases than it has, which is no reason to ask less often
}

// A reading is what was read of the fleet for a page, and what is wrong with it.
type reading struct {
	*cluster.Snapshot
	rows    []timerRow
	unknown error   // why some pauses are not known
	outage  *outage // nil: there is none
	notices []Notice
}

// read reads what every page needs. It waits for all reads together as long as ctx has patience.
func (p *Page) read(ctx context.Context) *reading {
	p.snapshots.Begin("", p.readSnapshot)
	for i := range p.config.Sections {
		if p.config.Sections[i].Attention != nil {
			p.attention.Begin(fmt.Sprint(i), p.askSection(i))
		}
	}
	r := &reading{Snapshot: p.snapshot(ctx)}
	r.rows, r.unknown = p.timers.pausedRows(ctx, r.Snapshot)
	r.outage = p.outageOf(r.Snapshot, r.rows, p.timers.scheduler())
	c := r.clock()
	if r.outage != nil {
		r.notices = append(r.notices, urgent("", "%s", r.outage.Text(time.Now())))
	}
	r.notices = slices.Concat(r.notices, r.storeNotices(), r.hostNotices(c),
		timerNotices(r.Snapshot, r.rows, r.outage != nil, c))
	for i := range p.config.Sections {
		if p.config.Sections[i].Attention != nil {
			r.notices = append(r.notices, p.sectionNotices(ctx, i)...)
		}
	}
	for i := range r.notices {
		r.notices[i].Text = mask.Text(r.notices[i].Text)
	}
	slices.SortStableFunc(r.notices, func(a, b Notice) int {
		switch {
		case a.Urgent == b.Urgent:
			return 0
		case a.Urgent:
			return -1
		default:
			return 1
		}
	})
	return r
}

// clock tells ages as of when the snapshot was read, if it is old.
func (r *reading) clock() *clock {
	if r.Stale {
		return &clock{r.ReadAt}
	}
	return &clock{}
}

// askSection returns what asks a section what needs attention.
func (p *Page) askSection(i int) func(context.Context) ([]Notice, error) {
	return func(ctx context.Context) (list []Notice, err error) {
		defer func() {
			if r := recover(); r != nil {
				list = []Notice{{Urgent: true, Text: fmt.Sprintf("A section of this page panicked: %v", r)}}
			}
		}()
		return p.config.Sections[i].Attention(ctx), nil
	}
}

// sectionNotices returns what a section last said, and that it has not answered yet.
func (p *Page) sectionNotices(ctx context.Context, i int) []Notice {
	said := p.attention.Get(ctx, fmt.Sprint(i), p.askSection(i))
	if said.Err == nil {
		return said.Value
	}
	name, url := "A section", ""
	if links := p.config.Sections[i].Links; len(links) > 0 {
		name, url = links[0].Title, links[0].Name
	}
	if said.At.IsZero() {
		return []Notice{notable(url, "%s: no answer yet.", name)}
	}
	return append(slices.Clone(said.Value), notable(url, "%s: no answer yet, so this is what it was %s.", name,
		(&clock{}).ago(said.At)))
}
