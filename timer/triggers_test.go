package timer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// payloads collects the payloads of runs.
type payloads struct {
	anyOrder bool
	mu       sync.Mutex
	list     []string
}

func (p *payloads) got() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.list...)
}

// timer returns a timer whose runs take d.
func (p *payloads) timer(name string, d time.Duration) timer.Timer {
	return timer.Timer{Name: name, OnStoreDown: timer.StoreDownSkip, Run: func(ctx context.Context) error {
		run, _ := timer.RunFromContext(ctx)
		p.mu.Lock()
		text := string(run.Payload())
		if text == "" && run.Payload() != nil {
			text = "empty, and not nil"
		}
		p.list = append(p.list, text)
		p.mu.Unlock()
		return sleep(ctx, d)
	}}
}

func (p *payloads) are(t *testing.T, when string, want ...string) {
	t.Helper()
	got := p.got()
	if p.anyOrder {
		slices.Sort(got)
		want = slices.Sorted(slices.Values(want))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: runs with %.100q, want %.100q", when, got, want)
	}
}

func order(t *testing.T, c *control.Control, name, payload string, expiry time.Duration) {
	t.Helper()
	err := c.Trigger(t.Context(), name, control.TriggerOptions{Payload: []byte(payload), By: ann, ExpiresIn: expiry})
	if err != nil {
		t.Fatal(err)
	}
}

func pending(t *testing.T, c *control.Control, name string, want int) []control.PendingTrigger {
	t.Helper()
	list, err := c.Triggers(t.Context(), name)
	if err != nil || len(list) != want {
		t.Fatalf("%d triggers are pending: %+v, %v; want %d", len(list), list, err, want)
	}
	return list
}

// Each trigger of a Control causes one run in the fleet, with its payload unchanged, even if
// several triggers arrive before a host has read the queue. A single host runs them in order. With
// several hosts, one may take the second trigger, and get the slot before the host that has taken
// the first.
//
// Fails when the latest trigger replaces the others, or when a payload is changed.
func TestControlTriggersRunOnceEach(t *testing.T) {
	t.Run("one host", func(t *testing.T) { triggersRunOnceEach(t, 1) })
	t.Run("four hosts", func(t *testing.T) { triggersRunOnceEach(t, 4) })
}

func triggersRunOnceEach(t *testing.T, hosts int) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		ran := payloads{anyOrder: hosts > 1}
		for range hosts {
			f.start(timer.Config{}, ran.timer("a", time.Second))
		}
		time.Sleep(time.Minute + time.Second/2) // between heartbeats
		ctl := control.New(control.Config{Store: f.store})
		given := []string{"", "orders", "\xff\x00 not text", strings.Repeat("x", timer.MaxPayloadLen), "é \\ \" '"}
		for _, payload := range given {
			order(t, ctl, "a", payload, 0)
		}
		list := pending(t, ctl, "a", len(given))
		if first := list[3]; first.By != ann || first.PayloadLen != timer.MaxPayloadLen || first.Age > time.Second ||
			first.ExpiresIn > control.DefaultTriggerExpiry ||
			first.ExpiresIn < control.DefaultTriggerExpiry-time.Second ||
			first.TakenBy != (dlock.Holder{}) {
			t.Errorf("%+v", first)
		}
		time.Sleep(time.Minute)
		ran.are(t, "one after the other", given...)
		pending(t, ctl, "a", 0)
		f.start(timer.Config{}, ran.timer("a", time.Second)) // a host that starts later
		time.Sleep(time.Hour)
		ran.are(t, "later", given...)
		f.Stop()
	})
}

// A trigger for which there is no room waits: during a pause, while all slots are taken, and until
// a host registers the timer. It costs at most one read at each host's heartbeat.
//
// Fails when a host without room does not return the trigger, or stops reading the queue.
func TestControlTriggerWaitsForRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var ran payloads
		log := &testkit.Log{}
		a := f.start(timer.Config{Logger: textLogger(log)}, ran.timer("a", 10*time.Minute))
		b := f.start(timer.Config{}, ran.timer("a", 10*time.Minute))
		ctl := control.New(control.Config{Store: f.store, Logger: textLogger(&testkit.Log{})})
		if err := ctl.Pause(t.Context(), "a", time.Now().Add(20*time.Minute), ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		order(t, ctl, "a", "1", 0)
		order(t, ctl, "a", "2", 0)
		time.Sleep(10 * time.Minute)
		ran.are(t, "paused")
		before := a.Link.Calls(dlocktest.OpControl)
		time.Sleep(time.Minute)
		if n := a.Link.Calls(dlocktest.OpControl) - before; n > int(time.Minute/beat)+30 {
			t.Errorf("%d calls in a minute of waiting", n)
		}
		for _, h := range []*host{a, b} {
			if st := must(h.Status().Timer("a")); len(st.Triggers) != 2 || st.Triggers[0].By != ann ||
				st.Triggers[1].ExpiresIn > 50*time.Minute {
				t.Errorf("Status has %+v", st.Triggers)
			}
		}
		if n := strings.Count(log.String(), "a trigger waits"); n != 1 {
			t.Errorf("%d lines say that a trigger waits", n)
		}
		time.Sleep(10 * time.Minute)
		ran.are(t, "the pause is over", "1")
		if list := pending(t, ctl, "a", 1); list[0].TakenBy != (dlock.Holder{}) {
			t.Errorf("a host that finds no room keeps it: %+v", list)
		}
		time.Sleep(10 * time.Minute)
		ran.are(t, "the slot is free again", "1", "2")
		order(t, ctl, "new", "3", 0)
		time.Sleep(time.Minute)
		if err := b.Register(ran.timer("new", time.Second)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		ran.are(t, "registered later", "1", "2", "3")
		time.Sleep(time.Hour)
		before = a.Link.Calls(dlocktest.OpControl)
		time.Sleep(time.Hour)
		if n := a.Link.Calls(dlocktest.OpControl) - before; n != 0 {
			t.Errorf("%d calls although nothing is pending", n)
		}
		f.Stop()
	})
}

