//go:build linux

package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
	"github.com/tickslot/tickslot/schedule"
)

const (
	// lookAt is how often a handler checks whether its run is valid, and piece how often it logs
	// that. What is not logged when the process is killed is lost.
	lookAt = 5 * time.Millisecond
	piece  = 50 * time.Millisecond
	// gap is the longest time between two checks for which the run counts as valid in between.
	gap = 60 * time.Millisecond
	// statusEvery is how often a worker reports that it is awake.
	statusEvery = 100 * time.Millisecond
)

// A registration detects in a worker's log that it has registered.
type registration struct {
	log   *torture.Log
	heard sync.Once
}

func (r *registration) Enabled(context.Context, slog.Level) bool { return true }

func (r *registration) Handle(_ context.Context, line slog.Record) error {
	if line.Message == "durable: materialize cycle starting" { // the loops start after registration
		r.heard.Do(func() { r.log.Write(torture.Line{Kind: torture.Registered}) })
	}
	return nil
}

func (r *registration) WithAttrs([]slog.Attr) slog.Handler { return r }

func (r *registration) WithGroup(string) slog.Handler { return r }

// runWorker runs a worker until it is told to drain.
func runWorker(spec nemesis.Spec, log *torture.Log) error {
	d, err := nemesis.Open(spec.Ways[0])
	if err != nil {
		return err
	}
	defer d.Close()
	timing := Timing{spec.Lease}
	w, err := durable.NewWorker(storeOf(d), durable.Config{Name: spec.Name, MaxRuns: maxRuns, MaxActive: maxActive,
		TTL: timing.Lease, PollInterval: timing.Poll(), CallTimeout: timing.Call(),
		DrainTimeout:  time.Second,
		MaxCrashes:    durable.NoLimit, // the faults kill workers all the time
		SweepInterval: 5 * time.Second, Logger: slog.New(&registration{log: log}), Hooks: hooks(log)})
	if err != nil {
		return err
	}
	for _, each := range works {
		w.Handle(each.name, func(ctx context.Context, r *durable.Run) error {
			return handle(ctx, r, log, timing.Lease)
		}, each.options)
	}
	for _, c := range cadences {
		w.Schedule(c.name, "ticking", schedule.Every(c.period), durable.ScheduleOptions{CatchUp: c.catchUp})
	}
	ctx, stop := nemesis.UntilTold()
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for tick := time.NewTicker(statusEvery); ; {
		select {
		case <-tick.C:
			if ctx.Err() == nil {
				log.Write(torture.Line{Kind: torture.Status})
			}
		case err := <-ended:
			log.Write(torture.Line{Kind: torture.End})
			if _, stuck := errors.AsType[*durable.StuckError](err); stuck ||
				err != nil && strings.Contains(err.Error(), "could not be written") {
				return nil // other workers repeat its runs
			}
			return err
		}
	}
}

// hooks log which results count, according to the database's answer to the worker.
func hooks(log *torture.Log) durable.Hooks {
	counted := func(r durable.RunInfo, outcome durable.Outcome) {
		log.Write(torture.Line{Kind: torture.Counted, Work: &torture.Work{ID: r.ID, Attempt: r.Attempt,
			Outcome: string(outcome)}})
	}
	return durable.Hooks{
		AttemptFailed: func(i durable.AttemptInfo) { counted(i.RunInfo, i.Outcome) },
		RunEnded: func(i durable.RunResult) {
			if i.Outcome != durable.OutcomeLeaseLost { // otherwise it is another worker's
				counted(i.RunInfo, i.Outcome)
			}
		},
	}
}

// handle is the handler for all works.
func handle(ctx context.Context, r *durable.Run, log *torture.Log, lease time.Duration) (err error) {
	w := newWitness(ctx, r, log)
	outcome := "error"
	defer func() {
		w.look()
		w.write()
		w.line(torture.Returned, outcome)
	}()
	switch r.Handler {
	case "noop":
		w.look()
	case "ticking":
		err = w.work(rand.N(150*time.Millisecond), 0)
	case "long":
		err = w.work(rand.N(2*lease), lease*time.Duration(rand.IntN(3))/2)
	case "doomed":
		w.look()
		if r.Attempt > 1 {
			outcome = "dead"
			return durable.Permanent(errors.New("as it was meant to"))
		}
		return errors.New("the first time")
	case "flaky":
		err = w.work(rand.N(50*time.Millisecond), 0)
		switch rand.IntN(6) {
		case 0:
			return errors.New("it fails")
		case 1:
			return durable.RetryAfter(rand.N(500*time.Millisecond), errors.New("it wants to wait"))
		case 2:
			panic("as it was meant to")
		}
	}
	if err == nil {
		outcome = "ok"
	}
	return err
}

// A witness logs when an attempt was valid.
type witness struct {
	ctx    context.Context
	run    *durable.Run
	log    *torture.Log
	first  int64 // start of the open piece, or 0
	last   int64
	looked int64         // time of the latest check
	untold time.Duration // time awake while not valid and not told
	told   bool          // logged as not told
}

func newWitness(ctx context.Context, r *durable.Run, log *torture.Log) *witness {
	w := &witness{ctx: ctx, run: r, log: log}
	w.line(torture.Started, "")
	return w
}

func (w *witness) line(kind, outcome string) {
	of := &torture.Work{ID: w.run.ID, Attempt: w.run.Attempt, Handler: w.run.Handler, Schedule: w.run.Schedule,
		Outcome: outcome}
	if w.run.Schedule == "" {
		of.Key = string(w.run.Payload)
	}
	if !w.run.DueAt.IsZero() {
		of.Tick = w.run.DueAt.UnixMicro()
	}
	w.log.Write(torture.Line{Kind: kind, Work: of, First: w.first, Last: w.last})
}

// work checks for a duration, or until overstay after the end of the context.
func (w *witness) work(length, overstay time.Duration) error {
	began := time.Now()
	var told time.Time
	for {
		w.look()
		if w.ctx.Err() != nil && told.IsZero() {
			told = time.Now()
		}
		switch {
		case !told.IsZero() && time.Since(told) >= overstay:
			return context.Cause(w.ctx)
		// If the lease was lost, the context must end.
		case told.IsZero() && time.Since(began) > length && w.untold == 0:
			return nil
		}
		time.Sleep(lookAt) // simulated work
	}
}

// look checks once. The result holds for the moment before the check, because a run that is valid
// has been valid since it started.
func (w *witness) look() {
	now := nemesis.Mono()
	valid := w.run.Valid()
	w.suspect(!valid && w.ctx.Err() == nil, now)
	if w.first != 0 && (!valid || now-w.last > int64(gap)) {
		w.write()
	}
	if !valid {
		return
	}
	if w.first == 0 {
		w.first = now
	}
	w.last = now
	if w.last-w.first >= int64(piece) {
		w.write()
		w.first, w.last = now, now // the next piece begins where this one ends
	}
}

// suspect measures how long the run has not been told. Time in which this process was paused does
// not count.
func (w *witness) suspect(untold bool, now int64) {
	passed := min(time.Duration(now-w.looked), gap)
	w.looked = now
	if !untold {
		w.untold = 0
		return
	}
	if w.untold += passed; w.untold > time.Second && !w.told {
		w.told = true
		w.line(torture.Untold, "")
	}
}

// write logs the open piece, if there is one.
func (w *witness) write() {
	if w.first != 0 {
		w.line(torture.Seen, "")
		w.first, w.last = 0, 0
	}
}
