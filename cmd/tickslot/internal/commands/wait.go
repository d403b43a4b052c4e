package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/inert"
)

// waitInterval is how often a command checks whether a run has ended.
const waitInterval = 500 * time.Millisecond

// errNotEnded is the error of a check whose run has not ended yet.
var errNotEnded = errors.New("not ended")

// A waiter waits for the run that a trigger has requested.
type waiter struct {
	*app
	timeout time.Duration

	timer  string
	by     string
	before map[string]bool // runs of the timer that had already ended
	run    int64           // ID of the durable run; 0 for a run of the timer
}

// ready records which runs of a timer have already ended, so that the next one can be recognized.
func (w *waiter) ready(ctx context.Context, timer, by string) error {
	w.timer, w.by, w.before = timer, by, map[string]bool{}
	s, err := w.snapshot(ctx)
	if err != nil {
		return fmt.Errorf("nothing is changed: --wait asks the registry for the run: %w", err)
	}
	if len(s.Hosts) == 0 {
		return errors.New("nothing is changed: " + w.noHosts("--wait would not learn how the run ends"))
	}
	runs, err := w.registry.Runs(ctx, timer)
	for _, r := range runs {
		w.before[r.ID] = true
	}
	return err
}

// wait prints how the run has ended. It returns errFound if the run did not succeed.
func (w *waiter) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	look := w.timerRun
	if w.run != 0 {
		look = w.durableRun
	}
	why := errNotEnded
	for {
		text, well, err := w.once(ctx, look)
		switch {
		case err == nil:
			fmt.Fprintln(w.Out, inert.Line(w.store.Hide(text)))
			if !well {
				return errFound
			}
			return nil
		case ctx.Err() == nil:
			why = err // the store may be back at the next check
		}
		select {
		case <-ctx.Done():
			return w.gaveUp(why)
		case <-time.After(waitInterval):
		}
	}
}

// once calls look once, for at most callTimeout, so that a hanging connection does not use up the
// whole wait. If look gets no answer because the wait ends, that is no fault of the store, and once
// returns errNotEnded. (A SQLite file gives up slightly before its deadline, so the deadline may
// not have passed yet.)
func (w *waiter) once(ctx context.Context, look func(context.Context) (string, bool, error)) (text string, well bool,
	err error) {
	ends, _ := ctx.Deadline()
	last := time.Until(ends) < callTimeout
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, well, err = look(ctx)
	if last && errors.Is(err, context.DeadlineExceeded) {
		err = errNotEnded
	}
	return text, well, err
}

// gaveUp returns an error that says the run is not known to have ended, and how to look for it.
func (w *waiter) gaveUp(why error) error {
	look := fmt.Sprintf("\"tickslot explain %s\" says whether it waits or runs", w.timer)
	if w.run != 0 {
		look = "\"tickslot durable ls\" shows it"
	}
	if errors.Is(why, errNotEnded) {
		return fmt.Errorf("it is triggered, but its run is not known to have ended within %v: %s", w.timeout, look)
	}
	return fmt.Errorf("it is triggered, but how its run ends cannot be read: %w", why)
}

// timerRun looks for a run of the timer that this user has triggered, and that has ended since
// ready.
func (w *waiter) timerRun(ctx context.Context) (text string, well bool, err error) {
	runs, err := w.registry.Runs(ctx, w.timer)
	if err != nil {
		return "", false, err
	}
	var found *cluster.HistoryRun
	for i := range runs { // newest first: the oldest of several is ours
		if r := &runs[i]; r.Tick.IsZero() && r.By == w.by && !w.before[r.ID] {
			found = r
		}
	}
	if found == nil {
		return "", false, errNotEnded
	}
	id := found.ID
	if found.Slot >= 0 && found.Fence > 0 { // the ID that appears in logs
		id = fmt.Sprintf("%d-%d", found.Slot, found.Fence)
	}
	text = fmt.Sprintf("run %s on %s: %s in %s", id, found.Holder, found.Outcome, show.Span(found.Took))
	if found.Err != "" {
		text += ": " + found.Err
	}
	return text, found.Succeeded(), nil
}

// durableRun checks the durable run.
func (w *waiter) durableRun(ctx context.Context) (text string, well bool, err error) {
	r, err := w.store.Durable.Run(ctx, w.run)
	if err != nil {
		return "", false, err
	}
	if r.FinishedAt.IsZero() {
		return "", false, errNotEnded
	}
	text = fmt.Sprintf("run %d on %s: %s after %d attempts", r.ID, orNone(r.Worker), r.State, r.Attempt)
	if r.State != durable.StateSucceeded && r.LastError != "" {
		text += ": " + r.LastError
	}
	return text, r.State == durable.StateSucceeded, nil
}
