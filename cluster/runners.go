package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/mask"
)

// A Runner is a part of a process that runs loops: a *leader.Elector, a *dlock.Session, a
// *timer.Scheduler, or one of your own. A Runner with the additional method
//
//	RegisteredTimers(show func(name string, maxConcurrency, maxPerHost int, onStoreDown string))
//
// shows its timers, with -1 for no limit. onStoreDown is "run_local" or "skip", or "none" if the
// timer does not need the store. Both methods are called for each heartbeat and each Snapshot, on
// goroutines of the registry. They should only read memory. If one panics, or takes longer than a
// second, the runner is shown with the state "stuck".
type Runner interface {
	// Runners calls show for each loop, with its kind (such as "leader"), its name, its state, the
	// time of the last change, and its last error or nil.
	Runners(show func(kind, name, state string, changedAt time.Time, err error))
}

type timerLister interface {
	RegisteredTimers(show func(name string, maxConcurrency, maxPerHost int, onStoreDown string))
}

type admitted interface {
	AdmitBy(ask func(ctx context.Context, refused func(error)) (stop func(), err error))
}

// Add makes the registry show a runner until remove is called. It may be called before and during
// Run.
//
// A *timer.Scheduler, *durable.Worker, *outbox.Relay or *leader.Elector also calls Admit from then
// on: if this process is refused, its Run takes no work and returns the error. Add it before
// calling its Run, which otherwise may already have taken work.
func (r *Registry) Add(runner Runner) (remove func()) {
	if runner == nil {
		return func() {}
	}
	if part, ok := runner.(admitted); ok {
		part.AdmitBy(r.Admit)
	}
	return r.runners.add(runner)
}

const runnerTimeout = time.Second

// runners collects the state of the parts of this process.
type runners struct {
	own     func() RunnerDetail // returns the registry's own runner
	refused func() bool         // reports whether this process is refused

	mu   sync.Mutex // used by all callers
	list []*askedRunner
}

// An askedRunner never makes two calls at the same time: callers that arrive during a call share
// its result.
type askedRunner struct {
	runner Runner

	mu   sync.Mutex
	call *runnerCall // in progress, or nil
	last HostDetail
}

// A runnerCall is one call of a runner's methods.
type runnerCall struct {
	began  time.Time
	done   chan struct{} // closed when the call has returned
	detail HostDetail    // set before done is closed
	err    error         // set before done is closed
}

func (r *runners) add(runner Runner) (remove func()) {
	added := &askedRunner{runner: runner}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, added)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.list = slices.DeleteFunc(r.list, func(a *askedRunner) bool { return a == added })
	}
}

// detail returns what this process reports about itself. It is sorted, so that it differs only if
// something has changed.
func (r *runners) detail() HostDetail {
	r.mu.Lock()
	list := slices.Clone(r.list)
	r.mu.Unlock()
	answers := make([]HostDetail, len(list))
	var all sync.WaitGroup
	for i, a := range list { // in parallel, because several may be stuck
		all.Go(func() { answers[i] = a.detail() })
	}
	all.Wait()
	d := HostDetail{Refused: r.refused(), Runners: []RunnerDetail{r.own()}}
	for _, a := range answers {
		d.Timers = append(d.Timers, a.Timers...)
		d.Runners = append(d.Runners, a.Runners...)
	}
	slices.SortStableFunc(d.Timers, func(a, b TimerDetail) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(d.Runners, func(a, b RunnerDetail) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return d
}

// detail asks one runner for its state.
func (a *askedRunner) detail() HostDetail {
	a.mu.Lock()
	call := a.call
	if call == nil {
		call = &runnerCall{began: time.Now(), done: make(chan struct{})}
		a.call = call
		go a.ask(call)
	}
	a.mu.Unlock()
	err := errors.New("the runner does not return")
	if _, ok := lifecycle.Await(call.done, time.Until(call.began.Add(runnerTimeout))); ok {
		err = call.err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		return a.stuck(err)
	}
	a.last = call.detail
	return call.detail
}

func (a *askedRunner) ask(call *runnerCall) {
	call.err = <-guard.Go("runner", func() error { call.detail = ask(a.runner); return nil })
	a.mu.Lock()
	a.call = nil
	a.mu.Unlock()
	close(call.done)
}

// stuck returns the last state of a runner, with the error that it does not answer. The caller
// holds mu.
func (a *askedRunner) stuck(err error) HostDetail {
	d := HostDetail{Timers: a.last.Timers}
	d.Runners = append(slices.Clone(a.last.Runners), RunnerDetail{Kind: clean(fmt.Sprintf("%T", a.runner), maxKindLen),
		State: "stuck", Err: clean(mask.Text(err.Error()), maxTextLen)})
	return d
}

func ask(runner Runner) (d HostDetail) {
	runner.Runners(func(kind, name, state string, changedAt time.Time, err error) {
		r := RunnerDetail{Kind: clean(kind, maxKindLen), Name: clean(name, maxNameLen), State: clean(state, maxKindLen),
			ChangedAt: cleanInstant(changedAt)}
		if err != nil {
			r.Err = clean(mask.Text(err.Error()), maxTextLen)
		}
		d.Runners = append(d.Runners, r)
	})
	if l, ok := runner.(timerLister); ok {
		l.RegisteredTimers(func(name string, maxConcurrency, maxPerHost int, onStoreDown string) {
			t := TimerDetail{Name: clean(name, maxNameLen), MaxConcurrency: max(-1, maxConcurrency),
				MaxPerHost: max(-1, maxPerHost), OnStoreDown: clean(onStoreDown, maxKindLen)}
			// Defaults are not written: a host may have thousands of timers.
			if t.MaxPerHost == t.MaxConcurrency {
				t.MaxPerHost = 0
			}
			if t.OnStoreDown == runLocal {
				t.OnStoreDown = ""
			}
			d.Timers = append(d.Timers, t)
		})
	}
	return d
}

// encode returns the detail in its stored form.
func (h HostDetail) encode() json.RawMessage {
	text, err := json.Marshal(h)
	if err != nil { // texts and clean instants can always be encoded
		return json.RawMessage("{}")
	}
	return bytes.TrimSpace(text)
}
