package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// MaxFailing is the maximum number of messages that Failing reads, so that it is cheap no matter
// how many messages fail.
const MaxFailing = store.MaxFailing

// A FailingTopic is a topic with messages that have failed and will be retried.
type FailingTopic struct {
	Topic     string
	Messages  int64         // number of such messages; at most MaxFailing for all topics together
	Since     time.Time     // Record.FailingFrom of the message that has been failing longest
	For       time.Duration // time since then, by the database's clock
	LastError string        // latest error of that message
}

// String returns a line for people: topic "orders": 12 messages are failing, since …, last error:
// ….
func (f FailingTopic) String() string {
	n := "1 message is failing"
	if f.Messages != 1 {
		n = fmt.Sprintf("%d messages are failing", f.Messages)
	}
	if f.Messages >= MaxFailing {
		n = fmt.Sprintf("%d messages or more are failing", f.Messages)
	}
	return fmt.Sprintf("topic %.80q: %s, since %s (%v ago), last error: %.500s", f.Topic, n,
		f.Since.UTC().Format(time.RFC3339), f.For.Round(time.Second), mask.Text(f.LastError))
}

// Failing returns up to 20 topics with messages that have failed and will be retried, the longest
// failing first. It counts only the MaxFailing messages that have been failing longest. It executes
// one statement.
func (o *Outbox) Failing(ctx context.Context) ([]FailingTopic, error) {
	if err := o.ready(ctx); err != nil {
		return nil, err
	}
	rows, err := o.store.Failing(ctx)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return failingTopics(rows), nil
}

func failingTopics(rows []store.FailingTopic) []FailingTopic {
	list := make([]FailingTopic, len(rows))
	for i, f := range rows {
		list[i] = FailingTopic{f.Topic, f.Messages, f.Since, f.For, f.Error}
	}
	return list
}
