package page_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A viewer follows a page.
type viewer struct {
	testkit.Log
	stop  context.CancelFunc
	ended chan struct{}
}

// follow opens a stream, whose messages are in the log.
func follow(t *testing.T, server *httptest.Server, target string) *viewer {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	v := &viewer{stop: stop, ended: make(chan struct{})}
	r, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/ops/"+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(answer.Status, answer.Header)
	}
	go func() {
		defer close(v.ended)
		defer answer.Body.Close()
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			if _, err := v.Write(append(lines.Bytes(), '\n')); err != nil {
				return
			}
		}
	}()
	return v
}

func (v *viewer) sees(t *testing.T, text string) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, text+" is seen", func() bool { return strings.Contains(v.String(), text) })
}

// Those who follow a page see what happens, also if the server bounds the time of an answer. All of
// them share one reading and one rendering; nothing is left when the last has gone; and a server
// that shuts down does not wait for them.
//
// Fails when send sets no deadline of its own, when leave is not called, or when Close ends no
// stream.
func TestFollowersSeeWhatHappens(t *testing.T) {
	f := newFleetThatReads(t, page.Config{RefreshInterval: 100 * time.Millisecond}, snapshotAge)
	mux := http.NewServeMux()
	mux.Handle("/ops/", f.page)
	server := httptest.NewUnstartedServer(mux)
	server.Config.WriteTimeout = 300 * time.Millisecond
	server.Config.RegisterOnShutdown(f.page.Close)
	server.Start()
	defer server.Close()

	const many = 40
	var viewers []*viewer
	for range many {
		viewers = append(viewers, follow(t, server, "leaders"))
	}
	viewers[0].sees(t, "event: page")
	began, calls := time.Now(), f.rows.calls.Load()+f.locks.calls.Load()
	lease, err := f.session.Mutex("leader:relay").TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range viewers {
		v.sees(t, "leader:relay")
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, v := range viewers {
		v.sees(t, ">released<")
	}
	calls = f.rows.calls.Load() + f.locks.calls.Load() - calls
	if most := 5 * (1 + int64(time.Since(began)/time.Second)); calls > most {
		t.Errorf("%d calls in %v, at most %d", calls, time.Since(began), most)
	}
	for _, v := range viewers[1:] {
		v.stop()
		<-v.ended
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.Config.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	<-viewers[0].ended
	viewers[0].stop()
	server.Client().CloseIdleConnections()
	if topics, left := f.page.Followers(); topics != 0 || left != 0 {
		t.Errorf("%d pages and %d viewers are left", topics, left)
	}
}

// A firstWrite tells when something is written.
type firstWrite struct {
	*httptest.ResponseRecorder
	began chan struct{}
	once  sync.Once
}

func (f *firstWrite) WriteHeader(code int) {
	f.ResponseRecorder.WriteHeader(code)
	f.once.Do(func() { close(f.began) })
}

func (f *firstWrite) Write(text []byte) (int, error) {
	f.WriteHeader(http.StatusOK) // unless another was written
	return f.ResponseRecorder.Write(text)
}

// One reader with many streams does not shut out others, whether he is known by name or by the
// address of his machine. When his streams have ended, nothing of them is kept.
//
// Fails when enter does not count the streams of each reader, or leave does not.
func TestNobodyTakesAllStreams(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{RefreshInterval: time.Hour, Authorize: func(r *http.Request) page.Access {
		return page.Access{Read: true, By: r.Header.Get("By")}
	}})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	follow := func(by, peer string) *httptest.ResponseRecorder {
		r := request("GET", "events", "").WithContext(ctx)
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("By", by)
		r.RemoteAddr = peer
		w := &firstWrite{httptest.NewRecorder(), make(chan struct{}), sync.Once{}}
		ended := make(chan struct{})
		all.Go(func() { defer close(ended); f.page.ServeHTTP(w, r) })
		<-w.began
		if w.Code == http.StatusOK {
			return nil // it goes on
		}
		<-ended
		return w.ResponseRecorder
	}
	for i := range 600 {
		w := follow("eve", fmt.Sprintf("10.0.%d.%d:99", i/200, i%200))
		if refused := w != nil; refused != (i >= 500) {
			t.Fatalf("stream %d of eve: refused %t", i, refused)
		} else if refused && w.Code != http.StatusTooManyRequests {
			t.Fatalf("stream %d of eve: %d", i, w.Code)
		}
	}
	for i := range 260 {
		if refused := follow("", fmt.Sprintf("[2001:db8::%x]:99", i)) != nil; refused != (i >= 250) {
			t.Fatalf("stream %d of a machine with many addresses: refused %t", i, refused)
		}
	}
	for _, other := range [][2]string{{"ann", "10.0.0.1:99"}, {"", "10.0.0.2:99"}, {"", "[2001:db8:0:1::1]:99"}} {
		if w := follow(other[0], other[1]); w != nil {
			t.Errorf("%q finds no place: %d", other, w.Code)
		}
	}
	stop()
	all.Wait()
	if topics, viewers := f.page.Followers(); topics != 0 || viewers != 0 || f.page.Readers() != 0 {
		t.Errorf("%d pages, %d viewers and %d readers are left", topics, viewers, f.page.Readers())
	}
}

// A user who may not read a page may not follow it.
//
// Fails when a stream is begun before admit was asked.
func TestFollowersNeedAccess(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{})
	var all sync.WaitGroup
	for _, peer := range []string{"10.0.0.7:99", "192.168.1.1:5"} {
		all.Go(func() {
			r := request("GET", "timers", "")
			r.RemoteAddr = peer
			r.Header.Set("Accept", "text/event-stream")
			if w := serve(f.page, r); w.Code != http.StatusForbidden {
				t.Errorf("%s: %d", peer, w.Code)
			}
		})
	}
	all.Wait()
	f.page.Close()
	r := request("GET", "timers", "")
	r.Header.Set("Accept", "text/event-stream")
	if w := serve(f.page, r); w.Code != http.StatusServiceUnavailable {
		t.Errorf("after Close: %d", w.Code)
	}
}
