package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

const ttl = 30 * time.Second

var errDown = errors.New("the registry is down")

// bubble runs a test in virtual time. The test fails if it leaves a goroutine running.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// A fleet is a set of processes that share a registry and a store of locks.
type fleet struct {
	t     *testing.T
	store cluster.Store
	locks *memlock.Store
	hosts []*host
}

func newFleet(t *testing.T) *fleet {
	return &fleet{t: t, store: cluster.NewMemoryStore(), locks: memlock.New()}
}

// A host is a process of the fleet.
type host struct {
	*cluster.Registry
	t      *testing.T
	link   *link // its connection to the registry
	log    testkit.Log
	cancel context.CancelFunc
	ended  chan error
}

// make creates a host without running it.
func (f *fleet) make(o cluster.Config) *host {
	f.t.Helper()
	h := &host{t: f.t, link: &link{Store: f.store}, ended: make(chan error, 1)}
	if o.Store == nil {
		o.Store = h.link
	}
	if o.Holder == (dlock.Holder{}) {
		o.Holder = dlock.Holder{Host: fmt.Sprint("host-", len(f.hosts)), PID: 1, ID: "x"}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(&h.log, nil))
	}
	var err error
	if h.Registry, err = cluster.New(o); err != nil {
		f.t.Fatal(err)
	}
	f.hosts = append(f.hosts, h)
	return h
}

// start creates and runs a host.
func (f *fleet) start(o cluster.Config) *host {
	f.t.Helper()
	h := f.make(o)
	h.begin()
	return h
}

// begin runs a host.
func (h *host) begin() {
	ctx, cancel := context.WithCancel(h.t.Context())
	h.cancel = cancel
	go func() { h.ended <- h.Run(ctx) }()
	synctest.Wait()
}

// stop ends Run and checks that it returns nil.
func (h *host) stop() {
	h.t.Helper()
	h.cancel()
	if err := <-h.ended; err != nil {
		h.t.Error(err)
	}
	h.cancel = nil
}

// kill ends Run as kill -9 would: the host writes nothing more.
func (h *host) kill() {
	h.link.set(func(l *link) { l.err = errDown })
	h.stop()
}

// end stops all running hosts.
func (f *fleet) end() {
	f.t.Helper()
	for _, h := range f.hosts {
		if h.cancel != nil {
			h.stop()
		}
	}
}

// snapshot returns the host's snapshot, and fails the test if it is incomplete.
func (h *host) snapshot() *cluster.Snapshot {
	h.t.Helper()
	s, err := h.Snapshot(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// state returns the state of another host in the snapshot of h.
func (h *host) state(other *host) cluster.HostState {
	h.t.Helper()
	for _, o := range h.snapshot().Hosts {
		if o.Holder == other.Holder() {
			return o.State
		}
	}
	return cluster.HostUnknown
}

// events returns the events of a kind.
func (h *host) events(kind cluster.EventKind) (found []cluster.HistoryEvent) {
	h.t.Helper()
	for _, e := range h.snapshot().Events {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}

// A link is the connection to a registry. It can be made to fail.
type link struct {
	cluster.Store

	mu     sync.Mutex
	err    error         // returned by each call, without executing it
	lost   bool          // calls are executed, but their replies are lost
	panics bool          // each call panics
	hangs  time.Duration // each call takes this long, or until its context ends
	calls  map[string]int
	sent   []cluster.Batch
}

func (l *link) set(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// to returns the store that the link currently leads to.
func (l *link) to() cluster.Store {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Store
}

func (l *link) heal() {
	l.set(func(l *link) { l.err, l.lost, l.panics, l.hangs = nil, false, false, 0 })
}

// count returns the number of calls since the last count.
func (l *link) count() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.calls
	l.calls = nil
	return n
}

func (l *link) batches() []cluster.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]cluster.Batch(nil), l.sent...)
}

func (l *link) call(ctx context.Context, name string, call func() error) error {
	l.mu.Lock()
	if l.calls == nil {
		l.calls = map[string]int{}
	}
	l.calls[name]++
	err, lost, panics, hangs := l.err, l.lost, l.panics, l.hangs
	l.mu.Unlock()
	switch {
	case panics:
		panic("a driver's fault")
	case hangs > 0:
		wait := time.NewTimer(hangs)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	case err != nil:
		return err
	}
	if err := call(); err != nil {
		return err
	}
	if lost {
		return errDown
	}
	return nil
}

func (l *link) Write(ctx context.Context, b cluster.Batch) (w cluster.Written, err error) {
	l.set(func(l *link) { l.sent = append(l.sent, b) })
	err = l.call(ctx, "write", func() (err error) { w, err = l.to().Write(ctx, b); return err })
	return w, err
}

func (l *link) Read(ctx context.Context, q cluster.Query) (r cluster.Rows, err error) {
	err = l.call(ctx, "read", func() (err error) { r, err = l.to().Read(ctx, q); return err })
	return r, err
}

func (l *link) Runs(ctx context.Context, timer string) (r []cluster.Run, err error) {
	err = l.call(ctx, "runs", func() (err error) { r, err = l.to().Runs(ctx, timer); return err })
	return r, err
}

func (l *link) Sweep(ctx context.Context, r cluster.Retention, limit int) (n int, err error) {
	err = l.call(ctx, "sweep", func() (err error) { n, err = l.to().Sweep(ctx, r, limit); return err })
	return n, err
}
