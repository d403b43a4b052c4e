// Package outboxpage adds an outbox to the operator's page: how long messages wait, and pending and
// dead messages with their attempts. Dead messages can be delivered again, or deleted.
//
//	page.New(page.Config{Registry: registry, Authorize: page.Loopback,
//		Sections: []page.Section{outboxpage.New(box)}})
//
// All viewers share the result of a read for a second. For a list these are outbox.Outbox.Messages,
// one statement, and Backlog, which is one as well, or up to ten for a long queue; for a message
// one. If messages have been pending for long, the overview reads which topics fail, too: one. The
// table of topics is outbox.Outbox.Topics, a statement for each topic, at most every 5 s. The chart
// reads the backlog and the topics once more and counts messages, which is one statement, at most
// every 15 s. Errors are shown to everybody who may read the page, payloads and headers to those
// with page.Access.Payloads.
package outboxpage

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/outbox"
)

//go:embed templates/*.html
var templates embed.FS

const (
	rowsPerPage = 100
	maxNote     = 200 // bytes, of outbox.RequeueOptions.Note

	// These are the defaults of outbox.Thresholds, with which relays alarm.
	dueAlarm     = time.Minute
	pendingAlarm = time.Hour
)

// New returns a section for page.Config.Sections. Its pages are called outbox and message.
func New(box *outbox.Outbox) page.Section {
	s := &section{box: box}
	s.topics.TTL, s.flow.TTL = topicsTTL, flowTTL
	return page.Section{
		Links:     []page.Link{{Title: "Outbox", Name: "outbox"}},
		Views:     map[string]page.View{"outbox": s.list, "message": s.one},
		Templates: pagekit.Templates(templates), Actions: s.actions(), Attention: s.attention,
	}
}

// A section reads an outbox, for all viewers together.
type section struct {
	box      *outbox.Outbox
	messages readcache.Cache[[]outbox.Record]
	message  readcache.Cache[tried]
	backlog  readcache.Cache[outbox.Backlog]
	failing  readcache.Cache[[]outbox.FailingTopic]
	topics   readcache.Cache[[]outbox.TopicRecord]
	flow     readcache.Cache[flowRead]
}

// tried is a message with its attempts.
type tried struct {
	record   outbox.Record
	attempts []outbox.Attempt
}

func (s *section) forget() {
	s.messages.Forget()
	s.message.Forget()
	s.backlog.Forget()
	s.failing.Forget()
	s.topics.Forget()
	s.flow.Forget()
}

func (s *section) read(ctx context.Context, which outbox.Filter, limit int) readcache.Result[[]outbox.Record] {
	return s.messages.Get(ctx, fmt.Sprintf("%+v %d", which, limit), func(ctx context.Context) ([]outbox.Record, error) {
		return s.box.Messages(ctx, which, limit)
	})
}

func (s *section) readBacklog(ctx context.Context) readcache.Result[outbox.Backlog] {
	return s.backlog.Get(ctx, "", s.box.Backlog)
}

// readFailing returns the topics that fail, if something is pending for long.
func (s *section) readFailing(ctx context.Context, b outbox.Backlog) []outbox.FailingTopic {
	if b.PendingAge <= pendingAlarm {
		return nil
	}
	return s.failing.Get(ctx, "", s.box.Failing).Value
}

// A backlogView is what waits.
type backlogView struct {
	Pending       int64   `json:"pending"` // outbox.MaxBacklog: this many, or more
	Dead          int64   `json:"dead"`
	OldestDue     float64 `json:"oldest_due"`     // seconds
	OldestPending float64 `json:"oldest_pending"` // seconds

	DueAge, PendingAge time.Duration `json:"-"` // the same
	Late               bool          `json:"-"` // DueAge is too long
}

func backlogOf(b outbox.Backlog) *backlogView {
	return &backlogView{b.Pending, b.Dead, b.DueAge.Seconds(), b.PendingAge.Seconds(), b.DueAge,
		b.PendingAge, b.DueAge > dueAlarm}
}

// Count shows a number of messages, of which no more than outbox.MaxBacklog were counted.
func (listView) Count(n int64) string { return backlogView{}.Count(n) }

