package tickslot_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/proxytest"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

// The programs that read the files in deploy/ accept them.
//
// Fails when a directive is misspelled or names something that does not exist.
func TestDeployedFilesAreValid(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, dir string, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s %v: %v\n%s", filepath.Base(name), args, err, out)
		}
		return string(out)
	}
	write := func(t *testing.T, name, text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("HAProxy", func(t *testing.T) {
		run(t, "deploy/haproxy", proxytest.Find(t, "haproxy"), "-c", "-f", "haproxy.cfg")
	})
	t.Run("nginx", func(t *testing.T) {
		program := proxytest.Find(t, "nginx")
		text := proxytest.NginxConfig(t, [3]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"})
		path := write(t, "nginx.conf", strings.Replace(text, "PORT", "4", 1))
		run(t, "", program, "-t", "-e", "stderr", "-p", filepath.Dir(path), "-c", path)
	})
	t.Run("Prometheus", func(t *testing.T) {
		run(t, "deploy/prometheus", findPromtool(t), "check", "config", "prometheus.yml")
	})
	t.Run("systemd", func(t *testing.T) {
		analyze, err := exec.LookPath("systemd-analyze")
		servertest.Require(t, err, "systemd-analyze comes with systemd")
		unit := read(t, "deploy/systemd/tickslot-redis.service")
		// systemd-analyze checks that the program exists, which is not installed here.
		unit = proxytest.Replace(t, unit, "ExecStart=/usr/local/bin/tickslot-redis ", "ExecStart=/bin/sh ")
		path := write(t, "tickslot-redis.service", unit)
		if out := run(t, "", analyze, "verify", "--man=no", path); strings.Contains(out, "tickslot-redis") {
			t.Errorf("systemd does not like it:\n%s", out) // a warning leaves the exit code 0
		}
		run(t, "", analyze, "security", "--offline=true", "--threshold=15", path) // 1.5 of 10
	})
}

// A deployment is three processes of examples/redis on a Redis.
type deployment struct {
	redis *redistest.Server
	hosts [3]*servertest.Server
}

// addrs returns the addresses of the hosts.
func (d deployment) addrs() [3]string { return addrs(d.hosts) }

func addrs(hosts [3]*servertest.Server) (all [3]string) {
	for i, h := range hosts {
		all[i] = h.Addr()
	}
	return all
}

// A promServer is a real Prometheus with the configuration and the rules of deploy/. It scrapes
// three hosts every second.
type promServer struct{ *servertest.Server }

func startPrometheus(t *testing.T, hosts [3]string) promServer {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	servertest.Require(t, err, "prometheus is its own package")
	config := read(t, "deploy/prometheus/prometheus.yml")
	for i, addr := range hosts {
		config = proxytest.Replace(t, config, fmt.Sprintf("host-%d:8080", i+1), addr)
	}
	config = strings.ReplaceAll(config, "_interval: 15s", "_interval: 1s") // shorter, for a fast test
	rules := read(t, "deploy/prometheus/tickslot.rules.yml")
	const feature = "--enable-feature=native-histograms"
	if !strings.Contains(read(t, "deploy/compose.yaml"), "- "+feature+" ") {
		t.Errorf("compose.yaml does not start it with %s", feature)
	}
	s, err := servertest.Start(servertest.Program{
		Name: "prometheus",
		Prepare: func(s *servertest.Server) error {
			if err := os.WriteFile(filepath.Join(s.Dir(), "prometheus.yml"), []byte(config), 0o600); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(s.Dir(), "tickslot.rules.yml"), []byte(rules), 0o600)
		},
		Command: func(s *servertest.Server) (*exec.Cmd, error) {
			return s.Command(program, "--config.file=prometheus.yml", "--storage.tsdb.path=data",
				"--web.listen-address="+s.Addr(), feature), nil
		},
		Ready: func(_ context.Context, s *servertest.Server, _ int, _ string) error {
			_, err := get("http://" + s.Addr() + "/-/ready")
			return err
		},
	})
	return promServer{servertest.Own(t, s, err)}
}

// read decodes an answer of the Prometheus API.
func (p promServer) read(path string, into any) error {
	answer, err := get("http://" + p.Addr() + "/api/v1/" + path)
	if err != nil {
		return err
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// query returns the current values of an expression.
func (p promServer) query(expr string) (values []string, err error) {
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	err = p.read("query?query="+url.QueryEscape(expr), &answer)
	for _, r := range answer.Data.Result {
		values = append(values, fmt.Sprint(r.Value[1]))
	}
	return values, err
}

// deployed starts a deployment.
func deployed(t *testing.T) (d deployment) {
	t.Helper()
	d.redis = redistest.New(t)
	d.hosts = threeHosts(t, "redis", "REDIS_URL="+d.redis.URL(), "-prestop", "2s", "-ttl", "3s")
	return d
}

// threeHosts starts three processes of a program of examples/.
func threeHosts(t *testing.T, example, env string, args ...string) (hosts [3]*servertest.Server) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "host")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./examples/"+example)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i := range hosts {
		s, err := servertest.Start(servertest.Program{
			Name: "host",
			Command: func(s *servertest.Server) (*exec.Cmd, error) {
				cmd := s.Command(program, append([]string{"-addr", s.Addr()}, args...)...)
				cmd.Env = append(os.Environ(), env)
				return cmd, nil
			},
			Ready: func(_ context.Context, s *servertest.Server, _ int, _ string) error {
				_, err := get("http://" + s.Addr() + "/readyz")
				return err
			},
		})
		hosts[i] = servertest.Own(t, s, err)
	}
	return hosts
}

