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

// A realFleet runs on one namespace of a real store, and watches its handlers.
type realFleet struct {
	Fleet[*link]
	suite  *suite
	store  Store
	watch  *watcher
	taker  dlock.DistributedLock // a client that is no host's
	isDown bool                  // of the store

	mu    sync.Mutex
	gates []chan struct{} // where handlers wait
}

type host = Host[*link]

// fleet opens a fresh namespace and waits until it grants: a server that has just started may
// refuse for a while.
func (s *suite) fleet(t *testing.T) *realFleet {
	f := &realFleet{Fleet: NewFleet[*link](t, patience), suite: s, store: s.New(t), watch: newWatcher()}
	f.taker = f.store.Open(t)
	f.take("timertest:awake", 1, 1)
	return f
}

// storeTimeout of the hosts. A call may take half of it before it counts as failed.
func (r *realFleet) storeTimeout() time.Duration { return r.suite.TTL / 3 }

// late is how long after its deadline a call may return. The failures that this is about take five
// to ten seconds, or forever.
func (r *realFleet) late(since time.Time) time.Duration {
	return 1500*time.Millisecond + r.suite.late.Since(since)
}

// strained reports whether so much went wrong since then that a host may have lost a lease to a
// busy machine.
func (r *realFleet) strained(h *host, since time.Time) bool {
	return r.suite.late.Since(since) > r.suite.TTL/8 || h.Link.failed(since) > 0
}

// connect opens a client of the store for a host that is to be made.
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

// startOn starts a host whose link is there already.
func (r *realFleet) startOn(l *link, config timer.Config, timers ...timer.Timer) *host {
	r.t.Helper()
	config.TTL, config.StoreTimeout = r.suite.TTL, r.storeTimeout()
	if config.DrainTimeout == 0 {
		config.DrainTimeout = 10 * time.Second // handlers of these tests end with their gates
	}
	var h *host
	timers = slices.Clone(timers)
	for i := range timers {
		timers[i] = r.watch.before(func() *host { return h }, timers[i])
	}
	h = r.NewHost(l, config, timers...)
	r.Run(context.Background(), h)
	r.t.Cleanup(func() { // whatever became of the test; its clients are closed after this
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

// gate returns a channel that handlers can wait for, and what closes it; the test's end does, too.
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

// open opens the gates that are left.
func (r *realFleet) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.gates {
		close(g)
	}
	r.gates = nil
}

// down makes the store unreachable for everybody, up makes it reachable again.
func (r *realFleet) down() {
	r.isDown = true
	if r.store.Down != nil {
		r.t.Cleanup(r.store.Up) // it can be called twice
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

// inject makes all links fail; heal ends it.
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

// until waits until cond holds. It ends the test at once if the watcher has seen something that
// must not be.
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
		// What this process stood still meanwhile does not count: nothing could come of it.
		stood := r.suite.late.Since(start)
		if left = patience + stood - time.Since(start); left < 0 {
			r.t.Fatalf("%v, besides %v in which this process stood still", err, stood)
		}
	}
}

// stop stops hosts, all if none is named, and fails the test if one reports an error or something
// was broken so far.
func (r *realFleet) stop(hosts ...*host) {
	r.t.Helper()
	r.Stop(hosts...)
	r.watch.check(r.t)
}

// trigger starts a run of a timer on a host. It retries, because an attempt can fail on a busy
// machine; a slot whose grant was lost with its reply is released soon.
func (r *realFleet) trigger(h *host, name string) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, "trigger "+name, func() error { return h.Trigger(r.t.Context(), name) })
}

// answered triggers a timer until the store answers, and returns that answer.
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

// status returns what a host says of a timer.
func (r *realFleet) status(h *host, name string) timer.TimerStatus {
	st, _ := h.Status().Timer(name)
	return st
}

// skipped sums up over hosts how many ticks of a timer were skipped for a reason.
func skipped(name string, reason timer.Reason, hosts ...*host) (n uint64) {
	for _, h := range hosts {
		st, _ := h.Status().Timer(name)
		n += st.Skipped[reason]
	}
	return n
}

// take acquires n slots of a name with a client that is no host's, waiting for each until the store
// grants it, and gives them back. It returns the fences by slot.
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

// takeNow is take for slots that must be free: it fails the test if one is refused.
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
		// One token for all tries: whatever a busy machine does to a reply, it is one grant.
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

// call makes one call to a store, with plenty of time.
func call[A any](t *testing.T, do func(ctx context.Context) (A, error)) (A, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience/2)
	defer cancel()
	return do(ctx)
}
