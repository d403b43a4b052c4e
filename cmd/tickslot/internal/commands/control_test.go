package commands_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/timer/control"
)

func open(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// An operator's change takes effect in the store, in the operator's name, and is recorded in the
// events.
//
// Fails when a command calls the wrong method of the Control, or omits the operator.
func TestTimersAreSteered(t *testing.T) {
	t.Parallel()
	url, file := sqlite(t)
	db := open(t, file)
	write(t, sqlregistry.SQLite(db, sqlregistry.Options{}), cluster.Batch{Host: hostRow(holder, "1", "", 1)})
	locks := sqllock.SQLite(db, sqllock.Options{})
	ctl := control.New(control.Config{Store: locks})
	state := func() driver.ControlState {
		s, err := ctl.Inspect(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	has(t, url, "pause report --for 2h --by ann --note moving", "paused until")
	if s := state(); s.Pause == nil || s.Pause.Cause != (driver.Cause{By: "ann", Note: "moving"}) ||
		s.Pause.For < 119*time.Minute || s.Pause.For > 2*time.Hour {
		t.Errorf("%+v", s.Pause)
	}
	has(t, url, "explain report", "report: paused", "by ann: moving", `"tickslot resume" ends that`)
	has(t, url, "resume report")
	if s := state(); s.Pause != nil {
		t.Errorf("%+v", s.Pause)
	}
	has(t, url, "limit report 3 --by ann", "limited to 3")
	if s := state(); s.Limit == nil || s.Limit.Slots != 3 {
		t.Errorf("%+v", s.Limit)
	}
	has(t, url, "limit report reset")
	if s := state(); s.Limit != nil {
		t.Errorf("%+v", s.Limit)
	}
	has(t, url, "trigger report --payload x --expires 1m --by bob", "triggered")
	waiting, err := ctl.Triggers(t.Context(), "report")
	if err != nil || len(waiting) != 1 || waiting[0].By.By != "bob" || waiting[0].PayloadLen != 1 {
		t.Errorf("%+v, %v", waiting, err)
	}
	grant, err := locks.TryAcquire(t.Context(), driver.Request{Name: "timer:report", Slots: 1, TTL: 20 * time.Second,
		Token: "token-of-the-run", Holder: holder})
	if err != nil {
		t.Fatal(err)
	}
	has(t, url, "cancel report --slot 0 --by ann", "canceled the run in slot 0")
	if r, err := locks.Extend(t.Context(), 20*time.Second, grant); err != nil || r[0].Outcome != driver.GrantLost {
		t.Errorf("%+v, %v", r, err)
	}
	has(t, url, "events ls -o wide", "by ann: timer report: paused until", ": moving", "limited to 3", "by bob",
		"canceled the run in slot 0")
	has(t, url, "events ls", "by ann: timer") // also where the text is cut
	for _, wrong := range []string{"pause", "pause report --for x", "limit report", "trigger report --bogus",
		"cancel report",
		"cancel report --slot 0 --run 1-2", "timers bogus", "trigger mail --durable --expires 1m"} {
		if a := tickslot(t, url, strings.Fields(wrong)...); a.code != 2 || a.out != "" {
			t.Errorf("%s: exit code %d: %s", wrong, a.code, a)
		}
	}
	for _, refused := range []string{"pause report --for -1s", "limit report -- -1", "limit report many", "explain " +
		"nobody",
		"cancel report --slot 7", "timers ls -o xml", "timers ls --interval 1ms -w", "doctor --calls 0",
		"cancel --slot 1", "requeue durable", "requeue outbox x", "requeue durable x", "outbox ls --state x",
		"durable ls --limit 0", "durable ls --state x", "migrate up --only x"} {
		if a := tickslot(t, url, strings.Fields(refused)...); a.code != 1 || a.err == "" {
			t.Errorf("%s: exit code %d: %s", refused, a.code, a)
		}
	}
}

// With --environment, nothing is changed where hosts of another environment are alive.
//
// Fails when a change is made without this check.
func TestAnotherEnvironmentIsNotChanged(t *testing.T) {
	t.Parallel()
	url, file := sqlite(t)
	registry := sqlregistry.SQLite(open(t, file), sqlregistry.Options{})
	write(t, registry, cluster.Batch{Host: hostRow(holder, "1", "production", 1)})
	a := tickslot(t, url, "pause", "report", "--environment", "staging")
	if a.code != 1 || !strings.Contains(a.err, `hosts of environment production share this store`) {
		t.Errorf("exit code %d: %s", a.code, a)
	}
	has(t, url, "pause report --environment production")
	if a := tickslot(t, url, "timers", "ls"); !strings.Contains(a.out, "paused") {
		t.Error(a)
	}
}

// Dead letters of both kinds are listed and can be requeued.
//
// Fails when a part is not listed, or when requeue uses another filter.
func TestDeadLettersAreTriedAgain(t *testing.T) {
	t.Parallel()
	url, file := sqlite(t)
	db := open(t, file)
	run, message := deadRun(t, durable.SQLite(db, durable.Options{})), deadMessage(t, db)
	has(t, url, "dead ls", "durable", "mail", "no paper", "outbox", "orders", message)
	has(t, url, "durable ls --state dead -o json", `"handler": "mail"`, `"last_error"`)
	has(t, url, "outbox ls -o json", `"topic": "orders"`, `"state": "dead"`)
	has(t, url, "requeue durable "+run, "1 durable runs: due again")
	has(t, url, "requeue outbox "+message, "1 messages: due again")
	has(t, url, "dead ls", "no dead letters")
	has(t, url, "durable ls --state queued", run)
	has(t, url, "cancel --durable "+run, "it was queued")
	has(t, url, "pause mail --durable --for 2h --by ann", "durable runs of mail: paused until")
	has(t, url, "limit mail 3 --durable --by ann", "durable runs of mail: limited to 3")
	has(t, url, "durable handlers", "mail", "3 (set), 7 per partition, 1000 starts in 1h0m", "paused", "by ann")
	has(t, url, "durable handlers mail -o json", `"name": "mail"`, `"queued": 0`, `"rate": 1000`, `"max_per_partition": 7`)
	has(t, url, "durable schedules", "no worker has a schedule")
	has(t, url, "resume mail --durable", "durable runs of mail: resumed")
	has(t, url, "limit mail reset --durable", "limit reset")
	has(t, url, "trigger mail --durable --payload x --by bob", "durable runs of mail: queued run ")
	has(t, url, "durable ls --state queued -o wide", "mail", "bob")
	has(t, url, "events ls -o wide", "durable runs of mail: paused until", "by bob")
	has(t, url, "outbox ls --state pending", message)
	if a := tickslot(t, url, "requeue", "outbox", "--topic", "orders"); a.code != 1 {
		t.Errorf("there is none: %s", a)
	}
}

func deadRun(t *testing.T, store *durable.Store) (id string) {
	t.Helper()
	n, err := store.Trigger(t.Context(), nil, "mail", nil, durable.TriggerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	worker, err := durable.NewWorker(store, durable.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle("mail", func(context.Context, *durable.Run) error {
		return durable.Permanent(errors.New("no paper"))
	}, durable.HandlerOptions{MaxPerPartition: 7, Rate: 1000, Per: time.Hour})
	until(t, worker.Run, func() bool {
		dead, err := store.Runs(t.Context(), durable.RunFilter{States: []durable.State{durable.StateDead}}, 1)
		return err == nil && len(dead) == 1
	})
	return strconv.FormatInt(n, 10)
}

func deadMessage(t *testing.T, db *sql.DB) (id string) {
	t.Helper()
	box := outbox.SQLite(db, outbox.Options{})
	t.Cleanup(func() { _ = box.Close() })
	m := outbox.Message{ID: outbox.RandomID(), Topic: "orders", Payload: []byte("x")}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Append(t.Context(), outbox.SQLTx(tx), m); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Logger: slog.New(slog.DiscardHandler),
		DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
			return outbox.Permanent(errors.New("no paper"))
		})})
	if err != nil {
		t.Fatal(err)
	}
	until(t, relay.Run, func() bool {
		dead, err := box.Messages(t.Context(), outbox.Filter{State: outbox.StateDead}, 1)
		return err == nil && len(dead) == 1
	})
	return m.ID.String()
}

// until runs something until done returns true.
func until(t *testing.T, run func(context.Context) error, done func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	testkit.Eventually(t, 20*time.Second, "it is done", done)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Tables are created, printed and checked, all of them or a selection. Only migrate up creates a
// file, and missing tables are reported.
//
// Fails when ls creates a file, or when validate accepts missing tables.
func TestTablesAreMigrated(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "new.db")
	url := "sqlite:" + file
	for _, command := range [][]string{{"timers", "ls"}, {"migrate", "validate"}, {"doctor"}} {
		if a := tickslot(t, url, command...); a.code != 1 || !strings.Contains(a.err, "migrate up") {
			t.Errorf("%s: exit code %d: %s", command, a.code, a)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Fatal("the file was created")
	}
	has(t, url, "migrate up --only locks,registry", "locks: its tables", "registry: its tables")
	has(t, url, "migrate validate --only locks")
	if a := tickslot(t, url, "migrate", "validate"); a.code != 1 || !strings.Contains(a.err, "durable: ") ||
		!strings.Contains(a.err, "outbox: ") {
		t.Errorf("exit code %d: %s", a.code, a)
	}
	has(t, url, "doctor --calls 1", `ok   tables of durable: not there: if it is used, "tickslot migrate up --only durable"`)
	a := tickslot(t, url, "dead", "ls")
	if a.code != 1 || !strings.Contains(a.err, "the tables of durable are missing") {
		t.Errorf("exit code %d: %s", a.code, a)
	}
	has(t, url, "migrate print --only outbox", `CREATE TABLE IF NOT EXISTS "main"."tickslot_outbox`)
	if a := tickslot(t, "redis://127.0.0.1:1/0", "migrate", "up"); a.code != 1 || !strings.Contains(a.err, "no "+
		"tables") {
		t.Errorf("exit code %d: %s", a.code, a)
	}
}

// The health check's exit code follows the host's answer.
//
// Fails when a status other than 2xx, or no answer, counts as healthy.
func TestHealthcheck(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		w.Header().Set("Location", "/200")
		w.WriteHeader(status)
	}))
	defer server.Close()
	for status, code := range map[string]int{"200": 0, "204": 0, "503": 1, "404": 1, "302": 1} {
		if a := tickslot(t, "", "healthcheck", "--url", server.URL+"/"+status); a.code != code {
			t.Errorf("%s: exit code %d: %s", status, a.code, a)
		}
	}
	server.Close()
	if a := tickslot(t, "", "healthcheck", "--url", server.URL+"/200"); a.code != 1 {
		t.Errorf("nobody answers: exit code %d", a.code)
	}
}

