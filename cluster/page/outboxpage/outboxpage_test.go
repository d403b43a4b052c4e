package outboxpage_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/outboxpage"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
)

const hostile = `<script>alert("1")</script>` + "\u202e"

// Dead messages are on the overview, messages are shown with their attempts and payloads, as text
// only, and can be delivered again or deleted.
//
// Fails when an action calls another method, or a template has an unescaped text.
func TestMessagesAreShownAndChanged(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "box.db")+
		"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	box := outbox.New(outbox.SQLite(db))
	defer box.Close()
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := outbox.RandomID()
	deliver(t, db, box, outbox.Message{ID: id, Topic: "mail", Key: hostile, Payload: []byte("to: " + hostile)})
	registry, err := cluster.New(cluster.Options{Store: cluster.NewMemoryStore(),
		Holder: dlock.Holder{Host: "h", PID: 1, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := page.New(page.Config{Registry: registry, Logger: slog.New(slog.DiscardHandler),
		Sections:  []page.Section{outboxpage.New(box)},
		Authorize: func(*http.Request) page.Access { return page.Access{Act: true, By: "ann"} }})
	if err != nil {
		t.Fatal(err)
	}
	get := func(target string, want ...string) {
		t.Helper()
		w := httptest.NewRecorder()
		ops.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/"+target, nil))
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
	do := func(want int, action, name, value string) {
		t.Helper()
		r := httptest.NewRequest("POST", "http://localhost/"+page.URL("do", "action", action, name, value),
			strings.NewReader(url.Values{"note": {"why not"}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		ops.ServeHTTP(w, r)
		if w.Code != want {
			t.Fatalf("%s: %d, want %d: %s", action, w.Code, want, w.Body)
		}
	}
	own := page.URL("message", "id", id.String())
	get("", "1 messages of the outbox are dead")
	get("outbox?state=dead", own, "mail", "&lt;script&gt;")
	get("outbox?state=pending", "None.")
	get("outbox?topic=mail", "outbox-requeuetopic")
	get(own, "Deliver again…", "Delete…", `\u202e`, "rejected", "no &lt;script&gt;")
	get("confirm?action=outbox-delete&id="+id.String(), "The message is lost")

	do(303, "outbox-requeue", "id", id.String())
	get(own, "pending")
	do(400, "outbox-requeue", "id", id.String())
	do(400, "outbox-delete", "id", id.String())
	do(400, "outbox-requeuetopic", "topic", "")
	do(404, "outbox-delete", "id", "x")
	deliver(t, db, box)
	do(303, "outbox-requeuetopic", "topic", "mail")
	deliver(t, db, box)
	do(303, "outbox-delete", "id", id.String())
	w := httptest.NewRecorder()
	ops.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/"+own, nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("deleted, and there: %d", w.Code)
	}
}

// deliver appends messages, and runs a relay until one of its topic is dead.
func deliver(t *testing.T, db *sql.DB, box *outbox.Outbox, messages ...outbox.Message) {
	t.Helper()
	for _, m := range messages {
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
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	relay := outbox.NewRelay(box, outbox.RelayConfig{Logger: slog.New(slog.DiscardHandler),
		DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
			return outbox.Reject(errors.New("no " + hostile))
		})})
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }()
	testkit.Eventually(t, 30*time.Second, "it is dead", func() bool {
		dead, err := box.Messages(t.Context(), outbox.Filter{State: outbox.StateDead}, 1)
		return err == nil && len(dead) == 1
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
