package commands

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/inert"
	"github.com/tickslot/tickslot/timer/control"
)

// originFlags adds the flags that say who makes a change, and why.
func (a *app) originFlags(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&a.origin.By, "by", "", "who makes the change; default user@host of this machine")
	c.Flags().StringVar(&a.origin.Note, "note", "", "why, for whoever finds it later")
	c.GroupID = groupControl
	return c
}

// A change changes something and returns a text that describes it.
type change func(ctx context.Context, args []string, by driver.Cause) (done string, err error)

// control returns the RunE of a command that changes something. It records the change in the
// registry's events, for the lock that about names, or for none if about is nil.
func (a *app) control(about func(args []string) string, do change) func(*cobra.Command, []string) error {
	return a.withStore(func(ctx context.Context, args []string) error {
		done, err := a.carryOut(ctx, args, do)
		if err != nil {
			return err
		}
		fmt.Fprintln(a.Out, inert.Line(done))
		name := ""
		if about != nil {
			name = about(args)
		}
		if err := a.tell(ctx, name, done); err != nil {
			a.note("%v", err)
		}
		return nil
	})
}

// carryOut makes a change in the operator's name, unless the store belongs to another environment.
func (a *app) carryOut(ctx context.Context, args []string, do change) (done string, err error) {
	if a.origin.By == "" {
		a.origin.By = defaultBy()
	}
	if err := a.origin.Validate(); err != nil {
		return "", err
	}
	if err := a.checkEnvironment(ctx); err != nil {
		return "", err
	}
	return do(ctx, args, a.origin)
}

// tell records a change to the lock with the given name in the registry's events.
func (a *app) tell(ctx context.Context, name, done string) error {
	_, err := a.store.Registry.Write(ctx, cluster.Batch{Events: []cluster.Event{{ID: rand.Text(),
		Kind: cluster.EventOperator, Name: name, Slot: -1, Holder: dlock.NewHolder(),
		Text: inert.Text(a.origin.Did(done))}}})
	if err != nil {
		return fmt.Errorf("it is done, but could not be written to the registry's events: %w", err)
	}
	return nil
}

// checkEnvironment rejects changes to the store of another environment.
func (a *app) checkEnvironment(ctx context.Context) error {
	if a.environment == "" {
		return nil
	}
	s, err := a.snapshot(ctx)
	if err != nil {
		return fmt.Errorf("nothing is changed, because the environment of the hosts is not known: %w", err)
	}
	if len(s.OtherEnvironments) > 0 {
		return fmt.Errorf("nothing is changed: hosts of environment %s share this store, and --environment is %s",
			strings.Join(s.OtherEnvironments, ", "), a.environment)
	}
	return nil
}

func ofTimer(args []string) string { return fleet.TimerPrefix + args[0] }

// A controller controls timers or handlers of durable runs.
type controller interface {
	Pause(ctx context.Context, name string, until time.Time, by driver.Cause) error
	Resume(ctx context.Context, name string, by driver.Cause) error
	SetMaxConcurrency(ctx context.Context, name string, n int, by driver.Cause) error
	ResetMaxConcurrency(ctx context.Context, name string, by driver.Cause) error
}

// A scheduleController controls schedules of durable runs, which can be paused but have no limit.
type scheduleController struct{ *durable.Control }

func (s scheduleController) Pause(ctx context.Context, name string, until time.Time, by driver.Cause) error {
	return s.PauseSchedule(ctx, name, until, by)
}

func (s scheduleController) Resume(ctx context.Context, name string, by driver.Cause) error {
	return s.ResumeSchedule(ctx, name, by)
}

// A target is what a command controls: a timer, the runs of a handler (--durable), or a schedule of
// durable runs (--schedule).
type target struct {
	*app
	durable, schedule, force bool
}

func (t *target) flag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&t.durable, "durable", false, "the name is that of a handler of durable runs")
	c.Flags().BoolVar(&t.force, "force", false, "also change a name that is unknown: it may be deployed later")
	return t.completes(t.originFlags(c), t.names)
}

func (t *target) scheduleFlag(c *cobra.Command) *cobra.Command {
	c = t.flag(c)
	c.Flags().BoolVar(&t.schedule, "schedule", false, "the name is that of a schedule of durable runs")
	c.MarkFlagsMutuallyExclusive("durable", "schedule")
	return c
}

// about returns the lock whose events record a change, or "" for durable runs, which have no lock.
func (t *target) about(args []string) string {
	if t.durable || t.schedule {
		return ""
	}
	return ofTimer(args)
}

