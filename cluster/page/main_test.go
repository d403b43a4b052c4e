package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// No goroutine is left after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A counted registry counts calls, and fails if it should.
type counted struct {
	cluster.Store
	calls  atomic.Int64
	down   atomic.Bool
	change atomic.Pointer[func(*cluster.Rows)] // changes what is read; nil: nothing does
}

func (c *counted) Read(ctx context.Context, q cluster.Query) (cluster.Rows, error) {
	c.calls.Add(1)
	if c.down.Load() {
		return cluster.Rows{}, fmt.Errorf("the registry is down")
	}
	rows, err := c.Store.Read(ctx, q)
	if change := c.change.Load(); change != nil {
		(*change)(&rows)
	}
	return rows, err
}

func (c *counted) Runs(ctx context.Context, timer string) ([]cluster.Run, error) {
	c.calls.Add(1)
	return c.Store.Runs(ctx, timer)
}

func (c *counted) Buckets(ctx context.Context, timer string) ([]cluster.Bucket, error) {
	c.calls.Add(1)
	if c.down.Load() {
		return nil, fmt.Errorf("the registry is down")
	}
	return c.Store.Buckets(ctx, timer)
}

// Counted locks count the calls that a page makes.
type countedLocks struct {
	*memlock.Store
	calls atomic.Int64
}

func (c *countedLocks) Enumerate(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
	c.calls.Add(1)
	return c.Store.Enumerate(ctx, after, limit)
}

func (c *countedLocks) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	c.calls.Add(1)
	return c.Store.Inspect(ctx, names...)
}

func (c *countedLocks) Value(ctx context.Context, name string) (driver.ValueState, error) {
	c.calls.Add(1)
	return c.Store.Value(ctx, name)
}

// A fleet is a registry with a host or two, and a page.
type fleet struct {
	t        *testing.T
	rows     *counted
	locks    *countedLocks
	registry *cluster.Registry
	session  *dlock.Session
	log      testkit.Log
	page     *page.Page
}

var operator = page.Access{Act: true, By: "ann"}

// newFleet makes a page that this machine may read, if the config does not say otherwise.
func newFleet(t *testing.T, config page.Config) *fleet {
	t.Helper()
	return newFleetThatReads(t, config, 20*time.Millisecond)
}

// snapshotAge is the default of cluster.Config.SnapshotAge.
const snapshotAge = time.Second

// newFleetThatReads makes one whose viewers share for so long what was read.
func newFleetThatReads(t *testing.T, config page.Config, age time.Duration) *fleet {
	t.Helper()
	f := &fleet{t: t, rows: &counted{Store: cluster.NewMemoryStore()}, locks: &countedLocks{Store: memlock.New()}}
	var err error
	f.registry, err = cluster.New(cluster.Config{Store: f.rows, Locks: f.locks, TTL: 3 * time.Second, SnapshotAge: age,
		Holder: dlock.Holder{Host: "host-1", PID: 11, ID: "a"}, AppVersion: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	f.session, err = dlock.NewSession(f.registry.Decorate(f.locks), dlock.SessionOptions{Holder: f.registry.Holder()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.registry.Run(ctx) }()
	t.Cleanup(func() {
		if err := f.session.Close(context.Background()); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	config.Registry = f.registry
	if config.Authorize == nil {
		config.Authorize = page.Loopback
	}
	if config.Control == nil {
		config.Control = control.New(control.Config{Store: f.locks})
	}
	config.Logger = slog.New(slog.NewTextHandler(&f.log, nil))
	f.page, err = page.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// host adds the row of another process.
func (f *fleet) host(name string, heartbeat cluster.Heartbeat, detail cluster.HostDetail) {
	f.t.Helper()
	heartbeat.Holder = dlock.Holder{Host: name, PID: 1, ID: "x"}
	if heartbeat.TTL == 0 {
		heartbeat.TTL = 30 * time.Second
	}
	var err error
	if heartbeat.Detail, err = json.Marshal(detail); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.rows.Write(f.t.Context(), cluster.Batch{Host: &heartbeat}); err != nil {
		f.t.Fatal(err)
	}
}

// request makes a request from this machine.
func request(method, target, body string) *http.Request {
	r := httptest.NewRequest(method, "http://localhost/"+strings.TrimPrefix(target, "/"), strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1234"
	r = r.WithContext(readcache.WithPatience(r.Context(), testkit.Patience)) // a test is not about a busy machine
	if body != "" || method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// get returns a page, which must be there.
func (f *fleet) get(target string) string {
	f.t.Helper()
	w := serve(f.page, request("GET", target, ""))
	if w.Code != http.StatusOK {
		f.t.Fatalf("%s: %d: %s", target, w.Code, w.Body)
	}
	return w.Body.String()
}

// json returns a page as JSON.
func (f *fleet) json(target string) map[string]any {
	f.t.Helper()
	r := request("GET", target, "")
	r.Header.Set("Accept", "application/json")
	w := serve(f.page, r)
	var v map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != http.StatusOK {
		f.t.Fatalf("%s: %d %v: %s", target, w.Code, err, w.Body)
	}
	return v
}

// getDone returns the page to which a browser comes after a change, with the cookies of its answer.
func (f *fleet) getDone(answer *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	f.t.Helper()
	r := request("GET", answer.Header().Get("Location"), "")
	for _, c := range answer.Result().Cookies() {
		if c.MaxAge > 0 {
			r.AddCookie(c)
		}
	}
	return serve(f.page, r)
}

// post changes something.
func (f *fleet) post(target string, fields url.Values) *httptest.ResponseRecorder {
	f.t.Helper()
	r := request("POST", target, fields.Encode())
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return serve(f.page, r)
}

func allow(access page.Access) func(*http.Request) page.Access {
	return func(*http.Request) page.Access { return access }
}

// startTimers runs a scheduler on the fleet's locks until the test ends.
func (f *fleet) startTimers(run func(context.Context) error) *timer.Scheduler {
	f.t.Helper()
	return f.startTimersEvery(time.Hour, run)
}

func (f *fleet) startTimersEvery(period time.Duration, run func(context.Context) error) *timer.Scheduler {
	f.t.Helper()
	s, err := timer.New(timer.Config{Store: f.registry.Decorate(f.locks), Holder: f.registry.Holder(),
		Logger: slog.New(slog.DiscardHandler)},
		timer.Timer{Name: "report", Schedule: schedule.Every(period), MaxConcurrency: 3, MaxPerTick: 3, Run: run})
	if err != nil {
		f.t.Fatal(err)
	}
	f.registry.Add(s)
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := s.Run(ctx); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(func() { stop(); ended.Wait() })
	<-s.Running()
	return s
}
