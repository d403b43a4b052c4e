package outboxpage

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/outbox"
)

// topicsTTL is for how long all viewers share what was read about topics, which is a statement for
// each.
const topicsTTL = 5 * time.Second

// failedAlarm is from how many messages on that died in a row a topic is failing.
const failedAlarm = 3

// A topicView is a topic with a picture of its outcomes.
type topicView struct {
	outbox.TopicRecord
	pagekit.Outcomes `json:"-"`
}

// Most reports whether more messages may have failed than were counted.
func (t topicView) Most() bool { return t.Failures >= int64(outbox.MaxOutcomes) }

func (s *section) readTopics(ctx context.Context) readcache.Result[[]outbox.TopicRecord] {
	return s.topics.Get(ctx, "", s.box.Topics)
}

func topicViews(list []outbox.TopicRecord) []topicView {
	views := make([]topicView, len(list))
	for i, t := range list {
		t.LastError = mask.Text(t.LastError)
		views[i] = topicView{t, pagekit.OutcomesOf(t.Outcomes, "messages that ended",
			func(s outbox.State) (succeeded, failed bool) {
				return s == outbox.StateDispatched, s == outbox.StateDead
			})}
	}
	return views
}

// topicNotices are about topics whose messages die.
func (s *section) topicNotices(ctx context.Context) (list []page.Notice) {
	for _, t := range topicViews(s.readTopics(ctx).Value) {
		if t.Failures < failedAlarm {
			continue
		}
		more := ""
		if t.Most() {
			more = " or more"
		}
		list = append(list, page.Notice{Urgent: true, URL: page.URL("outbox", "state", "dead", "topic", t.Topic),
			Text: fmt.Sprintf("Outbox: topic %.80q has failed for %s, %d%s dead messages in a row: %.500s", t.Topic,
				pagekit.Took(time.Since(t.FailingFrom)), t.Failures, more, t.LastError)})
	}
	return list
}