// Count is like that of a listView.
func (backlogView) Count(n int64) string {
	if n >= outbox.MaxBacklog {
		return fmt.Sprint(n, " or more")
	}
	return fmt.Sprint(n)
}

// A messageView is a message in a list.
type messageView struct {
	ID            string       `json:"id"`
	Topic         string       `json:"topic"`
	Key           string       `json:"key,omitempty"`
	Seq           int64        `json:"seq"`
	State         outbox.State `json:"state"`
	Attempts      int          `json:"attempts"`
	NextAttemptAt time.Time    `json:"next_attempt_at,omitzero"`
	CreatedAt     time.Time    `json:"created_at"`
	FinishedAt    time.Time    `json:"finished_at,omitzero"`
	FailingFrom   time.Time    `json:"failing_from,omitzero"`
	LastError     string       `json:"last_error,omitempty"`
}

func viewOf(r outbox.Record) messageView {
	v := messageView{ID: r.ID.String(), Topic: r.Topic, Key: r.Key, Seq: r.Seq, State: r.State, Attempts: r.Attempts,
		CreatedAt: r.CreatedAt.UTC(), LastError: r.LastError}
	if !r.NextAttemptAt.IsZero() {
		v.NextAttemptAt = r.NextAttemptAt.UTC()
	}
	if !r.FinishedAt.IsZero() {
		v.FinishedAt = r.FinishedAt.UTC()
	}
	if !r.FailingFrom.IsZero() {
		v.FailingFrom = r.FailingFrom.UTC()
	}
	return v
}

// A listView is what is there.
type listView struct {
	pagekit.Seen
	Backlog  *backlogView      `json:"backlog,omitempty"` // nil: it was never read
	Topics   []topicView       `json:"topics"`
	Messages []messageView     `json:"messages"` // the newest that match
	Topic    string            `json:"topic,omitempty"`
	Key      string            `json:"key,omitempty"`
	State    string            `json:"state,omitempty"`
	Next     string            `json:"next,omitempty"` // URL of older messages
	States   []pagekit.Option  `json:"-"`
	DeadBy   pagekit.Failures  `json:"-"` // dead ones of Messages, by their errors
	Chart    pagekit.FlowChart `json:"-"`
}

func (s *section) list(ctx context.Context, q url.Values) (page.Content, error) {
	v := listView{Messages: []messageView{}, Topic: q.Get("topic"), Key: q.Get("key"), State: q.Get("state")}
	which := outbox.Filter{Topic: v.Topic, Key: v.Key}
	for _, state := range []outbox.State{outbox.StatePending, outbox.StateDead, outbox.StateDispatched} {
		chosen := v.State == string(state)
		if chosen {
			which.State = state
		}
		v.States = append(v.States, pagekit.Option{Value: string(state), Chosen: chosen})
	}
	if before, err := strconv.ParseInt(q.Get("before"), 10, 64); err == nil && before > 0 {
		which.BeforeSeq = before
	}
	s.topics.Begin("", s.box.Topics)
	s.flow.Begin("", s.readFlow)
	read := s.read(ctx, which, rowsPerPage)
	backlog := s.readBacklog(ctx)
	topics := s.readTopics(ctx)
	v.Topics = topicViews(topics.Value)
	if !backlog.At.IsZero() {
		v.Backlog = backlogOf(backlog.Value)
	}
	v.Seen = pagekit.SeenOf(read.At, cmp.Or(read.Err, backlog.Err, topics.Err))
	for _, r := range read.Value {
		v.Messages = append(v.Messages, viewOf(r))
		if r.State == outbox.StateDead {
			v.DeadBy.Add(r.LastError, r.ID.String())
		}
	}
	v.DeadBy = v.DeadBy.Sorted()
	v.Chart = s.chart(ctx, v.Topic)
	if n := len(v.Messages); n == rowsPerPage {
		v.Next = page.URL("outbox", "topic", v.Topic, "key", v.Key, "state", v.State, "before",
			strconv.FormatInt(v.Messages[n-1].Seq, 10))
	}
	return page.Content{Title: "Outbox", Data: v}, nil
}

