package health_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/proxytest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

const (
	hostEnv = "TICKSLOT_HEALTH_TEST_HOST" // the address on which this binary serves as a host
	hosts   = 3

	preStopDelay = 2 * time.Second // as in docs/operate.md and deploy/haproxy
	stopped      = "stopped in good order"
)

// host runs one process of the fleet, as docs/operate.md recommends. Every page except the probes
// returns the id of the process.
func host(addr string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store := memlock.New()
	timers, err := timer.New(timer.Config{Store: store, PreStopDelay: preStopDelay},
		timer.Timer{Name: "busy", Schedule: schedule.Every(100 * time.Millisecond),
			Run: func(context.Context) error { return nil }})
	if err != nil {
		log.Fatal(err)
	}
	probes := health.New(timers)
	mux := http.NewServeMux()
	mux.Handle("/livez", probes)
	mux.Handle("/readyz", probes)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(5 * time.Millisecond) // respond slowly, so that some requests are always in flight
		fmt.Fprint(w, os.Getpid())
	})
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	err = timers.Run(ctx)
	bounded, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(bounded))
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stopped)
}

// Three hosts are restarted one after the other behind a real HAProxy and a real nginx, with the
// configurations in deploy/, while clients send requests through both. No request fails. HAProxy
// takes a host out when /readyz returns 503. nginx does not probe, but if a host returns 503, it
// asks another host. Some of nginx's clients therefore request /readyz itself.
//
// Fails when /readyz is 200 while a host drains (HAProxy then takes the host out only when its port
// is closed), when the server shuts down before the timers have drained, when PreStopDelay is 0, or
// when the nginx configuration turns proxy_next_upstream off or lacks http_503.
func TestARollingRestartLosesNoRequest(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	doc, err := os.ReadFile("../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("PreStopDelay: %d * time.Second, // longer",
		preStopDelay/time.Second); !strings.Contains(string(doc), want) {
		t.Errorf("the documentation does not contain %q, which this test uses", want)
	}

	var fleet [hosts]*servertest.Server
	for i := range fleet {
		s, err := servertest.Start(hostProgram())
		fleet[i] = servertest.Own(t, s, err)
	}
	addrs := [hosts]string{fleet[0].Addr(), fleet[1].Addr(), fleet[2].Addr()}
	hap, ngx := proxytest.HAProxy(t, addrs), proxytest.Nginx(t, addrs)

	crowds := []*crowd{newCrowd(t, "HAProxy", hap.Addr(), "/"), newCrowd(t, "nginx", ngx.Addr(), "/")}
	var asking *crowd
	for i, s := range fleet {
		before := s.Pid()
		everywhere(t, crowds, before)
		if i == hosts-1 {
			// Only the last host gets these clients. A 503 makes nginx stop using a host early. The
			// other hosts should stop while nginx still sends them requests.
			asking = newCrowd(t, "nginx, /readyz", ngx.Addr(), "/readyz")
			testkit.Eventually(t, 20*time.Second, "the first answer to /readyz",
				func() bool { return asking.answers.Load() > 0 })
		}
		began := time.Now()
		left := make(chan error, 1)
		go func() { left <- s.Stop() }()
		drains(t, s, before)
		if err := <-left; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < preStopDelay {
			t.Errorf("host %d was gone after %v: that is less than PreStopDelay", i+1, took)
		}
		// Restart the host only after its closed port has refused nginx and nginx has asked another
		// host.
		refused := strings.Count(output(t, ngx), proxytest.RetriedRefused)
		if err := testkit.Poll(5*time.Second, "nginx asks another host", func() bool {
			return strings.Count(output(t, ngx), proxytest.RetriedRefused) > refused
		}); err != nil {
			t.Error(err)
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		if s.Pid() == before {
			t.Errorf("host %d was not restarted", i+1)
		}
		everywhere(t, crowds, s.Pid())
		if out := output(t, s); strings.Count(out, stopped) != 1 || strings.Contains(out, "DATA RACE") {
			t.Errorf("host %d did not stop in good order:\n%s", i+1, out)
		}
	}
	for _, c := range append(crowds, asking) {
		c.end(t)
	}
	for _, c := range crowds {
		if n := len(c.pids()); n != 2*hosts {
			t.Errorf("%s: %d processes have answered, want each host before and after", c.name, n)
		}
	}
	for i := range fleet {
		if down := fmt.Sprintf("Server shop/host-%d is DOWN, reason: Layer7 wrong status, code: 503",
			i+1); strings.Count(output(t, hap), down) != 1 {
			t.Errorf("HAProxy did not take host %d out because of a 503:\n%s", i+1, output(t, hap))
		}
	}
	if n := strings.Count(output(t, ngx), proxytest.Retried503); n == 0 {
		t.Error("nginx never got a 503 and asked another host")
	}
}

// A crowd is a set of clients. Each sends one request after the other to a load balancer. Half of
// them use a new connection for each request, because on a kept-alive connection http.Client
// retries a request whose connection is closed, which would hide the failure.
type crowd struct {
	name    string
	stop    context.CancelFunc
	wg      sync.WaitGroup
	answers atomic.Int64

	mu     sync.Mutex
	seen   map[string]int // the number of responses by their text
	failed []string
}

func newCrowd(t *testing.T, name, addr, path string) *crowd {
	ctx, stop := context.WithCancel(context.Background())
	c := &crowd{name: name, stop: stop, seen: map[string]int{}}
	t.Cleanup(func() { stop(); c.wg.Wait() })
	for i := range 6 {
		c.wg.Go(func() {
			transport := &http.Transport{DisableKeepAlives: i%2 == 0}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
			pace := time.NewTicker(50 * time.Millisecond)
			defer pace.Stop()
			for {
				c.ask(client, "http://"+addr+path)
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
				}
			}
		})
	}
	return c
}

