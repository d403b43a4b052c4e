package timertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/timer"
)

// A realFleet runs in one namespace of a real store, and watches its handlers.
type realFleet struct {
	Fleet[*link]
	suite  *suite
	store  Store
	watch  *watcher
	taker  dlock.DistributedLock // a client that belongs to no host
	isDown bool                  // the store is down

	mu    sync.Mutex
	gates []chan struct{} // handlers wait for these
}

type host = Host[*link]

// fleet opens a new namespace, and waits until it grants, because a newly started server may refuse
// for a while.
func (s *suite) fleet(t *testing.T) *realFleet {
	f := &realFleet{Fleet: NewFleet[*link](t, patience), suite: s, store: s.New(t), watch: newWatcher()}
	f.taker = f.store.Open(t)
	f.take("timertest:awake", 1, 1)
	return f
}

// storeTimeout is the hosts' StoreTimeout. A call may take half of it before it counts as failed.
func (r *realFleet) storeTimeout() time.Duration { return r.suite.TTL / 3 }

// late returns how long after its deadline a call may return. The failures that it detects take
// five to ten seconds, or forever.
func (r *realFleet) late(since time.Time) time.Duration {
	return 1500*time.Millisecond + r.suite.late.Since(since)
}

// strained reports whether so many calls have failed since then that a host may have lost a lease
// because of a busy machine.
func (r *realFleet) strained(h *host, since time.Time) bool {
	return r.suite.late.Since(since) > r.suite.TTL/8 || h.Link.failed(since) > 0
}

// connect opens a store client for a future host.
func (r *realFleet) connect() *link {
	l := newLink(r.store.Open(r.t))
	if r.isDown && r.store.Down == nil {
		l.Inject(dlocktest.Hang)
	}
	return l
}

func (r *realFleet) start(config timer.Config, timers ...timer.Timer) *host {
	r.t.Helper()
	return r.startOn(r.connect(), config, timers...)
}

// startOn starts a host on an existing link.
func (r *realFleet) startOn(l *link, config timer.Config, timers ...timer.Timer) *host {
	r.t.Helper()
	config.TTL, config.StoreTimeout = r.suite.TTL, r.storeTimeout()
	if config.DrainTimeout == 0 {
		config.DrainTimeout = 10 * time.Second // handlers in these tests end with their gates
	}
	var h *host
	timers = slices.Clone(timers)
	for i := range timers {
		timers[i] = r.watch.before(func() *host { return h }, timers[i])
	}
	h = r.NewHost(l, config, timers...)
	r.Run(context.Background(), h)
	r.t.Cleanup(func() { // even if the test fails; its clients are closed after this
		r.open()
		h.Link.Heal()
		h.Cancel()
		select {
		case <-h.done:
		case <-time.After(patience):
			r.t.Errorf("Run has not returned")
		}
	})
	r.until("the host is ready", func() bool { return h.Ready() == nil })
	h.ready = time.Now()
	return h
}

// gate returns a channel on which handlers can wait, and a function that closes it. The end of the
// test also closes it.
func (r *realFleet) gate() (<-chan struct{}, func()) {
	g := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gates = append(r.gates, g)
	return g, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if i := slices.Index(r.gates, g); i >= 0 {
			r.gates = slices.Delete(r.gates, i, i+1)
			close(g)
		}
	}
}

// open opens the remaining gates.
func (r *realFleet) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.gates {
		close(g)
	}
	r.gates = nil
}

// down makes the store unreachable for all clients, and up makes it reachable again.
func (r *realFleet) down() {
	r.isDown = true
	if r.store.Down != nil {
		r.t.Cleanup(r.store.Up) // may be called twice
		r.store.Down()
		return
	}
	r.inject(dlocktest.Hang)
}

func (r *realFleet) up() {
	r.isDown = false
	if r.store.Up != nil {
		r.store.Up()
		return
	}
	r.heal()
}

// inject makes all links fail, and heal ends that.
func (r *realFleet) inject(fault dlocktest.Fault) {
	for _, h := range r.Hosts {
		h.Link.Inject(fault)
	}
}

func (r *realFleet) heal() {
	for _, h := range r.Hosts {
		h.Link.Heal()
	}
}

