package commands_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/commands"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "1" {
		runAsProgram()
	}
	servertest.Main(m, func() error { return goleak.Find() }) // commands must leave no goroutine behind
}

// An answer is the output of a command.
type answer struct {
	code     int
	out, err string
}

func (a answer) String() string { return a.out + a.err }

// tickslot runs a command on the store at url.
func tickslot(t *testing.T, url string, args ...string) answer {
	t.Helper()
	return during(t.Context(), url, args...)
}

func during(ctx context.Context, url string, args ...string) answer {
	return in(ctx, map[string]string{"TICKSLOT_STORE": url}, args...)
}

func in(ctx context.Context, environment map[string]string, args ...string) answer {
	var out, errs bytes.Buffer
	code := commands.Run(ctx, args, commands.IO{Out: &out, Err: &errs,
		Getenv: func(name string) string { return environment[name] }})
	return answer{code, out.String(), errs.String()}
}

// has runs a command that must succeed, and checks that its output contains all texts.
func has(t *testing.T, url, command string, texts ...string) {
	t.Helper()
	a := tickslot(t, url, strings.Fields(command)...)
	if a.code != 0 {
		t.Errorf("%s: exit code %d: %s", command, a.code, a)
	}
	for _, text := range texts {
		if !strings.Contains(a.out, text) {
			t.Errorf("%s lacks %q:\n%s", command, text, a)
		}
	}
}

// sqlite returns a database with all tables.
func sqlite(t *testing.T) (url, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "tickslot.db")
	url = "sqlite:" + file
	has(t, url, "migrate up", "locks:", "registry:", "durable:", "outbox:")
	return url, file
}

var holder = dlock.Holder{Host: "web-1", PID: 7, ID: "abc"}

// hostRow returns a heartbeat of a host that has registered the timer report.
func hostRow(h dlock.Holder, version, environment string, limit int,
	runners ...cluster.RunnerDetail) *cluster.Heartbeat {
	detail, err := json.Marshal(cluster.HostDetail{Runners: runners,
		Timers: []cluster.TimerDetail{{Name: "report", MaxConcurrency: limit}}})
	if err != nil {
		panic(err) // the detail is built here
	}
	return &cluster.Heartbeat{Holder: h, Environment: environment, AppVersion: version, Version: "v1.0.0",
		UpFor: time.Hour, TTL: 30 * time.Second, Detail: detail}
}

