package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"
)

// A writer writes heartbeats together with everything that is pending.
type writer struct {
	config  Config
	pending *pending
	runners *runners
	kinds   *kinds
	faults  *faults
	listing *listing

	startedAt time.Time // of the process

	// Held during a write, by the goroutine of Run or by a part that asks whether it may begin.
	writing  sync.Mutex
	offset   time.Duration   // of this host's clock, as last measured
	detail   json.RawMessage // as stored; nil if the store may not have it
	runsWait bool            // runs wait, because the last batch had a detail
	// The Number of the last batch if it got no answer, otherwise 0.
	asked int64

	mu      sync.Mutex // used by all callers
	wroteAt time.Time  // zero if never
	storeAt time.Time  // at wroteAt, by the store's clock; zero if unknown
}

// write writes one batch. If the store has no row for this host, it immediately writes a second
// one. more reports that more rows wait.
func (w *writer) write(ctx context.Context, left bool) (more bool, err error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	t := w.pending.take(w.listing.unsupported())
	detail := w.runners.detail().encode()
	for range 2 {
		// A batch with a detail creates the row of this host if the row was deleted. The store
		// would then not count the batch's runs, and its answer would not say so. So a batch with a
		// detail contains no runs: they wait for the next batch. Runs from a batch without an
		// answer go first. If the row, which holds the number of the last batch, was deleted in the
		// meantime, they are not sent again.
		changed := !bytes.Equal(detail, w.detail)
		withDetail := w.detail == nil || changed && (len(t.runs) == 0 || !w.runsWait && w.asked == 0)
		if w.runsWait = withDetail && len(t.runs) > 0; w.runsWait {
			t.runs = nil
		}
		t.more = t.more || w.runsWait || changed && !withDetail
		b := w.batch(t)
		b.Host.Left = left
		if withDetail {
			b.Host.Detail = detail
		}
		again := b.Number != 0 && b.Number == w.asked
		if b.Number != 0 {
			w.asked = b.Number
		}
		var answer Written
		sent := time.Now()
		answer, err = call(ctx, w.faults, opWrite, func(ctx context.Context) (Written, error) {
			return w.config.Store.Write(ctx, b)
		})
		if err != nil {
			return t.more, err // the rows stay pending
		}
		w.answered(sent, answer)
		w.pending.done(t, !w.runsWait && (again || !answer.HostUnknown))
		if b.Number != 0 {
			w.asked = 0
		}
		if !answer.HostUnknown {
			if withDetail {
				w.detail = detail
			}
			return t.more, nil
		}
		w.detail = nil // the row was deleted or the registry emptied
		w.pending.writeAgain()
		t = w.pending.take(w.listing.unsupported())
	}
	return t.more, nil
}

// batch returns the batch to send now. It converts instants into durations as late as possible.
func (w *writer) batch(t taken) Batch {
	o := w.config
	b := Batch{
		Leases: make([]LeaseRecord, 0, len(t.leases)),
		Events: make([]Event, 0, len(t.events)),
		Runs:   make([]Run, 0, len(t.runs)),
	}
	kinds := make([]string, len(t.leases))
	for i, l := range t.leases { // before time.Now is called, because it may run the user's function
		if kinds[i] = l.record.Kind; kinds[i] == "" {
			kinds[i] = w.kinds.of(l.record.Name)
		}
	}
	events := t.events[:0:0]
	for _, e := range t.events {
		if e.Kind == EventAcquired || e.Kind == EventReleased {
			if kind := w.kinds.of(e.Name); kind == "" || frequent(kind) { // may run the user's function
				continue
			}
		}
		events = append(events, e)
	}
	now := time.Now()
	b.Host = &Heartbeat{Holder: o.Holder, Environment: o.Environment, AppVersion: o.AppVersion, Version: version(),
		UpFor: now.Sub(w.startedAt), ClockOffset: w.offset, TTL: o.TTL}
	for i, l := range t.leases {
		s := l.recordAt(now)
		s.Kind = kinds[i]
		b.Leases = append(b.Leases, s)
	}
	for _, e := range events {
		e.Ago = max(0, now.Sub(e.at))
		b.Events = append(b.Events, e.Event)
	}
	for _, r := range t.runs {
		r.EndedAgo = max(0, now.Sub(r.at))
		b.Runs = append(b.Runs, r.Run)
	}
	if len(b.Runs) > 0 {
		b.Number = int64(t.lastSeq.runs)
		b.Timers, b.Buckets = recordsOf(b.Runs), bucketsOf(b.Runs, w.storeTime(now))
	}
	return b
}

// storeTime returns the store's time: the last measurement plus the time since then by this host's
// monotonic clock, which cannot be set.
func (w *writer) storeTime(now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.storeAt.IsZero() {
		return now
	}
	return w.storeAt.Add(now.Sub(w.wroteAt))
}

// answered records when the store was last written to, and how far off this host's clock is. The
// store read its own clock between the request and the reply.
func (w *writer) answered(sent time.Time, answer Written) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wroteAt = now
	if w.storeAt = answer.At; !answer.At.IsZero() {
		w.offset = sent.Add(now.Sub(sent) / 2).Round(0).Sub(answer.At)
	}
}

// lastWrite returns when the last write was answered, or zero if none was.
func (w *writer) lastWrite() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wroteAt
}

// runner returns the writer's own runner.
func (w *writer) runner(running bool) RunnerDetail {
	changedAt, err := w.faults.Broken()
	d := RunnerDetail{Kind: "registry", Name: "writer", State: "writing", ChangedAt: changedAt.UTC().Round(0)}
	switch {
	case !running:
		d.State = "stopped"
	case err != nil:
		d.State, d.Err = "failing", clean(err.Error(), maxTextLen)
	}
	return d
}
