package mask_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/clustertimer"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/durablepage"
	"github.com/tickslot/tickslot/cluster/page/outboxpage"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/timer"
)

// nobodyReads is a secret. The errors below quote it as drivers and clients do: in a URL, a DSN, a
// query and a header.
const nobodyReads = "s3cr3t-Canary"

var errQuotes = errors.New("dial postgres://app:" + nobodyReads + "@db-1:5432/shop: refused; host=db password=" +
	nobodyReads + `; Post "https://hooks.internal/x?token=` + nobodyReads + "\": EOF; Authorization: Bearer " +
	nobodyReads)

// waysOut lists the ways by which errors leave a process. Each writes its output to said.
var waysOut = map[string]func(t *testing.T, said *told){
	"a probe":                       probeSays,
	"a role whose store fails":      leaderSays,
	"a timer that fails":            timerSays,
	"a timer whose store fails":     timerStoreSays,
	"a registry whose store fails":  registryStoreSays,
	"a part and an event":           registrySays,
	"a durable run that fails":      durableSays,
	"a message that is not taken":   outboxSays,
	"a page that cannot read":       pagesSay,
	"a durable store that is down":  durableStoreSays,
	"an outbox whose store is down": outboxStoreSays,
}

// No password in an error of a driver, a client or the user's own code appears on a page or in a
// probe, log, record or JSON. The rest of the error stays visible.
//
// Fails when an output bypasses the mask.
func TestSecretsInErrorsLeaveNowhere(t *testing.T) {
	t.Parallel()
	for way, say := range waysOut {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			said := &told{}
			say(t, said)
			text := said.String()
			if at := strings.Index(text, nobodyReads); at >= 0 {
				t.Errorf("in %d places, such as: …%s…", strings.Count(text, nobodyReads),
					text[max(0, at-300):min(len(text), at+50)])
			}
			if !strings.Contains(text, "***") || !strings.Contains(text, "refused") {
				t.Errorf("the error is not there at all: %s", text)
			}
		})
	}
}

// told collects output from any goroutine.
type told struct{ testkit.Log }