// If no host could start a trigger in time, it does not run, and one host reports that once.
//
// Fails when an expired trigger runs, remains in the queue, or is reported by each host.
func TestControlTriggerExpires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var ran payloads
		log := &testkit.Log{}
		var hosts []*host
		for range 3 {
			hosts = append(hosts, f.start(timer.Config{Logger: textLogger(log)}, ran.timer("a", 0)))
		}
		ctl := control.New(control.Config{Store: f.store})
		if err := ctl.Pause(t.Context(), "a", time.Now().Add(24*time.Hour), ann); err != nil {
			t.Fatal(err)
		}
		order(t, ctl, "a", "1", time.Minute)
		order(t, ctl, "a", "2", 0)
		time.Sleep(2 * time.Minute)
		pending(t, ctl, "a", 1)
		count := func() (n int) {
			for _, h := range hosts {
				n += must(h.Status().Timer("a")).ExpiredTriggers
			}
			return n
		}
		if n := strings.Count(log.String(), "a trigger has expired"); n != 1 || count() != 1 ||
			!strings.Contains(log.String(), "payload_bytes=1") || !strings.Contains(log.String(), "by=ann") {
			t.Errorf("%d lines, Status counts %d: %s", n, count(), log)
		}
		time.Sleep(2 * time.Hour)
		if n := strings.Count(log.String(), "a trigger has expired"); n != 2 || count() != 2 {
			t.Errorf("%d lines, Status counts %d", n, count())
		}
		if err := ctl.Resume(t.Context(), "a", ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		ran.are(t, "expired")
		f.Stop()
	})
}

// If a host dies between taking a trigger and starting its run, no other host runs the trigger, and
// the report of its expiry names the host. Later triggers run.
//
// Fails when another host takes a taken trigger, or when a taken trigger blocks others.
func TestControlTriggerOfAHostThatDied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var ran payloads
		log := &testkit.Log{}
		ctl := control.New(control.Config{Store: f.store})
		order(t, ctl, "a", "1", 0)
		order(t, ctl, "a", "2", 0)
		dead := dlock.Holder{Host: "web-7", PID: 1, ID: "x"}
		timer.TakeTrigger(t, f.store, "a", dead)
		f.start(timer.Config{Logger: textLogger(log)}, ran.timer("a", 0))
		time.Sleep(time.Minute)
		ran.are(t, "one was taken by a host that died", "2")
		if list := pending(t, ctl, "a", 1); list[0].TakenBy != dead {
			t.Errorf("%+v", list)
		}
		time.Sleep(2 * time.Hour)
		ran.are(t, "expired", "2")
		pending(t, ctl, "a", 0)
		if text := log.String(); strings.Count(text, "may or may not have run") != 1 ||
			!strings.Contains(text, "taken_by=web-7/1/x") {
			t.Error(text)
		}
		f.Stop()
	})
}

// A tornStore loses, delays or drops every other write of a value, or its answer.
type tornStore struct {
	*memlock.Store
	writes atomic.Int64
}

func (s *tornStore) Update(ctx context.Context, name string, update driver.Update) error {
	if update.Value == nil {
		return s.Store.Update(ctx, name, update)
	}
	torn := errors.New("connection reset")
	switch s.writes.Add(1) % 8 {
	case 1: // the answer is lost
		_ = s.Store.Update(ctx, name, update)
		return torn
	case 3: // the request is lost
		return torn
	case 5: // the request arrives late
		time.AfterFunc(2*time.Second, func() { _ = s.Store.Update(context.Background(), name, update) })
		return torn
	case 6: // the request arrives much later
		time.AfterFunc(time.Minute, func() { _ = s.Store.Update(context.Background(), name, update) })
		return torn
	}
	return s.Store.Update(ctx, name, update)
}

