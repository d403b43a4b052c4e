package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/internal/redistest"
	"github.com/tickslot/tickslot/internal/servertest"
	"github.com/tickslot/tickslot/internal/sqltest"
)

func TestMain(m *testing.M) {
	servertest.Main(m, func() error { return goleak.Find() }) // everything that the program starts ends
}

// output is the JSON as others read it. These names are a promise, so they are spelt out once more.
type output struct {
	Hosts   int     `json:"hosts"`
	Seconds float64 `json:"seconds"`
	Timers  []struct {
		Name             string `json:"name"`
		Limit            int    `json:"limit"`
		MaxRunning       int    `json:"max_running"`
		Runs             int    `json:"runs"`
		Ticks            int    `json:"ticks"`
		Skipped          int    `json:"skipped"`
		PerTick          int    `json:"per_tick"`
		MaxStartsPerTick int    `json:"max_starts_per_tick"`
	} `json:"timers"`
	SlotRecoveredMS int64 `json:"slot_recovered_ms"`
}

func TestLimitsHoldAndSlotComesBack(t *testing.T) {
	for _, hosts := range []struct {
		flag string
		n    int
	}{{"3", 3}, {"5", 5}} {
		t.Run(hosts.flag+" hosts", func(t *testing.T) {
			t.Parallel()
			playAndCheck(t, hosts.n, "-hosts", hosts.flag)
		})
	}
}

func TestEveryStore(t *testing.T) {
	maria := func(t *testing.T) string {
		server := sqltest.SharedMariaDB(t)
		database := server.NewDatabase(t)
		return "mysql://root:" + servertest.Canary + "@" + server.Addr() + "/" + database
	}
	for name, url := range map[string]func(t *testing.T) string{
		"memory":   func(*testing.T) string { return "memory:" },
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "locks.db") },
		"redis":    func(t *testing.T) string { return redistest.New(t).URL() },
		"postgres": func(t *testing.T) string { s := sqltest.SharedPostgres(t); return s.DSN("", "", s.NewDatabase(t)) },
		"mysql":    maria,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playAndCheck(t, 3, "-store", url(t))
		})
	}
}

func playAndCheck(t *testing.T, hosts int, args ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append([]string{"-json", "-for", "5s"}, args...), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	var out output
	dec := json.NewDecoder(&stdout)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	if dec.More() {
		t.Error("there is more than one JSON object")
	}
	t.Logf("%+v", out)
	if out.Hosts != hosts || out.Seconds < 5 || len(out.Timers) != 2 {
		t.Errorf("got %d hosts, %v seconds, %d timers", out.Hosts, out.Seconds, len(out.Timers))
	}
	if ms := out.SlotRecoveredMS; ms <= 0 || ms > 2*leaseTTL.Milliseconds() {
		t.Errorf("the slot came back after %d ms, want more than 0 and at most %v", ms, 2*leaseTTL)
	}
	for i, want := range promises {
		got := out.Timers[i]
		if got.Name != want.timer || got.Limit != want.atOnce || got.PerTick != want.perTick {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got.MaxRunning != want.atOnce {
			t.Errorf("%s: at most %d at once, want the limit to be reached and kept: %d", got.Name, got.MaxRunning, want.atOnce)
		}
		if got.MaxStartsPerTick < 1 || got.MaxStartsPerTick > want.perTick {
			t.Errorf("%s: at most %d starts per tick, want 1 to %d", got.Name, got.MaxStartsPerTick, want.perTick)
		}
		if got.Ticks < 1 || got.Runs < got.Ticks || got.Skipped < 0 {
			t.Errorf("%s: %d runs of %d ticks, %d skipped", got.Name, got.Runs, got.Ticks, got.Skipped)
		}
	}
}

// The recorder must be able to find fault, or its approval means nothing.
func TestRecorderFindsFault(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	rec := newRecorder(&out)
	rec.begin(start{host: "a", timer: sendDigest})
	if err := rec.violations(); err != nil {
		t.Fatal(err)
	}
	rec.begin(start{host: "b", timer: sendDigest})
	err := rec.violations()
	if err == nil {
		t.Fatal("two runs of one tick in one slot found no objection")
	}
	for _, want := range []string{"2 runs at once", "2 starts of one tick", "b began in slot 0 while a was still there"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	stdout := &onWrite{do: interrupt} // the first line is the start of a run
	var stderr bytes.Buffer
	if code := run(ctx, nil, stdout, &stderr); code != 0 {
		t.Errorf("exit status %d: %s", code, &stderr)
	}
	for _, want := range []string{"starts, ", "ends after", "most at once"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("missing %q in:\n%s", want, stdout)
		}
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-hosts", "1"},
		{"-for", "-1s"},
		{"please"},
		{"-store", "hunter2"},
		{"-store", "redis://:hunter2@localhost:none/0"},
		{"-store", "postgres://user:hunter2@localhost:none/db"},
		{"-store", "mysql://user:hunter2@localhost:none/db"},
		{"-store", "mysql://user:hunter2@localhost"},
		{"-store", "sqlite:"},
		{"-store", "sqlite:/no/such/folder/hunter3"},
		{"-store", "redis://user:hunter2@127.0.0.1:1/0"}, // nobody listens there
		{"-store", "postgres://user:hunter2@127.0.0.1:1/db"},
		{"-store", "mysql://user:hunter2@127.0.0.1:1/db"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code == 0 {
			t.Errorf("%q: exit status 0", args)
		}
		if stderr.Len() == 0 {
			t.Errorf("%q: not a word why", args)
		}
		if strings.Contains(stdout.String()+stderr.String(), "hunter2") {
			t.Errorf("%q: the password is printed: %s", args, &stderr)
		}
	}
}

type onWrite struct {
	mu  sync.Mutex
	buf bytes.Buffer
	do  func()
}

func (w *onWrite) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.do()
	return w.buf.Write(p)
}

func (w *onWrite) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