func logTo(said *told) *slog.Logger {
	return slog.New(slog.NewJSONHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func asJSON(t *testing.T, said *told, values ...any) {
	t.Helper()
	for _, v := range values {
		text, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		said.Write(append(text, '\n'))
	}
}

// run runs a part until the condition until is true.
func run(t *testing.T, part func(context.Context) error, what string, until func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	testkit.Eventually(t, time.Minute, what, until)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func probeSays(t *testing.T, said *told) {
	fails := func() error { return errQuotes }
	handler := health.New(noSource{}, health.Check{Name: "db", Func: fails, Required: true})
	for _, accept := range []string{"", "application/health+json"} {
		ask(said, handler, "/readyz?verbose", accept)
	}
}

// noSource is a health.Source without faults.
type noSource struct{}

func (noSource) Live() error                     { return nil }
func (noSource) Started() error                  { return nil }
func (noSource) Ready() error                    { return nil }
func (noSource) Checks() map[string]func() error { return nil }

func ask(said *told, handler http.Handler, target, accept string) {
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+target, nil)
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Fprintln(said, w.Code, w.Body)
}

func leaderSays(t *testing.T, said *told) {
	store := dlocktest.NewFaulty(memlock.New())
	store.Inject(dlocktest.Error(errQuotes))
	session, err := dlock.NewSession(store, dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	elector, err := leader.New(session, leader.Role{Name: "relay", Logger: logTo(said),
		RetryInterval: 10 * time.Millisecond,
		Run:           func(ctx context.Context, _ *leader.Term) error { <-ctx.Done(); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	run(t, elector.Run, "the store fails", func() bool { return elector.Status().Err != nil })
	asJSON(t, said, elector.Status())
}

// timers returns a scheduler with one failing timer, and a page that shows it.
func timers(t *testing.T, said *told, store dlock.DistributedLock) (*timer.Scheduler, *page.Page, *cluster.Registry) {
	t.Helper()
	registry := newRegistry(t, said, cluster.NewMemoryStore())
	s, err := timer.New(timer.Config{Store: store, Holder: registry.Holder(), Logger: logTo(said),
		Hooks: clustertimer.Hooks(registry, timer.Hooks{})},
		timer.Timer{Name: "report", MaxConcurrency: 1, OnStoreDown: timer.StoreDownSkip,
			Run: func(context.Context) error { return errQuotes }})
	if err != nil {
		t.Fatal(err)
	}
	registry.Add(s)
	return s, pageOf(t, said, registry, s), registry
}

func newRegistry(t *testing.T, said *told, store cluster.Store) *cluster.Registry {
	t.Helper()
	registry, err := cluster.New(cluster.Config{Store: store, TTL: 3 * time.Second, Logger: logTo(said)})
	if err != nil {
		t.Fatal(err)
	}
	return registry
}

func pageOf(t *testing.T, said *told, registry *cluster.Registry, s *timer.Scheduler,
	more ...page.Section) *page.Page {
	t.Helper()
	p, err := page.New(page.Config{Registry: registry, Authorize: page.Loopback, Timers: s, Logger: logTo(said),
		Sections: more})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func looks(said *told, p *page.Page, targets ...string) {
	for _, target := range targets {
		ask(said, p, target, "text/html")
		ask(said, p, target, "application/json")
	}
}

func timerSays(t *testing.T, said *told) {
	s, p, registry := timers(t, said, memlock.New())
	triggered := false
	both := func(ctx context.Context) error {
		go registry.Run(ctx)
		return s.Run(ctx)
	}
	run(t, both, "the run failed", func() bool {
		if !triggered {
			_, err := s.Trigger(t.Context(), "report", timer.TriggerOptions{})
			triggered = err == nil
		}
		list, err := registry.Runs(t.Context(), "report")
		return err == nil && len(list) > 0
	})
	asJSON(t, said, s.Status(), snapshotOf(registry))
	x, err := s.Explain(t.Context(), "report", time.Time{})
	fmt.Fprintln(said, x, err)
	looks(said, p, "/", "/timers", "/timer?name=report", "/hosts")
}

func timerStoreSays(t *testing.T, said *told) {
	store := dlocktest.NewFaulty(memlock.New())
	s, p, _ := timers(t, said, store)
	run(t, s.Run, "the store is down", func() bool {
		store.Inject(dlocktest.Error(errQuotes))
		_, _ = s.Trigger(t.Context(), "report", timer.TriggerOptions{})
		return s.Status().Store.Err != ""
	})
	asJSON(t, said, s.Status())
	ask(said, health.New(s), "/readyz?verbose", "")
	looks(said, p, "/", "/timers", "/timer?name=report", "/hosts")
}

func snapshotOf(registry *cluster.Registry) *cluster.Snapshot {
	s, _ := registry.Snapshot(context.Background()) // the snapshot also contains the error
	return s
}

// badStore fails each call.
type badStore struct{ cluster.Store }

func (badStore) Write(context.Context, cluster.Batch) (cluster.Written, error) {
	return cluster.Written{}, errQuotes
}
func (badStore) Read(context.Context, cluster.Query) (cluster.Rows, error) {
	return cluster.Rows{}, errQuotes
}
func (badStore) Runs(context.Context, string) ([]cluster.Run, error) { return nil, errQuotes }

func registryStoreSays(t *testing.T, said *told) {
	registry := newRegistry(t, said, badStore{})
	run(t, registry.Run, "the store fails", func() bool { return snapshotOf(registry).Err != nil })
	snapshot := snapshotOf(registry)
	if !errors.Is(snapshot.Err, errQuotes) {
		t.Error("the error is another one")
	}
	asJSON(t, said, snapshot)
	fmt.Fprintln(said, snapshot.Err)
	looks(said, pageOf(t, said, registry, nil), "/", "/timers", "/timer?name=report", "/hosts")
}

// badPart is a part of a process that shows an error.
type badPart struct{}

func (badPart) Runners(show func(kind, name, state string, changedAt time.Time, err error)) {
	show("part", "bad", "failing", time.Now(), errQuotes)
}

func registrySays(t *testing.T, said *told) {
	store := cluster.NewMemoryStore()
	registry := newRegistry(t, said, store)
	registry.Add(badPart{})
	registry.RecordRun(cluster.Run{Timer: "report", Outcome: "error", Err: errQuotes.Error()})
	registry.RecordEvent(cluster.Event{Kind: "note", Name: "report", Text: errQuotes.Error()})
	p := pageOf(t, said, registry, nil)
	run(t, registry.Run, "all was written", func() bool {
		snapshot := snapshotOf(registry)
		return len(snapshot.Events) > 0 && len(snapshot.Hosts) > 0 && len(snapshot.Hosts[0].Runners) > 1
	})
	rows, err := store.Read(t.Context(), cluster.Query{})
	if err != nil {
		t.Error(err)
	}
	asJSON(t, said, snapshotOf(registry))
	fmt.Fprintf(said, "%+v\n", rows)
	looks(said, p, "/", "/timers", "/timer?name=report", "/hosts", "/events")
}

func openFile(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "data.db")+
		"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func durableSays(t *testing.T, said *told) {
	store := durable.SQLite(openFile(t), durable.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	worker, err := durable.NewWorker(store, durable.Config{Logger: logTo(said)})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle("mail", func(context.Context, *durable.Run) error { return durable.Permanent(errQuotes) },
		durable.HandlerOptions{})
	id, err := store.Trigger(t.Context(), nil, "mail", nil, durable.TriggerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dead := durable.RunFilter{States: []durable.State{durable.StateDead}}
	run(t, worker.Run, "it is a dead letter", func() bool {
		list, err := store.Runs(t.Context(), dead, 1)
		return err == nil && len(list) == 1
	})
	list, err := store.Runs(t.Context(), dead, 1)
	if err != nil {
		t.Error(err)
	}
	one, err := store.Run(t.Context(), id)
	if err != nil {
		t.Error(err)
	}
	asJSON(t, said, list, one)
	p := pageOf(t, said, newRegistry(t, said, cluster.NewMemoryStore()), nil, durablepage.New(store))
	looks(said, p, "/", "/durable", fmt.Sprint("/durablerun?id=", id))
}

func outboxSays(t *testing.T, said *told) {
	db := openFile(t)
	box := outbox.SQLite(db, outbox.Options{})
	t.Cleanup(func() { box.Close() })
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	id := outbox.RandomID()
	if _, err := box.Append(t.Context(), outbox.SQLTx(tx), outbox.Message{ID: id, Topic: "mail",
		Headers: map[string]string{"Authorization": "Bearer " + nobodyReads, "X-Api-Key": nobodyReads,
			"Cookie":   "session=" + nobodyReads,
			"Callback": "https://app:" + nobodyReads + "@host/x"}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	sink := outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return outbox.Permanent(errQuotes) })
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Logger: logTo(said), DefaultSink: sink})
	if err != nil {
		t.Fatal(err)
	}
	run(t, relay.Run, "it is a dead letter", func() bool {
		list, err := box.Messages(t.Context(), outbox.Filter{State: outbox.StateDead}, 1)
		return err == nil && len(list) == 1
	})
	list, err := box.Messages(t.Context(), outbox.Filter{}, 1)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	_, attempts, err := box.Message(t.Context(), id)
	if err != nil {
		t.Error(err)
	}
	asJSON(t, said, list[0].LastError, attempts)
	p := pageOf(t, said, newRegistry(t, said, cluster.NewMemoryStore()), nil, outboxpage.New(box))
	looks(said, p, "/", "/outbox", "/message?id="+id.String())
}

// noDatabase is a driver that reaches no server and quotes its DSN in the error.
type noDatabase struct{ driver.Connector }

func (noDatabase) Connect(context.Context) (driver.Conn, error) { return nil, errQuotes }
func (noDatabase) Driver() driver.Driver                        { return nil }

func pagesSay(t *testing.T, said *told) {
	fails := page.Section{Views: map[string]page.View{"fails": func(context.Context, url.Values) (page.Content, error) {
		return page.Content{}, errQuotes
	}}, Templates: fstest.MapFS{"fails.html": {Data: []byte("x")}}, Attention: func(context.Context) []page.Notice {
		return []page.Notice{{Text: "the part: " + errQuotes.Error()}}
	}}
	box := outbox.SQLite(sql.OpenDB(noDatabase{}), outbox.Options{})
	t.Cleanup(func() { box.Close() })
	sections := []page.Section{fails, outboxpage.New(box),
		durablepage.New(durable.SQLite(sql.OpenDB(noDatabase{}), durable.Options{}))}
	p := pageOf(t, said, newRegistry(t, said, cluster.NewMemoryStore()), nil, sections...)
	looks(said, p, "/", "/fails", "/outbox", "/message?id="+outbox.RandomID().String(), "/durable", "/durablerun?id=1")
}

// part is the part of a worker or a relay that shows its state.
type part interface {
	cluster.Runner
	health.Source
	Run(context.Context) error
}

func durableStoreSays(t *testing.T, said *told) {
	worker, err := durable.NewWorker(durable.SQLite(sql.OpenDB(noDatabase{}), durable.Options{}),
		durable.Config{Logger: logTo(said)})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle("mail", func(context.Context, *durable.Run) error { return nil }, durable.HandlerOptions{})
	partSays(t, said, worker)
}

func outboxStoreSays(t *testing.T, said *told) {
	box := outbox.SQLite(sql.OpenDB(noDatabase{}), outbox.Options{})
	t.Cleanup(func() { box.Close() })
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Logger: logTo(said),
		DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })})
	if err != nil {
		t.Fatal(err)
	}
	partSays(t, said, relay)
}

func partSays(t *testing.T, said *told, p part) {
	run(t, p.Run, "the error is logged", func() bool { return strings.Contains(said.String(), "refused") })
	ask(said, health.New(p), "/readyz?verbose", "")
}