// do makes a change through the controller if name is known, and returns a text that describes it.
func (t *target) do(ctx context.Context, name string, change func(c controller) (done string, err error)) (string,
	error) {
	what, check, c := "timer "+name, t.checkTimer, controller(t.timerControl())
	if t.durable || t.schedule {
		ctl, err := t.durableControl()
		if err != nil {
			return "", err
		}
		what, check, c = "durable runs of "+name, t.checkHandler, ctl
		if t.schedule {
			what, check, c = "schedule "+name, t.checkSchedule, scheduleController{ctl}
		}
	}
	if !t.force {
		err := check(ctx, name)
		if _, unknown := errors.AsType[*unknownNameError](err); unknown {
			return "", fmt.Errorf("nothing is changed: %w (--force changes it all the same)", err)
		}
		if err != nil {
			return "", fmt.Errorf("nothing is changed: %w", err)
		}
	}
	done, err := change(c)
	return what + ": " + done, err
}

func (t *target) pause(ctx context.Context, name string, span time.Duration, by driver.Cause) (string, error) {
	until := time.Now().Add(span)
	return t.do(ctx, name, func(c controller) (string, error) {
		return "paused until " + instant(until), c.Pause(ctx, name, until, by)
	})
}

func (t *target) resume(ctx context.Context, name string, by driver.Cause) (string, error) {
	return t.do(ctx, name, func(c controller) (string, error) { return "resumed", c.Resume(ctx, name, by) })
}

func (a *app) pause() *cobra.Command {
	var span time.Duration
	t := &target{app: a}
	c := &cobra.Command{
		Use: "pause NAME", Short: "Keep a timer from starting, on all hosts", Args: takes(1),
		Long: "No host starts the timer until the pause ends. Runs in progress continue. Ticks that come due are\n" +
			"skipped, not caught up. A second pause replaces the first. With --durable runs of a handler wait,\n" +
			"with --schedule a schedule of durable runs queues none.",
		Example: "  tickslot pause report --for 2h --note \"the warehouse moves\"\n  tickslot pause invoice " +
			"--durable\n  tickslot pause month-end --schedule",
		RunE: a.control(t.about, func(ctx context.Context, args []string, by driver.Cause) (string, error) {
			return t.pause(ctx, args[0], span, by)
		}),
	}
	c.Flags().DurationVar(&span, "for", time.Hour, "for how long, up to ten years")
	return t.scheduleFlag(c)
}

func (a *app) resume() *cobra.Command {
	t := &target{app: a}
	return t.scheduleFlag(&cobra.Command{
		Use: "resume NAME", Short: "End a pause", Args: takes(1),
		Long:    "Ends the pause: hosts start the timer from its next tick. Durable runs that waited are started.",
		Example: "  tickslot resume report",
		RunE: a.control(t.about, func(ctx context.Context, args []string, by driver.Cause) (string, error) {
			return t.resume(ctx, args[0], by)
		}),
	})
}

func (a *app) limit() *cobra.Command {
	t := &target{app: a}
	return t.flag(&cobra.Command{
		Use: "limit NAME N|reset", Short: "Limit how many runs may be in progress at once in the fleet", Args: takes(2),
		Long: "Up to N runs may be in progress at once in the fleet, instead of the code's MaxConcurrency. Runs in\n" +
			"progress continue. With 0 nothing starts. With reset the code's limit is in force again.",
		Example: "  tickslot limit report 1\n  tickslot limit report reset",
		RunE: a.control(t.about, func(ctx context.Context, args []string, by driver.Cause) (string, error) {
			if args[1] == "reset" {
				return t.do(ctx, args[0], func(c controller) (string, error) {
					return "limit reset", c.ResetMaxConcurrency(ctx, args[0], by)
				})
			}
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 0 || n > driver.MaxSlots {
				return "", fmt.Errorf("%q: use a number from 0 to %d, or reset", args[1], driver.MaxSlots)
			}
			return t.do(ctx, args[0], func(c controller) (string, error) {
				return fmt.Sprintf("limited to %d runs at once", n), c.SetMaxConcurrency(ctx, args[0], n, by)
			})
		}),
	})
}

// trigger triggers a timer once a host is ready to run it, or queues a run of a handler and returns
// the run's ID.
func (t *target) trigger(ctx context.Context, name string, payload []byte, expires time.Duration, by driver.Cause,
	ready func() error) (done string, id int64, err error) {
	done, err = t.do(ctx, name, func(c controller) (string, error) {
		if ctl, ok := c.(*durable.Control); ok {
			id, err = ctl.Trigger(ctx, name, payload, durable.TriggerOptions{By: by})
			return fmt.Sprintf("queued run %d", id), err
		}
		if err := ready(); err != nil {
			return "", err
		}
		t.noteExpired(ctx, name)
		return "triggered", t.timerControl().Trigger(ctx, name,
			control.TriggerOptions{Payload: payload, By: by, ExpiresIn: expires})
	})
	return done, id, err
}

