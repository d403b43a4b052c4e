package outboxpage_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/outboxpage"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
)

// Which node is the outbox running on? The registry, the page and their JSON say it: the shard is a
// lease of a leader, under the holder of its host. The command line shows the same leases.
//
// Fails when the relay's locks have a holder of their own, or the registry hears nothing of them.
func TestWhichNodeTheOutboxRunsOn(t *testing.T) {
	t.Parallel()
	_, box := open(t)
	silent := slog.New(slog.DiscardHandler)
	registry, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore(), TTL: 3 * time.Second,
		Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Holder: registry.Holder(), Decorate: registry.Decorate,
		Logger:      silent,
		DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })})
	if err != nil {
		t.Fatal(err)
	}
	registry.Add(relay)
	pages, err := page.New(page.Config{Registry: registry, Authorize: page.Loopback, Logger: silent,
		Sections: []page.Section{outboxpage.New(box)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- registry.Run(ctx) }()
	go func() { ended <- relay.Run(ctx) }()
	var leads []cluster.Lease
	testkit.Eventually(t, testkit.Patience, "a host leads the outbox, in the registry", func() bool {
		s, err := registry.Snapshot(t.Context())
		if err == nil {
			leads = s.HeldLeases(cluster.KindLeader)
		}
		return len(leads) > 0
	})
	if len(leads) != 1 || !strings.HasPrefix(leads[0].Name, "leader:outbox:") || leads[0].Holder != registry.Holder() {
		t.Errorf("the leaders are %+v, and this host is %s", leads, registry.Holder())
	}
	text, err := json.Marshal(leads)
	if err != nil || !strings.Contains(string(text), registry.Holder().String()) {
		t.Errorf("%v: %s", err, text)
	}
	for _, format := range []string{"text/html", "application/json"} {
		r := httptest.NewRequest("GET", "http://localhost/leaders", nil)
		r.RemoteAddr = "127.0.0.1:1" // who may read it
		r.Header.Set("Accept", format)
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r)
		if body := w.Body.String(); !strings.Contains(body, "outbox:") ||
			!strings.Contains(body, registry.Holder().String()) {
			t.Errorf("%s: %s", format, body)
		}
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
