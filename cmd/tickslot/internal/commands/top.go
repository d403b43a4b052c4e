package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/top"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/timer/control"
)

var errNoTerminal = errors.New("top needs a terminal with cursor control: use \"tickslot timers ls -w\" and " +
	"\"tickslot hosts ls -w\"")

func (a *app) top() *cobra.Command {
	var interval time.Duration
	c := &cobra.Command{
		Use: "top [TEXT]", Short: "Watch the fleet", Args: takes(0), GroupID: groupView,
		Long: "What needs attention, timers with their slots, durable handlers, messages of the outbox that are\n" +
			"pending or dead, and hosts, read again and again. With TEXT, only names that contain it. In SLOTS a\n" +
			"# is a slot that is held, ! one whose holder is not there any more, and a dot one that is free.\n" +
			"While the store does not answer, what was read last is shown, with its age.\n\n" +
			"Keys: up and down choose a row, tab goes to the next list, enter shows all that is known of the row,\n" +
			"p pauses a timer or a durable handler for an hour or ends its pause, t triggers it; both ask first,\n" +
			"and say what was written. s sorts by something else, r reverses that, / filters, ? shows all keys, q\n" +
			"and esc go back and leave.",
		Example: "  tickslot top\n  tickslot top report --interval 5s",
		RunE: func(c *cobra.Command, args []string) error {
			if interval < 100*time.Millisecond {
				return fmt.Errorf("--interval %v: use 100ms or more", interval)
			}
			if !a.canPaint() {
				return errNoTerminal
			}
			if err := a.open(c); err != nil {
				return err
			}
			calls := *a // copied before reading begins, because a call writes to its app
			options := top.Options{Store: a.store.Name, Read: a.readFleet(), Interval: interval,
				Act: calls.actFromTop, Detail: calls.detailForTop}
			if a.store.Outbox != nil {
				options.ReadWork = a.readWork()
			}
			if len(args) > 0 {
				options.Filter = args[0]
			}
			return top.Run(c.Context(), options, a.In, a.Out)
		},
	}
	c.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two reads of the store")
	return c
}

// canPaint reports whether input and output are a terminal that can move its cursor.
func (a *app) canPaint() bool {
	_, in := widthOf(a.In)
	_, out := widthOf(a.Out)
	return in && out && a.Getenv("TERM") != "dumb" && a.Getenv("TERM") != ""
}

// readFleet returns a function that reads the fleet for top. While the store is down, timers keep
// their overrides.
func (a *app) readFleet() func(ctx context.Context) top.Reading {
	var before []*fleet.Timer
	return func(ctx context.Context) top.Reading {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		s, err := a.readSnapshot(ctx)
		reading := top.Reading{Snapshot: s, Timers: fleet.Timers(s)}
		if err != nil {
			reading.Err = a.text(err)
			fleet.Keep(before, reading.Timers)
			return reading
		}
		fleet.Inspect(ctx, a.store.Locks, reading.Timers, a.text)
		before = reading.Timers
		return reading
	}
}

// workTimeout bounds each call of readWork.
const workTimeout = 3 * time.Second

// shownMessages is the number of messages of each state that top shows.
const shownMessages = 100

// readWork returns a function that reads durable runs and the outbox for top. A part that cannot be
// read stays unchanged, and a part without tables is left out.
func (a *app) readWork() func(ctx context.Context) top.Work {
	w := top.Work{}
	return func(ctx context.Context) top.Work {
		if a.store.Durable != nil {
			a.readPart(ctx, "durable", &w.DurableAt, &w.DurableErr, func(ctx context.Context) error {
				list, err := a.store.Durable.Handlers(ctx)
				if err == nil {
					w.Handlers = topHandlers(list)
				}
				return err
			})
		}
		a.readPart(ctx, "outbox", &w.OutboxAt, &w.OutboxErr, func(ctx context.Context) error {
			backlog, err := a.store.Outbox.Backlog(ctx)
			var all []outbox.Record
			for _, state := range []outbox.State{outbox.StateDead, outbox.StatePending} {
				if err == nil {
					var list []outbox.Record
					list, err = a.store.Outbox.Messages(ctx, outbox.Filter{State: state}, shownMessages)
					all = append(all, list...)
				}
			}
			if err == nil {
				w.Pending, w.Dead, w.DueAge = backlog.Pending, backlog.Dead, backlog.DueAge
				w.Messages = topMessages(all)
			}
			return err
		})
		return w
	}
}

