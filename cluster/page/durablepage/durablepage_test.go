package durablepage_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/cluster/page/durablepage"
	"github.com/tickslot/tickslot/cluster/page/internal/pagetest"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/testkit"
)

// Dead letters are on the overview, runs are shown with their attempts and payloads, as text only,
// and each change is made in the database, in the name of who made it: after the user was asked
// back if nobody knows the handler or schedule, and if he has to type its name.
//
// Fails when knows or TypeName is left out, when an action calls another method, a template has an
// unescaped text, or who has no right to see payloads does.
func TestDurableRunsAreShownAndChanged(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "durable.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	store := durable.SQLite(db, durable.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	work(t, store)
	ann := pagetest.NewClient(t, durablepage.New(store))
	runs, err := store.Runs(t.Context(), durable.RunFilter{}, 10)
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	id := strconv.FormatInt(runs[0].ID, 10)
	ann.WaitForTexts("", "1 dead letter of mail")
	ann.WaitForTexts("durable", "mail", "dead", "&lt;script&gt;", "durable-requeueall", "7 per partition",
		"100 starts in 60 s<")
	ann.WaitForTexts("durable?state=dead&handler=mail", "durablerun?id="+id)
	ann.WaitForTexts("durablerun?id="+id, "Discard…", "Attempts", "&lt;script&gt;", `\u202e`, "Queue again",
		"to: &lt;")
	pagetest.RequireNoPayload(t, durablepage.New(store), "/durablerun", "durablerun?id="+id, "to: ",
		base64.StdEncoding.EncodeToString([]byte("to: <sc")))
	ann.WaitForTexts("durable?state=queued", "No run matches")
	ann.WaitForTexts("durable?state=dead", "1 ×", "confirm?action=durable-requeue&amp;id="+id, "Discard these…",
		`<input type="checkbox" name="id" value="`+id)
	ann.WaitForTexts("confirm?action=durable-cancel&id=1&id=2", "Cancel runs: 2", "<li><bdi>2</bdi></li>")
	ann.WaitForTexts("confirm?action=durable-requeue&id="+id, "Queue again run "+id)

	ann.PostAction(303, "durable-requeue", "id", id, url.Values{"note": {"the server is back"}})
	ann.WaitForTexts("durablerun?id="+id, "queued", "by ann: the server is back", "Cancel…")
	ann.PostAction(400, "durable-requeue", "id", id, nil)
	ann.PostAction(303, "durable-cancel", "id", id, nil)
	ann.WaitForTexts("durablerun?id="+id, "canceled", "by ann")
	ann.PostAction(400, "durable-cancel", "id", id, nil) // it has ended
	ann.PostAction(303, "durable-trigger", "handler", "mail", url.Values{"payload": {"hello"}})
	ann.WaitForTexts("durable?handler=mail&state=queued", "queued")
	ann.PostAction(303, "durable-pause", "handler", "mail", url.Values{"for": {"1h"}, "note": {pagetest.HostileText}})
	ann.WaitForTexts("durable", "paused", "by ann: &lt;script&gt;", "durable-resume")
	ann.WaitForTexts("", "The handler mail is paused by ann")
	ann.RequireInOpenAPI("/durable", "durable")
	ann.RequireInOpenAPI("/durablerun", "durablerun?id="+id)
	ann.PostAction(303, "durable-resume", "handler", "mail", nil)
	ann.PostAction(303, "durable-limit", "handler", "mail", url.Values{"n": {"3"}})
	ann.WaitForTexts("durable", "3, set <bdi>by ann", "7 per partition")
	ann.PostAction(303, "durable-unlimit", "handler", "mail", nil)
	ann.PostAction(400, "durable-pauseschedule", "schedule", "nightly", url.Values{"for": {"1h"}})
	ann.PostAction(303, "durable-pauseschedule", "schedule", "nightly", url.Values{"for": {"1h"}, "force": {"yes"}})
	for _, misspelt := range []string{"durable-pause", "durable-limit", "durable-trigger", "durable-resume"} {
		ann.PostAction(400, misspelt, "handler", "mial", url.Values{"for": {"1h"}, "n": {"0"}})
	}
	ann.WaitForTexts("durable", "nightly", "durable-resumeschedule")
	ann.PostAction(303, "durable-resumeschedule", "schedule", "nightly", nil)
	ann.WaitForTexts("confirm?action=durable-requeueall&handler=mail", "Type its name", "The name is mail")
	ann.PostAction(400, "durable-requeueall", "handler", "mail", nil)
	ann.PostAction(400, "durable-requeueall", "handler", "mail", url.Values{"typed": {"mial"}})
	ann.PostAction(303, "durable-requeueall", "handler", "mail", url.Values{"typed": {" mail "}})
	ann.PostAction(400, "durable-requeueall", "handler", "", nil)
	ann.PostAction(404, "durable-cancel", "id", "999", nil)
	ann.PostAction(404, "durable-cancel", "id", "x", nil)
}

// work has a run of mail become a dead letter.
func work(t *testing.T, store *durable.Store) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	worker, err := durable.NewWorker(store, durable.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle("mail", func(context.Context, *durable.Run) error {
		return durable.Permanent(errors.New("no " + pagetest.HostileText))
	}, durable.HandlerOptions{MaxPerPartition: 7, Rate: 100, Per: time.Minute})
	payload := []byte("to: " + pagetest.HostileText)
	if _, err := store.Trigger(ctx, nil, "mail", payload, durable.TriggerOptions{}); err != nil {
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