// until waits until cond holds. It fails the test at once if the watcher has seen a violation.
func (r *realFleet) until(what string, cond func() bool) {
	r.t.Helper()
	start, left := time.Now(), patience
	for {
		err := testkit.Poll(left, what, func() bool {
			if cond() {
				return true
			}
			if r.watch.check(r.t); r.t.Failed() {
				r.t.FailNow()
			}
			return false
		})
		if err == nil {
			return
		}
		// Time in which this process was stalled does not count, because nothing could happen then.
		stood := r.suite.late.Since(start)
		if left = patience + stood - time.Since(start); left < 0 {
			r.t.Fatalf("%v, besides %v in which this process stood still", err, stood)
		}
	}
}

// stop stops hosts, or all of them if none is given. It fails the test if a host returns an error
// or a promise was broken so far.
func (r *realFleet) stop(hosts ...*host) {
	r.t.Helper()
	r.Stop(hosts...)
	r.watch.check(r.t)
}

// trigger starts a run of a timer on a host. It retries, because an attempt can fail on a busy
// machine. If a grant's reply is lost, its slot is released soon.
func (r *realFleet) trigger(h *host, name string) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, "trigger "+name, func() error { return h.Trigger(r.t.Context(), name) })
}

// answered triggers a timer until the store answers, and returns the answer.
func (r *realFleet) answered(h *host, name string) (err error) {
	r.t.Helper()
	_ = testkit.Poll(patience, "an answer", func() bool {
		err = h.Trigger(r.t.Context(), name)
		return !refused(err, timer.ReasonStoreDown)
	})
	return err
}

func refused(err error, reason timer.Reason) bool {
	no, ok := errors.AsType[*timer.RefusedError](err)
	return ok && no.Reason == reason
}

// status returns a host's status of a timer.
func (r *realFleet) status(h *host, name string) timer.TimerStatus {
	st, _ := h.Status().Timer(name)
	return st
}

// skipped returns the total number of a timer's ticks that hosts skipped for a reason.
func skipped(name string, reason timer.Reason, hosts ...*host) (n uint64) {
	for _, h := range hosts {
		st, _ := h.Status().Timer(name)
		n += st.Skipped[reason]
	}
	return n
}

// take acquires n slots of a name with a client that belongs to no host, waiting for each until the
// store grants it, and releases them. It returns the fences by slot.
func (r *realFleet) take(name string, slots, n int) map[int]dlock.Fence {
	r.t.Helper()
	return r.acquire(name, slots, n, func(try func() error) error {
		var err error
		r.until(fmt.Sprintf("%s grants %d slots", name, n), func() bool {
			err = try()
			return err == nil
		})
		return err
	})
}

// takeNow is take for slots that must be free. It fails the test if one is refused.
func (r *realFleet) takeNow(name string, slots, n int) map[int]dlock.Fence {
	r.t.Helper()
	return r.acquire(name, slots, n, func(try func() error) error {
		var err error
		r.until(name+" is answered for", func() bool {
			err = try()
			return err == nil || errors.Is(err, dlock.ErrNotAcquired)
		})
		return err
	})
}

func (r *realFleet) acquire(name string, slots, n int, wait func(try func() error) error) map[int]dlock.Fence {
	r.t.Helper()
	fences := map[int]dlock.Fence{}
	var grants []driver.Grant
	for range n {
		// All tries use one token, so that they are one grant whatever happens to a reply.
		req := driver.Request{Name: name, Slots: slots, Token: rand.Text(), TTL: r.suite.TTL,
			Holder: dlock.Holder{Host: "taker"}}
		err := wait(func() error {
			grant, err := call(r.t, func(ctx context.Context) (driver.Grant, error) {
				return r.taker.TryAcquire(ctx, req)
			})
			if err == nil {
				fences[grant.Slot] = grant.Fence
				grants = append(grants, grant)
			}
			return err
		})
		if err != nil {
			r.t.Errorf("%d of %d slots were granted: %v", len(grants), n, err)
			break
		}
	}
	if len(grants) > 0 {
		if _, err := call(r.t, func(ctx context.Context) ([]driver.Result, error) {
			return r.taker.Release(ctx, grants...)
		}); err != nil {
			r.t.Errorf("release: %v", err)
		}
	}
	return fences
}

// call makes a store call with a long timeout.
func call[A any](t *testing.T, do func(ctx context.Context) (A, error)) (A, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience/2)
	defer cancel()
	return do(ctx)
}
