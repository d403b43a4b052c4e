package page_test

import (
	"bufio"
	"context"
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