// get returns the response, or an error unless its status is 200.
func get(address string) (*http.Response, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	answer, err := client.Get(address)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(strings.NewReader(string(text)))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return answer, err
}

// Three hosts of examples/redis run behind HAProxy and nginx with the configurations of deploy/.
// One host is stopped and started again. HAProxy sends no request to a draining host, and nginx
// none to a host that has just answered 503. No request fails.
//
// Fails without -prestop, when HAProxy does not check /readyz, and when nginx does not try another
// host after a 503.
func TestDeployedProxies(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	d := deployed(t)
	hap, ngx := proxytest.HAProxy(t, d.addrs()), proxytest.Nginx(t, d.addrs())
	state := func(i int) (status, requests string) { // of a host, according to HAProxy
		answer, err := get("http://" + proxytest.StatsAddr(hap) + "/;csv")
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(answer.Body).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row[0] == "shop" && row[1] == fmt.Sprintf("host-%d", i+1) {
				return row[17], row[7]
			}
		}
		t.Fatalf("HAProxy knows no host %d: %v", i+1, rows)
		return "", ""
	}
	ask := func() (asked map[string]int) { // sends a request through each proxy, and counts which hosts nginx used
		asked = map[string]int{}
		for range 30 {
			for _, proxy := range []*servertest.Server{hap, ngx} {
				answer, err := get("http://" + proxy.Addr() + "/readyz")
				if err != nil {
					t.Errorf("through %s: %v", proxy.Addr(), err)
					continue
				}
				all := strings.Split(answer.Header.Get("X-Asked"), ", ")
				asked[all[len(all)-1]]++
			}
		}
		return asked
	}
	for i, host := range d.hosts {
		_, before := state(i)
		asked := ask()
		status, after := state(i)
		if !strings.HasPrefix(status, "UP") || before == after || asked[host.Addr()] == 0 {
			t.Errorf("host %d is %s, HAProxy sent it %s requests, then %s; nginx %v", i+1, status, before, after, asked)
		}
	}

	gone := d.hosts[0]
	stopped := make(chan error, 1)
	go func() { stopped <- gone.Stop() }()
	testkit.Eventually(t, testkit.Patience, "HAProxy finds that the host is not ready", func() bool {
		status, _ := state(0)
		return status == "DOWN"
	})
	if why := "Server shop/host-1 is DOWN, reason: Layer7 wrong status, code: 503"; !strings.Contains(hap.Log(), why) {
		t.Errorf("HAProxy did not take it out because it was not ready:\n%s", hap.Log())
	}
	_, before := state(0)
	if asked := ask(); asked[gone.Addr()] != 0 {
		t.Errorf("nginx took the answer of a host that is not ready: %v", asked)
	}
	if _, after := state(0); after != before {
		t.Errorf("HAProxy sent %s requests, then %s to a host that is not ready", before, after)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	ask()
	if err := gone.Restart(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "both ask the host again", func() bool {
		status, _ := state(0)
		return strings.HasPrefix(status, "UP") && ask()[gone.Addr()] > 0
	})
}

// Behind an HAProxy or nginx on the same machine, with the configurations of deploy/, a page for
// page.Loopback is open to nobody, whatever host name the client uses. A page with its own
// Authorize receives the host name that the browser uses.
//
// Fails when a file of deploy/ adds no header, or when nginx passes its upstream's name.
func TestDeployedProxiesOpenNoPage(t *testing.T) {
	t.Parallel()
	registry, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore()})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	for path, config := range map[string]page.Config{
		"/ops/": {Authorize: page.Loopback},
		"/all/": {Authorize: func(*http.Request) page.Access { return page.Access{Read: true} },
			Hosts: []string{"ops.example.com"}},
	} {
		config.Registry, config.Logger = registry, slog.New(slog.DiscardHandler)
		p, err := page.New(config)
		if err != nil {
			t.Fatal(err)
		}
		mux.Handle(path, p)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	addr := server.Listener.Addr().String()
	if answer, err := get("http://" + addr + "/ops/"); err != nil {
		t.Errorf("the machine itself reads nothing: %v, %v", answer, err)
	}
	three := [3]string{addr, addr, addr}
	for name, start := range map[string]func(testing.TB, [3]string) *servertest.Server{
		"HAProxy": proxytest.HAProxy, "nginx": proxytest.Nginx,
	} {
		t.Run(name, func(t *testing.T) {
			proxy := start(t, three)
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for url, want := range map[string]map[string]int{
				"/ops/": {"": 403, "localhost": 403, "127.0.0.1": 403, "shop": 403},
				"/all/": {"ops.example.com": 200, "evil.example": 403},
			} {
				for host, want := range want {
					// On a busy machine, a host may fail its checks, and the proxy itself answers.
					testkit.Eventually(t, testkit.Patience, "a host answers", func(ctx context.Context) error {
						r, err := http.NewRequestWithContext(ctx, "GET", "http://"+proxy.Addr()+url, nil)
						if err != nil {
							return err
						}
						r.Host = host
						answer, err := client.Do(r)
						if err != nil {
							return err
						}
						answer.Body.Close()
						switch answer.StatusCode {
						case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
							return errors.New(answer.Status)
						case want:
						default:
							t.Errorf("%s as %q: %d, want %d", url, host, answer.StatusCode, want)
						}
						return nil
					})
				}
			}
		})
	}
}