// A fullView is one message.
type fullView struct {
	pagekit.Seen
	messageView
	Headers map[string]string `json:"headers,omitempty"`
	Payload []byte            `json:"payload,omitempty"`
	Hidden  bool              `json:"payload_hidden,omitempty"` // and headers: the viewer may not see them
	Tries   []tryView         `json:"tries"`
	Text    string            `json:"-"` // the payload, if it is text
	Cut     bool              `json:"-"` // the text is longer
}

type tryView struct {
	Number     int            `json:"number"`
	FinishedAt time.Time      `json:"finished_at"`
	Seconds    float64        `json:"took"`
	Relay      string         `json:"relay"`
	Outcome    outbox.Outcome `json:"outcome"`
	Error      string         `json:"error,omitempty"`
	Took       time.Duration  `json:"-"` // the same as Seconds
}

func (s *section) one(ctx context.Context, q url.Values) (page.Content, error) {
	id, err := idOf(q)
	if err != nil {
		return page.Content{}, err
	}
	read := s.message.Get(ctx, id.String(), func(ctx context.Context) (t tried, err error) {
		t.record, t.attempts, err = s.box.Message(ctx, id)
		return t, err
	})
	switch {
	case errors.Is(read.Err, outbox.ErrNoMessage):
		return page.Content{}, fmt.Errorf("%w: %w", page.ErrNotFound, read.Err)
	case read.Err != nil && read.At.IsZero():
		return page.Content{}, read.Err
	}
	r := read.Value.record
	v := fullView{Seen: pagekit.SeenOf(read.At, read.Err), messageView: viewOf(r), Hidden: !page.MayReadPayloads(ctx),
		Tries: []tryView{}}
	if !v.Hidden {
		v.Headers, v.Payload = mask.Headers(r.Headers), r.Payload
		v.Text, v.Cut = pagekit.Payload(r.Payload)
	}
	for _, a := range read.Value.attempts {
		v.Tries = append(v.Tries, tryView{a.Number, a.FinishedAt.UTC(), a.Took.Seconds(), a.Relay, a.Outcome, a.Error,
			a.Took})
	}
	return page.Content{Title: "Message " + v.ID, Data: v}, nil
}

func idOf(q url.Values) (outbox.ID, error) {
	id, err := outbox.ParseID(q.Get("id"))
	if err != nil {
		return id, fmt.Errorf("%w: %q is no ID of a message", page.ErrNotFound, q.Get("id"))
	}
	return id, nil
}

// attention says what the overview shows: dead messages, and those that wait for too long.
func (s *section) attention(ctx context.Context) (list []page.Notice) {
	add := func(url, format string, args ...any) {
		list = append(list, page.Notice{Urgent: true, URL: url, Text: fmt.Sprintf(format, args...)})
	}
	read := s.readBacklog(ctx)
	if read.Err != nil {
		add("outbox", "The database of the outbox does not answer: %v", read.Err)
	}
	b := read.Value
	fail := false
	for _, f := range s.readFailing(ctx, b) {
		if f.For > pendingAlarm {
			fail = true
			add(page.URL("outbox", "state", "pending", "topic", f.Topic), "Outbox: %s", failingText(f))
		}
	}
	list = append(list, s.topicNotices(ctx)...)
	if b.Dead >= outbox.MaxBacklog {
		add("outbox?state=dead", "%d or more dead messages in the outbox.", b.Dead)
	} else if b.Dead > 0 {
		add("outbox?state=dead", "%s in the outbox.", pagekit.Count(b.Dead, "dead message"))
	}
	switch {
	case b.DueAge > dueAlarm:
		// Which of these, Backlog does not tell: it knows neither sinks nor OnDead of relays.
		add("outbox?state=pending", "A message of the outbox is due for %s and was not delivered: no relay runs, they "+
			"are too slow, its topic has no sink, or a dead one before it holds it back.", pagekit.Took(b.DueAge))
	case b.PendingAge > pendingAlarm && !fail:
		add("outbox?state=pending", "A message of the outbox is pending for %s: its deliveries fail, its topic has no "+
			"sink, or one before it holds it back.", pagekit.Took(b.PendingAge))
	}
	return list
}