func write(t *testing.T, store cluster.Store, b cluster.Batch) {
	t.Helper()
	if _, err := store.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// redisFleet starts a Redis server with the data of a host that holds a slot and is a leader.
func redisFleet(t *testing.T, args ...string) (url string, registry *redisregistry.Store) {
	t.Helper()
	url, registry, _ = redisFleetOn(t, args...)
	return url, registry
}

func redisFleetOn(t *testing.T, args ...string) (url string, registry *redisregistry.Store, server *redistest.Server) {
	t.Helper()
	server = redistest.New(t, redistest.Options{Args: args})
	client := server.Client()
	registry = redisregistry.New(client, redisregistry.Options{Prefix: "shop:"})
	locks := redislock.New(client, redislock.Options{Prefix: "shop:", NoQuarantine: true,
		QuarantineTTL: 2 * time.Minute})
	t.Cleanup(func() { _, _, _ = registry.Close(), locks.Close(), client.Close() })
	for _, name := range []string{"timer:report", "leader:billing"} {
		req := driver.Request{Name: name, Slots: 1, TTL: 2 * time.Minute, Token: strings.ReplaceAll(name, ":", "-"),
			Holder: holder}
		if _, err := locks.TryAcquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	write(t, registry, cluster.Batch{Host: hostRow(holder, "1.2", "production", 1)})
	since := 9*time.Hour + 30*time.Minute
	write(t, registry, cluster.Batch{Host: hostRow(holder, "1.2", "production", 1), Number: 1,
		Timers: []cluster.TimerRecord{{Last: cluster.Run{Timer: "hourly", Holder: holder, Outcome: "error",
			Err: "no ink", EndedAgo: 30 * time.Minute}, Failures: 9, FailingFor: since, FailedAgo: 30 * time.Minute,
			Outcomes: "oeeeeeeeee"}},
		Runs: []cluster.Run{{ID: "r1", Timer: "report", Holder: holder, Slot: 0, Took: 1500 * time.Millisecond,
			Outcome: "error", Err: "no \x1b[2Jpaper\u202e", Attempts: 3}}})
	return server.URL(), registry, server
}

// All lists work for a fleet on Redis with a prefix: hosts, slots, leases, leaders, runs and
// timers.
//
// Fails when a list reads the wrong leases, or shows untrusted text unescaped.
func TestFleetIsListed(t *testing.T) {
	t.Parallel()
	url, _ := redisFleet(t)
	who := "web-1/7/abc"
	has(t, url, "--prefix shop: hosts ls", who, "alive", "production", "1.2")
	has(t, url, "--prefix shop: slots ls", "report", who, "alive")
	has(t, url, "--prefix shop: leases ls", "timer:report", "leader:billing", "held")
	has(t, url, "--prefix shop: leaders ls bill", "billing", who)
	has(t, url, "--prefix shop: runs ls -o wide", "report", "error", "1.5s", `no \u001b[2Jpaper\u202e`)
	has(t, url, "--prefix shop: timers ls -o json", `"state": "running"`, `"max_concurrency": 1`)
	has(t, url, "--prefix shop: explain report", "all 1 slots are held", "slot 0: "+who,
		"while no host reaches the store: up to 1 runs at once",
		"it is failing since ", " UTC, 1 in a row; the latest: error: no")
	// For a timer whose runs have all been deleted, say since when it fails.
	has(t, url, "--prefix shop: timers ls hourly --state failing", "since ", " UTC, 9 in a row", "error")
	has(t, url, "--prefix shop: timers ls hourly -o json", `"failed_in_a_row": 9`, `"failing_since": "`)
	has(t, url, "--prefix shop: explain hourly", "hourly: failing since ", "9 in a row; the latest: error: no ink")
	has(t, url, "--prefix shop: explain report -o yaml", "because:", "last_run:")
	has(t, url, "--prefix shop: timers ls nothing", "no timer is known")
	has(t, url, "--prefix other: hosts ls", "no host is registered")
	for wait := 350 * time.Millisecond; ; wait *= 2 { // a busy machine lists more slowly
		ctx, stop := context.WithTimeout(t.Context(), wait)
		a := during(ctx, url, "--prefix", "shop:", "slots", "ls", "-w", "--interval", "100ms")
		stop()
		n := strings.Count(a.out, "TIMER")
		if n < 2 && wait < testkit.Patience {
			continue
		}
		if n < 2 || a.code != 0 || strings.Contains(a.out, "\x1b") {
			t.Errorf("watched for %v: %d lists, exit code %d: %q", wait, n, a.code, a)
		}
		break
	}
}

// A process that was started on the store of another environment is listed as refused, and makes
// the doctor fail, even after it has stopped.
//
// Fails when it is listed as alive or stopped, or when the doctor finds no fault.
func TestRefusedProcessIsListed(t *testing.T) {
	t.Parallel()
	url, store := redisFleet(t)
	registry, err := cluster.New(cluster.Config{Store: store, Environment: "staging", AppVersion: "1.3",
		Holder: dlock.Holder{Host: "web-9", PID: 9, ID: "xyz"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Admit(t.Context(), nil); err == nil {
		t.Error("it is admitted")
	}
	listed := func() {
		t.Helper()
		has(t, url, "--prefix shop: hosts ls web-9", "web-9/9/xyz", "refused", "staging")
		has(t, url, "--prefix shop: hosts ls web-9 -o json", `"state": "refused"`, `"environment": "staging"`, "production")
		a := tickslot(t, url, "--prefix", "shop:", "doctor")
		if line := "environment: web-9/9/xyz was refused and takes no work"; a.code == 0 ||
			!strings.Contains(a.out, line) || strings.Contains(a.out, "hosts differ") {
			t.Errorf("the doctor's exit code is %d, and it lacks %q: %s", a.code, line, a)
		}
	}
	listed()
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := registry.Run(ctx); err == nil {
		t.Error("Run of the registry returns no error")
	}
	listed()
}

// No output contains the password, no matter what is wrong with the URL and where in it the
// password is.
//
// Fails when an error quotes a URL, or when a driver's error is printed unchanged.
func TestSecretsAreNotTold(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://:hunter2@localhost:none/0", "postgres://user:hunter2@localhost:none/db",
		"mysql://user:hunter2@localhost:none/db", "mysql://user:hunter2@localhost", "hunter2",
		"redis://user:hunter2@127.0.0.1:1/0", "postgres://user:hunter2@127.0.0.1:1/db",
		"mysql://user:hunter2@127.0.0.1:1/db", "redis-cluster://user:hunter2@127.0.0.1:1,127.0.0.1:2",
		"redis-cluster://user:hunter2@127.0.0.1:none", "redis-sentinel://user:hunter2@127.0.0.1:1,127.0.0.1:2/0",
		"redis-sentinel://user:hunter2@127.0.0.1:1/0?master=m&sentinel_password=hunter2"} {
		for _, args := range []string{"timers ls", "doctor", "pause report", "--help", "migrate validate", "bogus"} {
			a := tickslot(t, url, strings.Fields(args)...)
			b := tickslot(t, "", append([]string{"--store", url}, strings.Fields(args)...)...)
			if strings.Contains(a.String()+b.String(), "hunter2") {
				t.Errorf("%s: %s tells the password: %s%s", url, args, a, b)
			}
			if args != "--help" && (a.code == 0 || a.err+a.out == "") {
				t.Errorf("%s: %s: exit code %d, %s", url, args, a.code, a)
			}
		}
	}
	const url = "redis://user:hunter2@host"
	for _, args := range [][]string{{url}, {"-s" + url}, {"redis-sentinel://h?sentinel_password=hunter2"},
		{"pause", "--for", url, "x"}, {"timers", "ls", "-o", url},
		{"healthcheck", "--url", "http://user:hunter2@127.0.0.1:1/"}} {
		if a := tickslot(t, "", args...); a.code == 0 || strings.Contains(a.String(), "hunter2") {
			t.Errorf("%s: exit code %d: %s", args, a.code, a)
		}
	}
}
