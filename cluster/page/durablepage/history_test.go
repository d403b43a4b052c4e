package durablepage_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page/durablepage"
	"github.com/tickslot/tickslot/cluster/page/internal/pagetest"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A handler whose runs fail is said to be failing on its page and on the overview: since when, how
// many in a row, and why. Another handler that succeeds beside it does not hide that.
//
// Runs that were queued and ended are drawn, of one handler or of all.
//
// Fails when the failures of a handler are derived from the newest runs of all, when a handler that
// succeeds is said to be failing, and when the chart of a handler has the runs of others.
func TestHandlersThatFailAreSaidToBeFailing(t *testing.T) {
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
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	worker, err := durable.NewWorker(store, durable.Config{Logger: slog.New(slog.DiscardHandler),
		PollInterval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	mail := func(_ context.Context, r *durable.Run) error {
		if string(r.Payload) == "fine" {
			return nil
		}
		return durable.Permanent(errors.New("no " + pagetest.HostileText))
	}
	worker.Handle("mail", mail, durable.HandlerOptions{})
	worker.Handle("busy", mail, durable.HandlerOptions{})
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	run := func(handler string, payloads ...string) {
		t.Helper()
		for _, p := range payloads {
			if _, err := store.Trigger(ctx, nil, handler, []byte(p), durable.TriggerOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		testkit.Eventually(t, testkit.Patience, "all have ended", func() bool {
			waiting, err := store.Runs(t.Context(), durable.RunFilter{States: []durable.State{durable.StateQueued,
				durable.StateRunning}}, 1)
			return err == nil && len(waiting) == 0
		})
	}
	run("mail", "fine")
	run("mail", "x")
	ann := pagetest.NewClient(t, durablepage.New(store))
	ann.WaitForTexts("durable", "failing</span>", "1 in a row", `aria-label="of the last 2 runs that ended 1 failed"`)
	run("mail", "x", "x")
	run("busy", strings.Split(strings.Repeat("fine ", 35), " ")[:35]...)
	run("busy", "x")
	run("busy", "fine")
	ann.WaitForTexts("durable", "3 in a row", "no &lt;script&gt;",
		`aria-label="of the last 4 runs that ended 3 failed"`,
		`aria-label="of the last 30 runs that ended 1 failed"`,
		`<rect x="0" width="3" height="16" class="ran"/><rect x="4" width="3" height="16" class="failed"/>`)
	ann = pagetest.NewClient(t, durablepage.New(store)) // which has not counted yet
	ann.WaitForTexts("durable", "<h2 id=\"backlog\">Backlog</h2>", "> 0 queued or running now<", "> 41 queued<",
		"> 41 ended<",
		`aria-label="How many runs were queued, upwards, and ended, downwards, within `)
	ann.WaitForTexts("durable?handler=mail", "Backlog of <bdi>mail</bdi>", "> 4 queued<", "> 4 ended<")
	ann.WaitForTexts("", "The handler mail has failed for ", "3 runs in a row: no &lt;script&gt;")
	handlers, err := store.Handlers(t.Context())
	if err != nil || len(handlers) != 2 {
		t.Fatal(handlers, err)
	}
	if h := handlers[0]; h.Name != "busy" || h.Failures != 0 || !h.FailingFrom.IsZero() || h.LastError != "" {
		t.Errorf("%+v", h)
	}
	now := time.Now()
	if h := handlers[1]; h.FailingFrom.Before(h.SucceededAt) || h.EndedAt.Before(h.FailingFrom) ||
		h.EndedAt.After(now) {
		t.Errorf("%+v", h)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