func (c *crowd) ask(client *http.Client, url string) {
	began := time.Now()
	said, err := fetch(client, url)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers.Add(1)
	if err != nil {
		c.failed = append(c.failed, fmt.Sprintf("%s, after %v: %v", began.Format(time.StampMilli), time.Since(began),
			err))
		return
	}
	c.seen[said]++
}

func fetch(client *http.Client, url string) (string, error) {
	r, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, body)
	}
	return string(body), err
}

func (c *crowd) pids() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	copied := make(map[string]int, len(c.seen))
	for pid, n := range c.seen {
		copied[pid] = n
	}
	return copied
}

// end stops the clients once every request has been answered.
func (c *crowd) end(t *testing.T) {
	t.Helper()
	c.stop()
	c.wg.Wait()
	if len(c.failed) > 0 {
		t.Errorf("%s: %d of %d requests failed:\n%s", c.name, len(c.failed), c.answers.Load(),
			strings.Join(c.failed[:min(len(c.failed), 10)], "\n"))
	}
	if c.answers.Load() < 50 {
		t.Errorf("%s: only %d requests", c.name, c.answers.Load())
	}
	t.Logf("%s: %d requests, %d failed", c.name, c.answers.Load(), len(c.failed))
}

// drains waits until a host that received SIGTERM is no longer ready. The host must become unready
// immediately, and must keep serving clients that have not noticed yet.
func drains(t *testing.T, s *servertest.Server, pid int) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	if err := testkit.Poll(preStopDelay/2, "/readyz says draining", func(context.Context) error {
		if _, err := fetch(client, "http://"+s.Addr()+"/readyz"); err == nil ||
			!strings.Contains(err.Error(),
				"503 Service Unavailable: unhealthy\n[-]ready failed: the timers are draining") {
			return fmt.Errorf("it is %v", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if said, err := fetch(client, "http://"+s.Addr()+"/"); err != nil || said != fmt.Sprint(pid) {
		t.Errorf("a draining host cannot be reached any more: %v", err)
	}
}

// everywhere waits until every load balancer has returned a response from the process.
func everywhere(t *testing.T, crowds []*crowd, pid int) {
	t.Helper()
	for _, c := range crowds {
		testkit.Eventually(t, 20*time.Second, fmt.Sprintf("%s: an answer of process %d", c.name, pid),
			func() bool { return c.pids()[fmt.Sprint(pid)] > 0 })
	}
}

func hostProgram() servertest.Program {
	return servertest.Program{
		Name: "host",
		Command: func(s *servertest.Server) (*exec.Cmd, error) {
			self, err := os.Executable()
			if err != nil {
				return nil, err
			}
			cmd := s.Command(self)
			// By default, the race detector delays the exit by a second.
			cmd.Env = append(os.Environ(), hostEnv+"="+s.Addr(), "GORACE=atexit_sleep_ms=0")
			return cmd, nil
		},
		Ready: answers("/readyz"),
	}
}

// output returns everything that a server has printed. Log returns only the end.
func output(t *testing.T, s *servertest.Server) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir(), "output.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// answers returns a readiness check that succeeds once the server answers a GET of path with 200.
func answers(path string) func(context.Context, *servertest.Server, int, string) error {
	return func(_ context.Context, s *servertest.Server, _ int, _ string) error {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
		_, err := fetch(client, "http://"+s.Addr()+path)
		return err
	}
}