// Every command has a help text, completion and manual pages, all without a store.
//
// Fails when a command is missing from the manual or has no example.
func TestCommandsAreExplained(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	has(t, "", "man "+folder)
	has(t, "", "completion bash", "bash completion")
	has(t, "", "__complete timers ls -o t", "table")
	pages, err := filepath.Glob(filepath.Join(folder, "*.1"))
	if err != nil || len(pages) < 30 {
		t.Fatal(pages, err)
	}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".1")
		parent := strings.Contains(string(text), name+"-") // subcommands have their own pages
		if !parent && !strings.Contains(string(text), "EXAMPLE") && !strings.Contains(name, "completion") {
			t.Errorf("%s has no example", name)
		}
	}
}

// The version is printed without a store: the module's version, the commit and the Go version.
//
// Fails when one of them is missing, or when the flag prints something different from the command.
func TestVersion(t *testing.T) {
	t.Parallel()
	has(t, "", "version", "tickslot ", "commit ", runtime.Version())
	if a, b := tickslot(t, "", "version"), tickslot(t, "", "--version"); a != b {
		t.Errorf("%s%s", a, b)
	}
}

// Lists are sorted and filtered, and so is their output for programs. Names are completed from the
// store, and silently not completed while it is down. A pipe gets no color.
//
// Fails when numbers are sorted as texts, rows are sorted without their data, or a completion
// prints an error.
func TestListsAreSortedAndNamesCompleted(t *testing.T) {
	t.Parallel()
	url, file := sqlite(t)
	db := open(t, file)
	row := hostRow(holder, "1", "", 1)
	row.Detail = []byte(`{"timers":[{"name":"alpha","max_concurrency":10},{"name":"beta","max_concurrency":9},` +
		`{"name":"gamma","max_concurrency":1}]}`)
	write(t, sqlregistry.SQLite(db, sqlregistry.Options{}), cluster.Batch{Host: row})
	deadRun(t, durable.SQLite(db, durable.Options{}))
	has(t, url, "pause beta")
	order := func(command string, names ...string) {
		t.Helper()
		a, at := tickslot(t, url, strings.Fields(command)...), -1
		for _, name := range names {
			next := strings.Index(a.out, name)
			if next <= at {
				t.Errorf("%s: %s is not behind the others: %s", command, name, a)
			}
			at = next
		}
		if a.code != 0 || strings.Contains(a.out, "\x1b") {
			t.Errorf("%s: exit code %d: %q", command, a.code, a)
		}
	}
	order("timers ls", "alpha", "beta", "gamma")
	order("timers ls --sort limit", "gamma", "beta", "alpha")
	order("timers ls --sort -limit -o json", "alpha", "beta", "gamma")
	order("timers ls --sort -timer -o json", "gamma", "beta", "alpha")
	for _, format := range []string{"table", "json"} {
		a := tickslot(t, url, "timers", "ls", "--state", "paused", "-o", format)
		if !strings.Contains(a.out, "beta") || strings.Contains(a.out, "alpha") {
			t.Error(a)
		}
	}
	has(t, url, "timers ls --state running -o json", "[]")
	refuses(t, url, "timers ls --sort size", `--sort: there is no column "size": use timer, state, limit`)
	for _, command := range []string{"pause", "trigger", "limit", "resume", "cancel", "explain"} {
		has(t, url, "__complete "+command+" al", "alpha")
	}
	has(t, url, "__complete pause --durable ma", "mail")
	if a := tickslot(t, "redis://127.0.0.1:1", "__complete", "pause", "a"); a.code != 0 ||
		strings.Contains(a.String(), "refused") || strings.Contains(a.out, "alpha") {
		t.Error(a)
	}
}
