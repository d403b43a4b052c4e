//go:build unix

package timertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// An event is a report by a host of Stopped. Another process sends it as a line of JSON.
type event struct {
	What  what
	Timer string      `json:",omitempty"`
	Slot  int         `json:",omitempty"`
	Fence dlock.Fence `json:",omitempty"`
	At    time.Time
	Valid bool          `json:",omitempty"` // returned: valid until the end
	Cause string        `json:",omitempty"` // lost, claimed, released, failed
	By    *driver.Cause `json:",omitempty"` // lost: the operator who revoked it
	Said  *said         `json:",omitempty"` // status
}

type what string

const (
	ready    what = "ready"    // Run is running
	began    what = "began"    // a run started
	lost     what = "lost"     // a run of long: its context ended because of its lease
	returned what = "returned" // a run returned
	beaten   what = "beaten"   // the lease of long was renewed; At is before the request
	looked   what = "looked"   // the host received a trigger and checked it; Cause: why that failed
	released what = "released" // the slot of long was released; Cause: the outcome
	status   what = "status"
	failed   what = "failed" // an order failed
)

// A said is a host's report about itself.
type said struct {
	Paused  *driver.Cause // of often
	Skipped uint64        // ticks of often skipped because of the pause
	Limit   int           // of wide
	Full    time.Time     // when it last asked for a slot of wide and found all slots held
	Failed  int           // failed store calls so far
}

const (
	often   = "often"  // runs at every tick on every host
	wide    = "wide"   // takes longer than a tick
	endless = "long"   // holds its slot until told to return
	manual  = "manual" // runs when triggered
)

// members returns the timers of a host of Stopped. A run of long that has lost its lease returns
// when let is closed. A run of wide in its second slot returns when keep is closed, unless keep is
// nil.
func members(period time.Duration, let, keep <-chan struct{}, tell func(event)) []timer.Timer {
	report := func(w what, r *timer.Run) event {
		return event{What: w, Timer: r.Timer(), Slot: r.Slot(), Fence: r.Fence(), At: time.Now(), Valid: r.Valid()}
	}
	told := func(handler func(ctx context.Context, r *timer.Run)) func(context.Context) error {
		return func(ctx context.Context) error {
			r, _ := timer.RunFromContext(ctx)
			tell(report(began, r))
			handler(ctx, r)
			tell(report(returned, r))
			return nil
		}
	}
	return []timer.Timer{
		{Name: often, Schedule: schedule.Every(period), MaxConcurrency: 2, MaxPerTick: 2, MaxPerHost: 1,
			OnStoreDown: timer.StoreDownSkip, Run: told(func(context.Context, *timer.Run) {})},
		{Name: wide, Schedule: schedule.Every(period), MaxConcurrency: 2,
			MaxPerTick: 2, OnStoreDown: timer.StoreDownSkip,
			Run: told(func(ctx context.Context, r *timer.Run) {
				if keep != nil && r.Slot() == 1 {
					select {
					case <-ctx.Done():
					case <-keep:
					}
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(5 * period / 2): // simulated work
				}
			})},
		{Name: manual, MaxConcurrency: 2, OnStoreDown: timer.StoreDownSkip,
			Run: told(func(context.Context, *timer.Run) {})},
		{Name: endless, OnStoreDown: timer.StoreDownSkip, Run: told(func(ctx context.Context, r *timer.Run) {
			select {
			case <-let:
			case <-ctx.Done():
				e := report(lost, r)
				e.Cause = context.Cause(ctx).Error()
				if l, ok := errors.AsType[*dlock.LostError](context.Cause(ctx)); ok {
					e.By = l.RevokedBy
				} else {
					e.What = failed
				}
				tell(e)
				<-let
			}
		})},
	}
}

// A teller is a link that reports its traffic.
type teller struct {
	*link
	tell func(event)
}

func (t teller) Value(ctx context.Context, name string) (driver.ValueState, error) {
	v, err := t.link.Value(ctx, name)
	if name, ok := strings.CutPrefix(name, "tickslot:trigger:"); ok {
		e := event{What: looked, Timer: name, At: time.Now()}
		if err != nil {
			e.Cause = err.Error()
		}
		t.tell(e)
	}
	return v, err
}

func (t teller) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	sent := time.Now()
	results, err := t.link.Extend(ctx, ttl, grants...)
	for i, r := range results {
		if g := grants[i]; g.Name == "timer:"+endless && r.Outcome == driver.GrantOK {
			t.tell(event{What: beaten, Timer: endless, Slot: g.Slot, Fence: g.Fence, At: sent})
		}
	}
	return results, err
}

func (t teller) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	results, err := t.link.Release(ctx, grants...)
	for i, r := range results {
		if g := grants[i]; g.Name == "timer:"+endless {
			t.tell(event{What: released, Timer: endless, Slot: g.Slot, Fence: g.Fence, At: time.Now(),
				Cause: r.Outcome.String()})
		}
	}
	return results, err
}

// say returns a host's report about itself.
func say(s *timer.Scheduler, l *link) *said {
	st := s.Status()
	o, _ := st.Timer(often)
	w, _ := st.Timer(wide)
	x := &said{Skipped: o.Skipped[timer.ReasonPaused], Limit: w.MaxConcurrency, Full: l.lastFull("timer:" + wide),
		Failed: l.failed(time.Time{})}
	if o.Paused != nil {
		x.Paused = &o.Paused.Cause
	}
	return x
}

// Child runs a host of Stopped in its own process, which is the test binary with an environment
// variable set. It executes the orders in the lines of in, reports events on out, and returns when
// in ends or it is told to stop.
func Child(store dlock.DistributedLock, in io.Reader, out io.Writer) error {
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	tell := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = lines.Encode(e) // an error means that the parent has exited
	}
	let := make(chan struct{})
	l := newLink(store)
	s, err := timer.New(timer.Config{Store: teller{l, tell}, TTL: StoppedTTL, StoreTimeout: StoppedTTL / 3,
		Logger: slog.New(slog.DiscardHandler)},
		members(stoppedPeriod, let, nil, tell)...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	tell(event{What: ready, At: time.Now()})
	for orders := bufio.NewScanner(in); orders.Scan(); {
		switch orders.Text() {
		case "run":
			if _, err := s.Trigger(ctx, endless, timer.TriggerOptions{}); err != nil {
				tell(event{What: failed, Timer: endless, At: time.Now(), Cause: err.Error()})
			}
		case "return":
			close(let)
		case "status":
			tell(event{What: status, At: time.Now(), Said: say(s, l)})
		case "stop":
			cancel()
			return <-over
		}
	}
	return io.ErrUnexpectedEOF
}