// topHandlers leaves out the record for all handlers together, which top cannot pause or trigger.
func topHandlers(records []durable.HandlerRecord) (list []top.Handler) {
	for _, h := range records {
		if h.Name != "" {
			_, paused := pausedText(h.Pause)
			list = append(list, top.Handler{Name: h.Name, Limit: handlerLimits(h), Queued: h.Queued,
				Running: h.Running, Dead: h.Dead, SeenAt: h.SeenAt, Paused: strings.Join(paused, "")})
		}
	}
	return list
}

func topMessages(records []outbox.Record) (list []top.Message) {
	for _, r := range records {
		list = append(list, top.Message{ID: r.ID.String(), Topic: r.Topic, Key: r.Key, LastError: r.LastError,
			Dead: r.State == outbox.StateDead, Attempts: r.Attempts, CreatedAt: r.CreatedAt})
	}
	return list
}

// readPart reads a part of the store, and records when it did, or why it could not.
func (a *app) readPart(ctx context.Context, part string, at *time.Time, fault *string,
	read func(ctx context.Context) error) {
	bounded, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	switch err := read(bounded); {
	case err == nil:
		*at, *fault = time.Now(), ""
	case a.lacksTables(bounded, part):
		*at, *fault = time.Time{}, ""
	default:
		*fault = a.text(err)
	}
}

// lacksTables reports whether a part has no tables in this database.
func (a *app) lacksTables(ctx context.Context, name string) bool {
	for _, part := range a.store.Parts {
		if part.Name == name {
			check, err := a.store.CheckTables(ctx, part)
			return err == nil && check.Missing
		}
	}
	return false
}

// forCall returns an app for one call of top, and a builder that collects its remarks.
func (a *app) forCall() (app, *strings.Builder) {
	call, notes := *a, &strings.Builder{}
	call.Err = notes
	return call, notes
}

// actFromTop runs the command that corresponds to an action.
func (a *app) actFromTop(ctx context.Context, action top.Action, on top.Subject) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	call, notes := a.forCall()
	t := &target{app: &call, durable: on.Kind == top.KindHandler}
	done, err := call.carryOut(ctx, []string{on.Name},
		func(ctx context.Context, args []string, by driver.Cause) (string, error) {
			switch action {
			case top.ActionPause:
				return t.pause(ctx, args[0], top.PauseFor, by)
			case top.ActionResume:
				return t.resume(ctx, args[0], by)
			case top.ActionTrigger:
				done, _, err := t.trigger(ctx, args[0], nil, control.DefaultTriggerExpiry, by,
					func() error { return nil })
				return done, err
			}
			return "", fmt.Errorf("no such action: %s", action)
		})
	if err != nil {
		return "", errors.New(call.text(err))
	}
	if err := call.tell(ctx, t.about([]string{on.Name}), done); err != nil {
		call.note("%s", call.text(err))
	}
	done += ", " + call.origin.String()
	if notes.Len() > 0 {
		done += "; " + strings.TrimSpace(notes.String())
	}
	return done, nil
}

// detailForTop returns all details about the subject of a row in top.
func (a *app) detailForTop(ctx context.Context, of top.Subject) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	call, _ := a.forCall()
	var b strings.Builder
	err := map[top.Kind]func(ctx context.Context, name string, w io.Writer) error{
		top.KindTimer: func(ctx context.Context, name string, w io.Writer) error {
			x, err := call.explained(ctx, name)
			if err != nil {
				return err
			}
			return x.print(w)
		},
		top.KindHandler: call.handlerDetail,
		top.KindMessage: call.messageDetail,
		top.KindHost:    call.hostDetail,
	}[of.Kind](ctx, of.Name, &b)
	if err != nil {
		return nil, errors.New(call.text(err))
	}
	return strings.Split(strings.TrimSpace(b.String()), "\n"), nil
}
