package durablepage_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/durablepage"
	"github.com/tickslot/tickslot/cluster/page/internal/shared/sharedtest"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/testkit"
)

const hostile = `<script>alert("1")</script>` + "\u202e"

// Dead letters are on the overview, runs are shown with their attempts and payloads, as text only,
// and each change is made in the database, in the name of who made it.
//
// Fails when an action calls another method, or a template has an unescaped text.
func TestDurableRunsAreShownAndChanged(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "durable.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	store := durable.SQLite(db)
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	work(t, store)
	registry, err := cluster.New(cluster.Options{Store: cluster.NewMemoryStore(),
		Holder: dlock.Holder{Host: "h", PID: 1, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := page.New(page.Config{Registry: registry, Logger: slog.New(slog.DiscardHandler),
		Sections:  []page.Section{durablepage.New(store)},
		Authorize: func(*http.Request) page.Access { return page.Access{Act: true, By: "ann"} }})
	if err != nil {
		t.Fatal(err)
	}
	get := func(target string, want ...string) {
		t.Helper()
		r := httptest.NewRequest("GET", "http://localhost/"+target, nil)
		w := httptest.NewRecorder()
		ops.ServeHTTP(w, r)
		html := w.Body.String()
		for _, text := range append(want, "<main") {
			if w.Code != 200 || !strings.Contains(html, text) {
				t.Fatalf("%s: %d, no %s in %s", target, w.Code, text, html)
			}
		}
		if strings.Contains(html, "<script>alert") || strings.Contains(html, "\u202e") {
			t.Errorf("%s: a name is alive: %s", target, html)
		}
	}
	do := func(want int, action, name, value string, fields url.Values) {
		t.Helper()
		r := httptest.NewRequest("POST", "http://localhost/"+page.URL("do", "action", action, name, value),
			strings.NewReader(fields.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		ops.ServeHTTP(w, r)
		if w.Code != want {
			t.Fatalf("%s: %d, want %d: %s", action, w.Code, want, w.Body)
		}
	}
	runs, err := store.Runs(t.Context(), durable.RunFilter{}, 10)
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	id := strconv.FormatInt(runs[0].ID, 10)
	get("", "1 dead letter of mail")
	get("durable", "mail", "dead", "&lt;script&gt;", "durable-requeueall")
	get("durable?state=dead&handler=mail", "durablerun?id="+id)
	get("durable?state=queued", "None.")
	get("durablerun?id="+id, "Attempts", "&lt;script&gt;", `\u202e`, "Queue again")
	get("confirm?action=durable-requeue&id="+id, "Queue again run "+id)

	do(303, "durable-requeue", "id", id, url.Values{"note": {"the server is back"}})
	get("durablerun?id="+id, "queued", "by ann: the server is back", "Cancel…")
	do(400, "durable-requeue", "id", id, nil)
	do(303, "durable-cancel", "id", id, nil)
	get("durablerun?id="+id, "canceled", "by ann")
	do(303, "durable-trigger", "handler", "mail", url.Values{"payload": {"hello"}})
	get("durable?handler=mail&state=queued", "queued")
	do(303, "durable-pause", "handler", "mail", url.Values{"for": {"1h"}, "note": {hostile}})
	get("durable", "paused", "by ann: &lt;script&gt;", "durable-resume")
	get("", "The handler mail is paused by ann")
	described(t, ops, "/durable", "durable")
	described(t, ops, "/durablerun", "durablerun?id="+id)
	do(303, "durable-resume", "handler", "mail", nil)
	do(303, "durable-limit", "handler", "mail", url.Values{"n": {"3"}})
	get("durable", "3, set <bdi>by ann")
	do(303, "durable-unlimit", "handler", "mail", nil)
	do(303, "durable-pauseschedule", "schedule", "nightly", url.Values{"for": {"1h"}})
	get("durable", "nightly", "durable-resumeschedule")
	do(303, "durable-resumeschedule", "schedule", "nightly", nil)
	do(303, "durable-requeueall", "handler", "mail", nil)
	do(400, "durable-requeueall", "handler", "", nil)
	do(404, "durable-cancel", "id", "999", nil)
	do(404, "durable-cancel", "id", "x", nil)
}

// work has a run of mail become a dead letter.
func work(t *testing.T, store *durable.Store) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	worker := durable.NewWorker(store, durable.Config{Logger: slog.New(slog.DiscardHandler)})
	worker.Handle("mail", func(context.Context, *durable.Run) error {
		return durable.Dead(errors.New("no " +
			"" + hostile))
	},
		durable.HandlerOptions{})
	if _, err := store.Trigger(ctx, nil, "mail", []byte("to: "+hostile), durable.TriggerOptions{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	testkit.Eventually(t, 20*time.Second, "it is a dead letter", func() bool {
		dead, err := store.Runs(t.Context(), durable.RunFilter{States: []durable.State{durable.StateDead}}, 1)
		return err == nil && len(dead) == 1
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// described fails the test if the description of the JSON lacks a field of a page.
func described(t *testing.T, ops *page.Page, path, target string) {
	t.Helper()
	answer := func(target string) []byte {
		r := httptest.NewRequest("GET", "http://localhost/"+target, nil)
		r.Header.Set("Accept", "application/json")
		w := httptest.NewRecorder()
		ops.ServeHTTP(w, r)
		return w.Body.Bytes()
	}
	missing, err := sharedtest.Undescribed(answer("openapi.json"), path, answer(target))
	if err != nil || len(missing) > 0 {
		t.Errorf("%v are not described: %v", missing, err)
	}
}