// failingText says that messages of a topic fail, for how long, and why.
func failingText(f outbox.FailingTopic) string {
	messages := pagekit.Count(f.Messages, "message")
	if f.Messages >= outbox.MaxFailing {
		messages += " or more"
	}
	return fmt.Sprintf("topic %.80q: deliveries of %s fail, for %s, last error: %.500s", f.Topic, messages,
		pagekit.Took(f.For), mask.Text(f.LastError))
}

// What changes mean, on the pages that ask once more.
const (
	requeueMeans = "It is due at once, with a new budget of attempts. If it is older than receivers remember, it is " +
		"left " +
		"out, because they may have had it."
	requeueTopicMeans = "All dead messages of the topic are due at once, each with a new budget of attempts. Those " +
		"that are " +
		"older than receivers remember are left out."
	deleteMeans = "The message is lost: nobody will ever get it."
)

func (s *section) actions() map[string]page.Action {
	action := func(title, about, description string, back func(v url.Values) string,
		do func(ctx context.Context, v url.Values, by driver.Cause) (string, error)) page.Action {
		many := "" // a topic is not chosen from a list
		if about == "id" {
			many = about
		}
		return page.Action{
			Title:       func(v url.Values) string { return pagekit.About(title, v[about]) },
			Description: description, Back: back, Many: many,
			Do: func(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
				defer s.forget()
				return do(ctx, v, by)
			},
		}
	}
	toMessage := func(v url.Values) string {
		if len(v["id"]) != 1 {
			return "outbox?state=dead"
		}
		return page.URL("message", "id", v.Get("id"))
	}
	toTopic := func(v url.Values) string { return page.URL("outbox", "topic", v.Get("topic")) }
	gone := action("Delete message", "id", deleteMeans, func(url.Values) string { return "outbox?state=dead" },
		s.delete)
	gone.Destructive = true
	all := action("Deliver again all dead messages of", "topic", requeueTopicMeans, toTopic, s.requeueTopic)
	all.TypeName = "topic"
	all.Known = s.knowsTopic
	return map[string]page.Action{
		"outbox-requeue":      action("Deliver again message", "id", requeueMeans, toMessage, s.requeue),
		"outbox-requeuetopic": all,
		"outbox-delete":       gone,
	}
}

func (s *section) requeue(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	id, err := idOf(v)
	if err != nil {
		return "", err
	}
	return s.requeueAll(ctx, outbox.Filter{IDs: []outbox.ID{id}}, by)
}

// knowsTopic reports whether a message of a topic is kept; true if that cannot be found out.
func (s *section) knowsTopic(ctx context.Context, v url.Values) bool {
	list, err := s.box.Messages(ctx, outbox.Filter{Topic: v.Get("topic")}, 1)
	return len(list) > 0 || err != nil || v.Get("topic") == ""
}

func (s *section) requeueTopic(ctx context.Context, v url.Values, by driver.Cause) (string, error) {
	if v.Get("topic") == "" { // no filter would mean those of all topics
		return "", &page.BadRequestError{Text: "say of which topic"}
	}
	return s.requeueAll(ctx, outbox.Filter{Topic: v.Get("topic")}, by)
}

func (s *section) requeueAll(ctx context.Context, which outbox.Filter, by driver.Cause) (string, error) {
	note := by.String()
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote], "")
	}
	n, err := s.box.Requeue(ctx, which, outbox.RequeueOptions{Note: note})
	switch {
	case errors.Is(err, outbox.ErrTooOld):
		return "", &page.BadRequestError{Text: err.Error()}
	case err == nil && n == 0:
		return "", &page.BadRequestError{Text: "there is no dead message"}
	}
	return fmt.Sprintf("%d messages are due again", n), err
}

func (s *section) delete(ctx context.Context, v url.Values, _ driver.Cause) (string, error) {
	id, err := idOf(v)
	if err != nil {
		return "", err
	}
	n, err := s.box.Delete(ctx, outbox.Filter{IDs: []outbox.ID{id}})
	if err == nil && n == 0 {
		err = &page.BadRequestError{Text: "it is not a dead message"}
	}
	return "deleted", err
}
