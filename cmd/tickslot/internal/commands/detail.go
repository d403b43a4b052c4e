package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/inert"
	"github.com/tickslot/tickslot/outbox"
)

// detailRuns is the number of runs in the detail of a handler.
const detailRuns = 20

// line prints a line that cannot control the terminal.
func line(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, inert.Line(fmt.Sprintf(format, args...)))
}

// handlerDetail prints the database's data about a handler of durable runs, dead runs first.
func (a *app) handlerDetail(ctx context.Context, name string, w io.Writer) error {
	list, err := a.store.Durable.Handlers(ctx)
	if err != nil {
		return err
	}
	now, found := time.Now(), false
	for _, h := range list {
		if h.Name != name {
			continue
		}
		found = true
		state, set := pausedText(h.Pause)
		line(w, "%s: %s, limit %s", h.Name, state, handlerLimits(h))
		if h.Override != nil {
			set = append(set, "limit "+h.Override.String())
		}
		for _, text := range set {
			line(w, "- %s", text)
		}
		line(w, "runs: %d queued, %d running, %d dead; seen by a worker that has it: %s", h.Queued, h.Running, h.Dead,
			orNever(h.SeenAt, now))
	}
	if !found {
		return unknownName("handler of durable runs", name, nil)
	}
	dead, err := a.store.Durable.Runs(ctx, durable.RunFilter{Handler: name, States: []durable.State{durable.StateDead}},
		detailRuns)
	if err != nil {
		return err
	}
	latest, err := a.store.Durable.Runs(ctx, durable.RunFilter{Handler: name}, detailRuns)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		runs  []durable.RunRecord
	}{{"dead runs", dead}, {"latest runs", latest}} {
		line(w, "")
		line(w, "%s: %d, the newest first", part.title, len(part.runs))
		for _, r := range part.runs {
			text := fmt.Sprintf("run %d: %s, attempt %s, queued %s ago", r.ID, r.State, attemptText(r),
				show.Ago(r.EnqueuedAt, now))
			if r.Worker != "" {
				text += ", by " + r.Worker
			}
			if r.LastError != "" {
				text += ": " + r.LastError
			}
			line(w, "%s", text)
		}
	}
	return nil
}

// messageDetail prints a message of the outbox and its attempts.
func (a *app) messageDetail(ctx context.Context, id string, w io.Writer) error {
	parsed, err := outbox.ParseID(id)
	if err != nil {
		return err
	}
	r, attempts, err := a.store.Outbox.Message(ctx, parsed)
	if err != nil {
		return err
	}
	now := time.Now()
	line(w, "%s: %s, %d attempts", r.ID, r.State, r.Attempts)
	line(w, "topic: %s, key: %s, payload: %d bytes", r.Topic, orNone(r.Key), len(r.Payload))
	line(w, "appended: %s (%s ago)", instant(r.CreatedAt), show.Ago(r.CreatedAt, now))
	if !r.NextAttemptAt.IsZero() {
		line(w, "next attempt: %s", instant(r.NextAttemptAt))
	}
	if !r.FinishedAt.IsZero() {
		line(w, "finished: %s", instant(r.FinishedAt))
	}
	if r.LastError != "" {
		line(w, "failing since %s: %s", instant(r.FailingFrom), r.LastError)
	}
	for _, at := range attempts {
		line(w, "attempt %d, %s ago by %s: %s in %s %s", at.Number, show.Ago(at.FinishedAt, now), at.Relay, at.Outcome,
			show.Span(at.Took), at.Error)
	}
	return nil
}

// hostDetail prints what a host reports about itself.
func (a *app) hostDetail(ctx context.Context, name string, w io.Writer) error {
	s, err := a.snapshot(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, h := range s.Hosts {
		if h.Holder.String() != name {
			continue
		}
		line(w, "%s: %s", name, fleet.HostState(h))
		line(w, "seen %s ago, up for %s, TTL %s, its clock is %s off the store's", show.Ago(h.SeenAt, now),
			show.Ago(h.StartedAt, now), show.Span(h.TTL), show.Span(h.ClockOffset))
		line(w, "version %s, tickslot %s, environment %s", orNone(h.AppVersion), orNone(h.Version),
			orNone(h.Environment))
		for _, r := range h.Runners {
			text := fmt.Sprintf("%s %s: %s", r.Kind, r.Name, r.State)
			if r.Err != "" {
				text += ", " + r.Err
			}
			line(w, "- %s", text)
		}
		for _, l := range s.Leases {
			if l.Holder == h.Holder && l.ExpiresAt.After(now) {
				line(w, "holds %s, slot %d, for %s", l.Name, l.Slot, show.Ago(l.AcquiredAt, now))
			}
		}
		for _, t := range h.Timers {
			line(w, "has timer %s", t.Name)
		}
		return nil
	}
	return errors.New("the registry has no such host any more")
}

func orNever(at, now time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return show.Ago(at, now) + " ago"
}
