package outboxpage_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/internal/pagetest"
	"github.com/tickslot/tickslot/cluster/page/outboxpage"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
)

// Dead messages are on the overview, messages are shown with their attempts and payloads, as text
// only, and can be delivered again or deleted.
//
// Fails when an action calls another method, a template has an unescaped text, or who has no right
// to see payloads does.
func TestMessagesAreShownAndChanged(t *testing.T) {
	t.Parallel()
	db, box := open(t)
	id := outbox.RandomID()
	deliver(t, db, box, outbox.Message{ID: id, Topic: "mail", Key: pagetest.HostileText,
		Headers: map[string]string{"Tenant": "acme"}, Payload: []byte("to: " + pagetest.HostileText)})
	ann := pagetest.NewClient(t, outboxpage.New(box))
	note := url.Values{"note": {"why not"}}
	own := page.URL("message", "id", id.String())
	ann.WaitForTexts("", "1 dead message in the outbox")
	ann.WaitForTexts("outbox?state=dead", own, "mail", "&lt;script&gt;")
	ann.WaitForTexts("outbox?state=pending", "No message matches", "Oldest pending</dt><dd>none", `class="bad">1</a>`)
	ann.WaitForTexts("outbox?state=dead", "1 ×", "confirm?action=outbox-requeue&amp;id="+id.String(), "Delete these…",
		`<input type="checkbox" name="id" value="`+id.String())
	ann.WaitForTexts("confirm?action=outbox-delete&id=a&id=b", "Delete messages: 2", "<li><bdi>b</bdi></li>")
	ann.WaitForTexts("outbox?topic=mail", "outbox-requeuetopic")
	ann.WaitForTexts(own, "Deliver again…", "Delete…", `\u202e`, "permanent", "no &lt;script&gt;", "to: &lt;", "acme")
	pagetest.RequireNoPayload(t, outboxpage.New(box), "/message", own, "to: ", base64.StdEncoding.EncodeToString(
		[]byte("to: <sc")), "acme", "Tenant")
	ann.WaitForTexts("confirm?action=outbox-delete&id="+id.String(), "The message is lost")

	ann.RequireInOpenAPI("/outbox", "outbox")
	ann.RequireInOpenAPI("/message", own)
	ann.PostAction(303, "outbox-requeue", "id", id.String(), note)
	ann.WaitForTexts(own, "pending")
	ann.PostAction(400, "outbox-requeue", "id", id.String(), note)
	ann.PostAction(400, "outbox-delete", "id", id.String(), note)
	ann.PostAction(400, "outbox-requeuetopic", "topic", "", note)
	ann.PostAction(404, "outbox-delete", "id", "x", note)
	deliver(t, db, box)
	ann.PostAction(400, "outbox-requeuetopic", "topic", "mail", note)
	typed := url.Values{"typed": {"mail"}}
	ann.PostAction(400, "outbox-requeuetopic", "topic", "mial", url.Values{"typed": {"mial"}})
	ann.PostAction(303, "outbox-requeuetopic", "topic", "mail", typed)
	deliver(t, db, box)
	ann.PostAction(303, "outbox-delete", "id", id.String(), note)
	w := ann.Get(own, "text/html")
	if w.Code != http.StatusNotFound {
		t.Errorf("deleted, and there: %d", w.Code)
	}
}

// How long messages wait is on the page, and when it is too long, on the overview, too:
// with the topic whose messages fail, and since when.
//
// Fails when the page does not ask for the Backlog, and when attention looks at dead messages only.
func TestMessagesThatWaitAreSeen(t *testing.T) {
	t.Parallel()
	db, box := open(t)
	ann := pagetest.NewClient(t, outboxpage.New(box))
	ann.WaitForTexts("", "Nothing.")
	appendTo(t, db, box, outbox.Message{ID: outbox.RandomID(), Topic: "mail", Key: "a"})
	ann.WaitForTexts("outbox", `<a href="outbox?state=pending">1</a>`)
	set(t, db, "next_attempt_at", -90*time.Second)
	set(t, db, "created_at", -2*time.Hour)
	ann.WaitForTexts("", "A message of the outbox is due for 9", " s and was not delivered")
	ann.WaitForTexts("outbox", `<dd class="bad">9`)
	set(t, db, "next_attempt_at", time.Hour) // its deliveries fail
	ann.WaitForTexts("", "A message of the outbox is pending for 2 h:")
	ann.WaitForTexts("outbox", "Lag: oldest that is due</dt><dd>none", "Oldest pending</dt><dd>2 h<")
	set(t, db, "failing_since", -90*time.Minute)
	ann.WaitForTexts("", "topic &#34;mail&#34;: deliveries of 1 message fail, for 90 min, last error: ")
}

// open returns an outbox in a file of its own.
func open(t *testing.T) (*sql.DB, *outbox.Outbox) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "box.db")+
		"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	box := outbox.SQLite(db, outbox.Options{})
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
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Logger: slog.New(slog.DiscardHandler),
		DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
			return outbox.Permanent(errors.New("no " + pagetest.HostileText))
		})})
	if err != nil {
		t.Fatal(err)
	}
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