// The writes of hosts and their answers are lost or late, and often there is no room. Still no
// trigger runs twice, and none is lost: each accepted trigger runs, or its expiry is reported.
//
// Fails when a host starts a run although its take is not known to have succeeded, or does not
// recognize the trigger that it has taken.
func TestControlTriggersUnderFaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var ran payloads
		log := &testkit.Log{}
		torn := &tornStore{Store: f.store}
		for range 3 {
			work := ran.timer("a", 4*time.Second)
			work.MaxConcurrency, work.MaxPerHost = 2, 1
			f.startOn(torn, timer.Config{Logger: textLogger(log)}, work)
		}
		ctl := control.New(control.Config{Store: f.store})
		accepted := 0
		for i := range 300 {
			err := ctl.Trigger(t.Context(), "a", control.TriggerOptions{Payload: fmt.Append(nil, i), By: ann})
			switch {
			case err == nil:
				accepted++
			case !errors.Is(err, control.ErrTooManyTriggers):
				t.Error(err)
			}
			time.Sleep(time.Duration(i%7) * time.Second)
		}
		time.Sleep(3 * time.Hour)
		seen := make(map[string]bool)
		for _, payload := range ran.got() {
			if seen[payload] {
				t.Errorf("%s was run twice", payload)
			}
			seen[payload] = true
		}
		if expired := strings.Count(log.String(), "a trigger has expired"); len(seen) != accepted || expired != 0 ||
			accepted < 100 {
			t.Errorf("of %d triggers %d were run, and %d expired", accepted, len(seen), expired)
		}
		if n := torn.writes.Load(); n < 300 {
			t.Errorf("%d writes", n)
		}
		pending(t, ctl, "a", 0)
		f.Stop()
	})
}

// Triggers that a Control refuses do not reach the store.
func TestControlTriggerChecksItsOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		link := dlocktest.NewFaulty(f.store)
		ctl := control.New(control.Config{Store: link})
		for name, o := range map[string]control.TriggerOptions{
			"a byte too long": {By: ann, Payload: make([]byte, timer.MaxPayloadLen+1)},
			"by nobody":       {Payload: []byte("x")},
			"too short":       {By: ann, ExpiresIn: time.Second - 1},
			"negative":        {By: ann, ExpiresIn: -1},
			"too long":        {By: ann, ExpiresIn: control.MaxTriggerExpiry + 1},
		} {
			err := ctl.Trigger(t.Context(), "a", o)
			if err == nil || errors.Is(err, timer.ErrPayloadTooLong) != (name == "a byte too long") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := link.Calls(dlocktest.OpControl); n != 0 {
			t.Errorf("%d calls to the store", n)
		}
		for range control.MaxPendingTriggers {
			order(t, ctl, "a", strings.Repeat("\xff", timer.MaxPayloadLen), time.Minute)
		}
		err := ctl.Trigger(t.Context(), "a", control.TriggerOptions{By: ann})
		if !errors.Is(err, control.ErrTooManyTriggers) {
			t.Errorf("one too many: %v", err)
		}
		pending(t, ctl, "a", control.MaxPendingTriggers)
		time.Sleep(2 * time.Minute) // no host runs the timer, and none has reported them
		for _, p := range pending(t, ctl, "a", control.MaxPendingTriggers) {
			if p.ExpiresIn != 0 {
				t.Errorf("%+v", p)
			}
		}
		log := &testkit.Log{}
		ctl = control.New(control.Config{Store: link, Logger: textLogger(log)})
		order(t, ctl, "a", "", 0)
		pending(t, ctl, "a", 1)
		if n := strings.Count(log.String(), "a trigger has expired"); n != control.MaxPendingTriggers {
			t.Errorf("%d lines about expired triggers", n)
		}
	})
}

// While a payload is pending, a tick costs no more than before: one round trip, which does not
// carry the payload.
//
// Fails when a tick looks for triggers, or when the host probes twice per heartbeat.
func TestPendingTriggersCostTicksNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var ran payloads
		ticks := timer.Timer{Name: "ticks", Schedule: schedule.Every(time.Second), Run: f.handler(0)}
		h := f.start(timer.Config{}, ticks, ran.timer("a", 0))
		time.Sleep(time.Minute)
		calls := func() int {
			before := h.Link.Calls(dlocktest.OpAcquire)
			time.Sleep(time.Minute)
			return h.Link.Calls(dlocktest.OpAcquire) - before
		}
		quiet := calls()
		if err := h.Control().Pause(t.Context(), "a", time.Now().Add(time.Hour), ann); err != nil {
			t.Fatal(err)
		}
		order(t, h.Control(), "a", strings.Repeat("x", timer.MaxPayloadLen), 0)
		time.Sleep(time.Minute)
		// Only the host's own locks are taken more often. The host probes up to four times per TTL,
		// and at least once if nothing waits. The difference is three, which is the number of
		// heartbeats.
		if busy := calls(); busy > quiet+int(time.Minute/(dlock.DefaultTTL/3)) {
			t.Errorf("%d acquires in a minute, %d before", busy, quiet)
		}
		f.Stop()
	})
}