func (a *app) trigger() *cobra.Command {
	var payload string
	var expires time.Duration
	wait := false
	t, w := &target{app: a}, &waiter{app: a}
	c := &cobra.Command{
		Use: "trigger NAME", Short: "Have one host run a timer once", Args: takes(1),
		Long: "One host runs the timer once, at most once, as soon as there is room. Its schedule is not affected.\n" +
			"While it waits, \"tickslot explain\" shows it. Calling this twice triggers it twice. With --durable a\n" +
			"run of the handler is queued, which is tried until it has ended. With --wait the command waits for\n" +
			"the end of the run, and prints its ID, its outcome and its error. The exit code is 1 if it failed,\n" +
			"or did not end within --timeout.",
		Example: "  tickslot trigger report\n  tickslot trigger report --payload '{\"day\":\"2026-02-28\"}' " +
			"--expires 10m\n  tickslot trigger invoice --durable --payload 4711\n" +
			"  tickslot trigger report --wait --timeout 10m",
	}
	change := a.control(t.about, func(ctx context.Context, args []string, by driver.Cause) (string, error) {
		ready := func() error { return nil }
		if wait {
			ready = func() error { return w.ready(ctx, args[0], by.By) }
		}
		done, id, err := t.trigger(ctx, args[0], []byte(payload), expires, by, ready)
		w.run = id
		return done, err
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if w.timeout <= 0 {
			return fmt.Errorf("--timeout %v: use more than 0", w.timeout)
		}
		if err := change(c, args); err != nil || !wait {
			return err
		}
		return w.wait(c.Context())
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until the run has ended, and print its result")
	c.Flags().DurationVar(&w.timeout, "timeout", 5*time.Minute, "with --wait, how long to wait at most")
	c.Flags().StringVar(&payload, "payload", "", "`text` for the handler")
	c.Flags().DurationVar(&expires, "expires", control.DefaultTriggerExpiry,
		"give up if no host has room within this time")
	t.flag(c)
	c.MarkFlagsMutuallyExclusive("durable", "expires")
	return c
}

func (a *app) cancel() *cobra.Command {
	slot, id, durableID := -1, "", int64(0)
	c := &cobra.Command{
		Use: "cancel [TIMER]", Short: "End a run", Args: takes(0),
		Long: "The context of the run ends, on whichever host it is, within a third of the TTL. Its slot is free " +
			"when\n" +
			"the handler has returned, or when the lease ends. A durable run that waits is canceled for good.",
		Example: "  tickslot cancel report --slot 0\n  tickslot cancel report --run 0-1781\n  tickslot cancel " +
			"--durable 4711",
	}
	about := func(args []string) string {
		if len(args) == 0 {
			return ""
		}
		return ofTimer(args)
	}
	c.RunE = a.control(about, func(ctx context.Context, args []string, by driver.Cause) (string, error) {
		if len(args) == 1 {
			if err := a.checkTimer(ctx, args[0]); err != nil {
				return "", fmt.Errorf("nothing is changed: %w", err)
			}
		}
		switch {
		case durableID != 0 && len(args) == 0:
			ctl, err := a.durableControl()
			if err != nil {
				return "", err
			}
			was, err := ctl.Cancel(ctx, durableID, by)
			if err == nil && (was == durable.StateSucceeded || was == durable.StateCanceled) {
				err = fmt.Errorf("nothing is changed: durable run %d had ended before, as %s", durableID, was)
			}
			return fmt.Sprintf("durable run %d: canceled, it was %s", durableID, was), err
		case len(args) == 1 && slot >= 0:
			return fmt.Sprintf("timer %s: canceled the run in slot %d", args[0], slot),
				a.timerControl().CancelSlot(ctx, args[0], slot, by)
		case len(args) == 1 && id != "":
			return fmt.Sprintf("timer %s: canceled run %s", args[0], id),
				a.timerControl().CancelRun(ctx, args[0], id, by)
		}
		return "", errors.New("say which run: TIMER with --slot or --run, or --durable with an ID")
	})
	c.Flags().IntVar(&slot, "slot", -1, "the run that holds this slot now (\"tickslot slots ls\")")
	c.Flags().StringVar(&id, "run", "", "the run of this `ID`, as logs and hooks have it")
	c.Flags().Int64Var(&durableID, "durable", 0, "the durable run of this `ID` (\"tickslot durable ls\")")
	c.MarkFlagsMutuallyExclusive("slot", "run", "durable")
	c.MarkFlagsOneRequired("slot", "run", "durable")
	return a.completes(a.originFlags(c), a.timerNames)
}

// noteExpired lists a timer's triggers that no host has run in time. The next trigger removes them.
func (a *app) noteExpired(ctx context.Context, timer string) {
	waiting, err := a.timerControl().Triggers(ctx, timer)
	if err != nil {
		return // the trigger will fail in the same way and report it
	}
	for _, t := range waiting {
		switch {
		case t.ExpiresIn > 0:
		case t.TakenBy == (dlock.Holder{}):
			a.note("the trigger %s, %s ago, has expired: no host had room for it", t.By, show.Span(t.Age))
		default:
			a.note("the trigger %s, %s ago, has expired: %s took it, and may or may not have run it", t.By,
				show.Span(t.Age), t.TakenBy)
		}
	}
}
