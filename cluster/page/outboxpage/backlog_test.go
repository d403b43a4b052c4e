package outboxpage_test

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/outboxpage"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
)

// A message whose topic has no sink waits, while a relay runs and delivers all others. The page
// cannot tell that from a relay that does not run, so the overview names each cause.
//
// Fails when the overview blames the relays only.
func TestOverviewNamesAllCausesOfAMessageThatIsDue(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "box.db")+
		"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	box := outbox.SQLite(db, outbox.Options{})
	t.Cleanup(func() { _ = box.Close() })
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	known := outbox.Message{ID: outbox.RandomID(), Topic: "known"}
	for _, m := range []outbox.Message{known, {ID: outbox.RandomID(), Topic: "strange"}} {
		if _, err := box.Append(t.Context(), outbox.SQLTx(tx), m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.ExecContext(t.Context(), "UPDATE tickslot_outbox SET next_attempt_at = ?",
		time.Now().Add(-90*time.Second).UnixMicro()); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Logger: slog.New(slog.DiscardHandler),
		Sinks: map[string]outbox.Sink{"known": outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
			return nil
		})}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, 30*time.Second, "the relay has delivered what it has a sink for", func() bool {
		m, _, err := box.Message(t.Context(), known.ID)
		return err == nil && m.State == outbox.StateDispatched
	})
	registry, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore(),
		Holder: dlock.Holder{Host: "h", PID: 1, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := page.New(page.Config{Registry: registry, Authorize: page.Loopback,
		Logger:   slog.New(slog.DiscardHandler),
		Sections: []page.Section{outboxpage.New(box)}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "http://localhost/", nil)
	r.RemoteAddr = "127.0.0.1:1234" // from this machine a page may be read
	ops.ServeHTTP(w, r)
	for _, want := range []string{"is due for ", "no relay runs", "they are too slow", "its topic has no sink",
		"a dead one before it holds it back"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the overview, %d, has no %q: %s", w.Code, want, w.Body)
		}
	}
}
