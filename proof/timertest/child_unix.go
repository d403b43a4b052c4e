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

// An event is what a host of Stopped tells: a line of JSON if it is another process.
type event struct {
	What  what
	Timer string      `json:",omitempty"`
	Slot  int         `json:",omitempty"`
	Fence dlock.Fence `json:",omitempty"`
	At    time.Time
	Valid bool          `json:",omitempty"` // returned: to the end
	Cause string        `json:",omitempty"` // lost, claimed, released, failed
	By    *driver.Cause `json:",omitempty"` // lost: who revoked it
	Said  *said         `json:",omitempty"` // status
}

type what string

const (
	ready    what = "ready"    // Run goes on
	began    what = "began"    // a run
	lost     what = "lost"     // a run of long: its context has ended because of its lease
	returned what = "returned" // a run
	beaten   what = "beaten"   // the lease of long was renewed; At is before the request was sent
	looked   what = "looked"   // a trigger was heard of, and looked for; Cause: why that failed
	released what = "released" // the slot of long; Cause: the outcome
	status   what = "status"
	failed   what = "failed" // what was told to do
)

// said is what a host says of itself.
type said struct {
	Paused  *driver.Cause // often
	Skipped uint64        // ticks of often, because of the pause
	Limit   int           // wide
	Full    time.Time     // when it last asked for a slot of wide and found all of them held
	Failed  int           // calls to the store, so far
}

const (
	often   = "often"  // runs at every tick on every host
	wide    = "wide"   // takes longer than a tick
	endless = "long"   // holds its slot until it is told to return
	manual  = "manual" // runs if it is told to
)

// members are the timers of a host of Stopped. A run of long that has lost its lease returns when
// let is closed, and one of wide in its second slot, unless keep is nil, when that is.
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
				case <-time.After(5 * period / 2): // the work
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

// A teller is a link that tells of what goes over it.
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

// say returns what a host says of itself.
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

// Child is a host of Stopped in a process of its own, which the test binary becomes if the
// environment says so. It does what it is told by the lines of in, tells what happens on out, and
// returns when in ends, or when it is told to stop.
func Child(store dlock.DistributedLock, in io.Reader, out io.Writer) error {
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	tell := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = lines.Encode(e) // a parent that does not listen has gone
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
