package outboxpage_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	"github.com/tickslot/tickslot/cluster/page/internal/shared/sharedtest"
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
	db, box := open(t)
	id := outbox.RandomID()
	deliver(t, db, box, outbox.Message{ID: id, Topic: "mail", Key: hostile, Payload: []byte("to: " + hostile)})
	ops := pageOf(t, box)
	get := func(target string, want ...string) { t.Helper(); get(t, ops, target, want...) }
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
	get("", "1 dead message in the outbox")
	get("outbox?state=dead", own, "mail", "&lt;script&gt;")
	get("outbox?state=pending", "None.", "Oldest pending</dt><dd>none", `class="bad">1</a>`)
	get("outbox?topic=mail", "outbox-requeuetopic")
	get(own, "Deliver again…", "Delete…", `\u202e`, "rejected", "no &lt;script&gt;")
	get("confirm?action=outbox-delete&id="+id.String(), "The message is lost")

	described(t, ops, "/outbox", "outbox")
	described(t, ops, "/message", own)
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

// How long messages wait is on the page, and when it is too long, on the overview, too.
//
// Fails when the page does not ask for the Backlog, and when attention looks at dead messages only.
func TestMessagesThatWaitAreSeen(t *testing.T) {
	t.Parallel()
	db, box := open(t)
	ops := pageOf(t, box)
	get(t, ops, "", "Nothing.")
	appendTo(t, db, box, outbox.Message{ID: outbox.RandomID(), Topic: "mail", Key: "a"})
	get(t, ops, "outbox", `<a href="outbox?state=pending">1</a>`)
	set(t, db, "next_attempt_at", -90*time.Second)
	set(t, db, "created_at", -2*time.Hour)
	get(t, ops, "", "A message of the outbox is due for 1m3", " and was not delivered")
	get(t, ops, "outbox", `<dd class="bad">1m3`)
	set(t, db, "next_attempt_at", time.Hour) // its deliveries fail
	get(t, ops, "", "A message of the outbox is pending for 2h0m")
	get(t, ops, "outbox", "Lag: oldest that is due</dt><dd>none", "Oldest pending</dt><dd>2h0m")
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

// open returns an outbox in a file of its own.
func open(t *testing.T) (*sql.DB, *outbox.Outbox) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "box.db")+
		"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	box := outbox.New(outbox.SQLite(db))
	t.Cleanup(func() {
		if err := errors.Join(box.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, box
}

// pageOf returns the page of an outbox, which lets everybody act.
func pageOf(t *testing.T, box *outbox.Outbox) *page.Page {
	t.Helper()
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
	return ops
}

// get waits until a page has all texts, because what is read is shared for a second.
func get(t *testing.T, ops *page.Page, target string, want ...string) {
	t.Helper()
	html := ""
	err := testkit.Poll(5*time.Second, "all texts are there", func() error {
		w := httptest.NewRecorder()
		ops.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/"+target, nil))
		html = w.Body.String()
		for _, text := range append(want, "<main") {
			if w.Code != 200 || !strings.Contains(html, text) {
				return fmt.Errorf("%d, no %s", w.Code, text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", target, err, html)
	}
	if strings.Contains(html, "<script>alert") || strings.Contains(html, "\u202e") {
		t.Errorf("%s: a name is alive: %s", target, html)
	}
}

func appendTo(t *testing.T, db *sql.DB, box *outbox.Outbox, messages ...outbox.Message) {
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
}

// set makes an instant of all messages one that is so far from now.
func set(t *testing.T, db *sql.DB, column string, from time.Duration) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), "UPDATE tickslot_outbox SET "+column+" = ?",
		time.Now().Add(from).UnixMicro()); err != nil {
		t.Fatal(err)
	}
}

// deliver appends messages, and runs a relay until one of its topic is dead.
func deliver(t *testing.T, db *sql.DB, box *outbox.Outbox, messages ...outbox.Message) {
	t.Helper()
	appendTo(t, db, box, messages...)
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
