package outboxpage_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page/internal/pagetest"
	"github.com/tickslot/tickslot/cluster/page/outboxpage"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
)

// A topic whose messages die is said to be failing on its page and on the overview: since when, how
// many in a row, and why. Another topic that succeeds beside it does not hide that, and messages
// that are tried again are counted.
//
// Messages that were appended and ended are drawn, of one topic or of all.
//
// Fails when the failures of a topic are derived from the newest messages of all, when a topic that
// succeeds is said to be failing, and when the chart of a topic has the messages of others.
func TestTopicsThatFailAreSaidToBeFailing(t *testing.T) {
	t.Parallel()
	db, box := open(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Logger: slog.New(slog.DiscardHandler),
		PollInterval: 100 * time.Millisecond,
		DefaultSink: outbox.SinkFunc(func(_ context.Context, d outbox.Delivery) error {
			switch string(d.Payload) {
			case "fine":
				return nil
			case "later":
				return errors.New("closed")
			}
			return outbox.Permanent(errors.New("no " + pagetest.HostileText))
		})})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- relay.Run(ctx) }()
	deliver := func(topic, payload string, n int) {
		t.Helper()
		var all []outbox.Message
		for range n {
			all = append(all, outbox.Message{ID: outbox.RandomID(), Topic: topic, Payload: []byte(payload)})
		}
		appendTo(t, db, box, all...)
		testkit.Eventually(t, testkit.Patience, "all were tried", func() bool {
			waiting, err := box.Messages(t.Context(), outbox.Filter{State: outbox.StatePending}, 100)
			for _, m := range waiting {
				if m.Attempts == 0 {
					return false
				}
			}
			return err == nil
		})
	}
	ann := pagetest.NewClient(t, outboxpage.New(box))
	deliver("mail", "fine", 1)
	deliver("mail", "x", 3)
	deliver("busy", "x", 1)
	deliver("busy", "fine", 40)
	deliver("slow", "later", 2)
	ann.WaitForTexts("outbox", ">mail<", "failing</span>", "3 in a row: <bdi class=\"err\">no &lt;script&gt;",
		`aria-label="of the last 4 messages that ended 3 failed"`,
		`aria-label="of the last 30 messages that ended 0 failed"`, ">2 <small>for ")
	ann.WaitForTexts("outbox", "<h2 id=\"backlog\">Backlog</h2>", "> 2 pending now<", "> 47 appended<",
		"> 45 ended<",
		`aria-label="How many messages were pending, within `)
	ann.WaitForTexts("outbox?topic=slow", "Backlog of <bdi>slow</bdi>", "> 2 pending now<", "> 2 appended<",
		"> 0 ended<")
	ann.WaitForTexts("", "Outbox: topic &#34;mail&#34; has failed for ", "3 dead messages in a row: no &lt;script&gt;")
	topics, err := box.Topics(t.Context())
	if err != nil || len(topics) != 3 {
		t.Fatal(topics, err)
	}
	if busy := topics[0]; busy.Topic != "busy" || busy.Failures != 0 || !busy.FailingFrom.IsZero() {
		t.Errorf("%+v", busy)
	}
	if slow := topics[2]; slow.Retried != 2 || slow.RetriedFrom.IsZero() || slow.LastError != "closed" ||
		slow.Pending != 2 || len(slow.Outcomes) != 0 {
		t.Errorf("%+v", slow)
	}
	ann.RequireInOpenAPI("/outbox", "outbox")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