// A real Prometheus with the configuration and the rules of deploy/ scrapes three hosts of
// examples/redis. Their metrics arrive, no alert fires, and an alert becomes pending when Redis
// fails.
//
// Fails when a rule cannot be evaluated, or a target is not scraped.
func TestDeployedPrometheus(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	d := deployed(t)
	s := startPrometheus(t, d.addrs())
	query := func(expr, want string) func() error {
		return func() error {
			got, err := s.query(expr)
			if err == nil && (len(got) != 1 || got[0] != want) {
				err = fmt.Errorf("%s is %v, want %s", expr, got, want)
			}
			return err
		}
	}
	for expr, want := range map[string]string{
		`count(up{job="tickslot"} == 1)`:                  "3",
		`count(tickslot_store_up == 1)`:                   "3",
		`max(tickslot_hosts)`:                             "3",
		`max(tickslot_slots_limit{timer="poll"})`:         "2",
		`sum(tickslot_runs_total{outcome="ok"}) > bool 0`: "1",
		`count(process_start_time_seconds)`:               "3",
	} {
		testkit.Eventually(t, testkit.Patience, expr, query(expr, want))
	}
	wanted := strings.Count(read(t, "deploy/prometheus/tickslot.rules.yml"), "- alert:")
	testkit.Eventually(t, testkit.Patience, "every rule is evaluated", func() error {
		var answer struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		if err := s.read("rules", &answer); err != nil {
			return err
		}
		good := 0
		for _, g := range answer.Data.Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					t.Fatalf("%s: %s", r.Name, r.LastError)
				}
				if r.Health == "ok" {
					good++
				}
			}
		}
		if good != wanted {
			return fmt.Errorf("%d of %d", good, wanted)
		}
		return nil
	})
	if err := query(`count(ALERTS) or vector(0)`, "0")(); err != nil {
		t.Errorf("while all is well: %v", err)
	}
	// The hosts notice it at different times, each with its next call.
	if err := d.redis.Stop(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the alert is pending",
		query(`count(ALERTS{alertname="TickslotStoreDown",alertstate="pending"})`, "3"))
}

// Every panel of the dashboard has data from the demo in compose.yaml: three hosts of
// examples/service with the same arguments, scraped by a real Prometheus. No panel shows another
// environment.
//
// Fails when a query uses a metric that no part exports, and without native histograms.
func TestDashboardShowsTheDemo(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	if args := `command: ["-addr", ":8080", "-db", "/data/shop.db", "-customers", "1s"]`; !strings.Contains(
		read(t, "deploy/compose.yaml"), args) {
		t.Errorf("compose.yaml has other arguments than %s", args)
	}
	file := filepath.Join(t.TempDir(), "shop.db")
	hosts := threeHosts(t, "service", "PAGE_PASSWORD=first", "-db", file, "-customers", "1s")
	s := startPrometheus(t, addrs(hosts))
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/tickslot.json")), &d); err != nil {
		t.Fatal(err)
	}
	// has reports whether Prometheus has a number for a panel.
	has := func(p panel, environment string) (bool, error) {
		for _, target := range p.Targets {
			values, err := s.query(target.asked(environment))
			if err != nil {
				return false, fmt.Errorf("%q: %w", p.Title, err)
			}
			if slices.ContainsFunc(values, func(v string) bool { return v != "NaN" }) {
				return true, nil
			}
		}
		return false, nil
	}
	panels := slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" })
	empty := slices.Clone(panels)
	// Each process lists the fleet's leases once a minute, for the first time after a minute.
	testkit.Eventually(t, 5*testkit.Patience, "all panels have data", func() (err error) {
		empty = slices.DeleteFunc(empty, func(p panel) bool {
			is, failed := has(p, "demo")
			err = errors.Join(err, failed)
			return is
		})
		if len(empty) > 0 {
			err = errors.Join(err, fmt.Errorf("%d of %d are empty: %+v", len(empty), len(panels), empty))
		}
		return err
	})
	t.Logf("%d panels have data", len(panels))
	for _, p := range panels {
		if is, err := has(p, "staging"); err != nil || is {
			t.Errorf("%q shows something of an environment that there is not: %v", p.Title, err)
		}
	}
}
