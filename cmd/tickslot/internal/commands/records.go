package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
)

var (
	errNoDurable = errors.New("this store has no durable runs, which are on Postgres and SQLite")
	errNoOutbox  = errors.New("this store has no outbox, which is on Postgres, MySQL and SQLite")
)

// runLists lists runs and messages that have ended or failed.
type runLists struct {
	*app
	timer string
	limit int
}

func (r *runLists) timerFlag(c *cobra.Command) {
	c.Flags().StringVar(&r.timer, "timer", "", "the last 50 runs of this timer")
}

func (a *app) stateFlag(c *cobra.Command) {
	c.Flags().StringVar(&a.state, "state", "", "only those in this state")
}

func (r *runLists) limitFlag(c *cobra.Command) {
	c.Flags().IntVar(&r.limit, "limit", 100, "at most this many, 1 to 1000")
}

func (r *runLists) checkLimit() error {
	if r.limit < 1 || r.limit > outbox.MaxPage {
		return fmt.Errorf("--limit %d: use 1 to %d", r.limit, outbox.MaxPage)
	}
	return nil
}

func (r *runLists) runs(ctx context.Context, filter string) (*show.Table, error) {
	s, err := r.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	all := s.Runs
	if r.timer != "" {
		if all, err = r.registry.Runs(ctx, r.timer); err != nil {
			return nil, err
		}
	}
	t := &show.Table{None: r.none("no run is known", "none is recorded"),
		Columns: []string{"=ENDED", "TIMER", "OUTCOME", "TOOK", "ATTEMPTS", "HOLDER", "ERROR", "+SLOT", "+TICK", "+BY"}}
	list := []cluster.HistoryRun{}
	for _, run := range all {
		if !strings.Contains(run.Timer, filter) {
			continue
		}
		list = append(list, run)
		t.Add(instant(run.EndedAt), run.Timer, run.Outcome, show.Span(run.Took), fmt.Sprint(run.Attempts),
			holderText(run.Holder),
			run.Err, fmt.Sprint(run.Slot), instant(run.Tick), run.By)
	}
	t.Data = list
	return t, nil
}

func (r *runLists) durable(ctx context.Context, filter string) (*show.Table, error) {
	list, err := r.durableRuns(ctx, r.state, filter)
	if err != nil {
		return nil, err
	}
	t := &show.Table{None: "there is no such durable run", Data: list,
		Columns: []string{"=ID", "HANDLER", "STATE", "ATTEMPT", "WORKER", "LAST ERROR", "=RUN AT", "+SCHEDULE", "+DUE",
			"+KEY", "+ENQUEUED", "+FINISHED", "+BY"}}
	for _, run := range list {
		t.Add(fmt.Sprint(run.ID), run.Handler, string(run.State), attemptText(run), run.Worker, run.LastError,
			instant(run.RunAt), run.Schedule, instant(run.DueAt), run.Key, instant(run.EnqueuedAt),
			instant(run.FinishedAt), run.TriggeredBy.By)
	}
	return t, nil
}

func attemptText(r durable.RunRecord) string {
	if r.MaxAttempts == 0 {
		return fmt.Sprint(r.Attempt)
	}
	return fmt.Sprintf("%d of %d", r.Attempt, r.MaxAttempts)
}

func (r *runLists) durableRuns(ctx context.Context, state, filter string) ([]durable.RunRecord, error) {
	if r.store.Durable == nil {
		return nil, errNoDurable
	}
	if err := r.checkLimit(); err != nil {
		return nil, err
	}
	which := durable.RunFilter{}
	if state != "" {
		which.States = []durable.State{durable.State(state)}
	}
	list, err := r.store.Durable.Runs(ctx, which, r.limit)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(run durable.RunRecord) bool {
		return !strings.Contains(run.Handler, filter)
	}), nil
}

// A messageRow is a message in the output for programs.
type messageRow struct {
	ID            outbox.ID    `json:"id"`
	Seq           int64        `json:"seq"`
	Topic         string       `json:"topic"`
	Key           string       `json:"key,omitempty"`
	State         outbox.State `json:"state"`
	Attempts      int          `json:"attempts"`
	CreatedAt     time.Time    `json:"created_at"`
	NextAttemptAt time.Time    `json:"next_attempt_at,omitzero"`
	FinishedAt    time.Time    `json:"finished_at,omitzero"`
	FailingFrom   time.Time    `json:"failing_from,omitzero"`
	LastError     string       `json:"last_error,omitempty"`
}

func (r *runLists) outbox(ctx context.Context, filter string) (*show.Table, error) {
	list, err := r.messages(ctx, outbox.State(r.state), filter)
	if err != nil {
		return nil, err
	}
	t := &show.Table{None: "there is no such message", Data: list,
		Columns: []string{"=ID", "TOPIC", "STATE", "ATTEMPTS", "LAST ERROR", "=CREATED", "=NEXT ATTEMPT",
			"+FAILING SINCE", "+KEY", "+FINISHED", "+SEQ"}}
	for _, m := range list {
		t.Add(m.ID.String(), m.Topic, string(m.State), fmt.Sprint(m.Attempts), m.LastError, instant(m.CreatedAt),
			instant(m.NextAttemptAt), instant(m.FailingFrom), m.Key, instant(m.FinishedAt), fmt.Sprint(m.Seq))
	}
	return t, nil
}

// failingText says how many runs or deliveries failed in a row, and for how long.
func failingText(failures int64, since, now time.Time) string {
	if failures == 0 {
		return "-"
	}
	return fmt.Sprintf("%d in a row for %s", failures, show.Ago(since, now))
}

// initials returns the first letter of each state: s for succeeded, d for dead, c for canceled.
func initials[S ~string](states []S) (letters []string) {
	for _, s := range states {
		letters = append(letters, string(s[:1]))
	}
	return letters
}

func (r *runLists) topics(ctx context.Context, filter string) (*show.Table, error) {
	if r.store.Outbox == nil {
		return nil, errNoOutbox
	}
	all, err := r.store.Outbox.Topics(ctx)
	if err != nil {
		return nil, err
	}
	t := &show.Table{None: "there is no message", Columns: []string{"TOPIC", "PENDING", "LAST ENDED", "LAST DELIVERY",
		"FAILING", "TRIED AGAIN", "LAST ERROR", "+OUTCOMES"}}
	now, list := time.Now(), []outbox.TopicRecord{}
	for _, topic := range all {
		if !strings.Contains(topic.Topic, filter) {
			continue
		}
		list = append(list, topic)
		retried := "-"
		if topic.Retried > 0 {
			retried = fmt.Sprintf("%d for %s", topic.Retried, show.Ago(topic.RetriedFrom, now))
		}
		t.Add(topic.Topic, fmt.Sprint(topic.Pending), show.Ago(topic.EndedAt, now), show.Ago(topic.DispatchedAt, now),
			failingText(topic.Failures, topic.FailingFrom, now), retried, topic.LastError,
			strings.Join(initials(topic.Outcomes), ""))
	}
	t.Data = list
	return t, nil
}

func (r *runLists) messages(ctx context.Context, state outbox.State, filter string) ([]messageRow, error) {
	if r.store.Outbox == nil {
		return nil, errNoOutbox
	}
	if err := r.checkLimit(); err != nil {
		return nil, err
	}
	switch state {
	case "", outbox.StatePending, outbox.StateDispatched, outbox.StateDead:
	default:
		return nil, fmt.Errorf("--state %q: use %s, %s or %s", state, outbox.StatePending, outbox.StateDispatched,
			outbox.StateDead)
	}
	records, err := r.store.Outbox.Messages(ctx, outbox.Filter{State: state}, r.limit)
	if err != nil {
		return nil, err
	}
	list := []messageRow{}
	for _, m := range records {
		if strings.Contains(m.Topic, filter) {
			list = append(list, messageRow{m.ID, m.Seq, m.Topic, m.Key, m.State, m.Attempts, m.CreatedAt.UTC(),
				m.NextAttemptAt, m.FinishedAt, m.FailingFrom, m.LastError})
		}
	}
	return list, nil
}

// A deadRow is a dead letter of either kind.
type deadRow struct {
	Kind     string    `json:"kind"` // durable or outbox
	ID       string    `json:"id"`
	Name     string    `json:"name"` // the handler or the topic
	Attempts int       `json:"attempts"`
	At       time.Time `json:"at"`
	Error    string    `json:"last_error"`
}

// dead lists dead letters of both kinds. A part without tables has none.
func (r *runLists) dead(ctx context.Context, filter string) (*show.Table, error) {
	if r.store.Outbox == nil {
		return nil, errNoOutbox
	}
	list, parts := []deadRow{}, 0
	for _, part := range r.store.Parts {
		var err error
		switch part.Name {
		case "durable":
			var runs []durable.RunRecord
			runs, err = r.durableRuns(ctx, string(durable.StateDead), filter)
			for _, run := range runs {
				list = append(list, deadRow{part.Name, fmt.Sprint(run.ID), run.Handler, run.Attempt, run.FinishedAt,
					run.LastError})
			}
		case "outbox":
			var messages []messageRow
			messages, err = r.messages(ctx, outbox.StateDead, filter)
			for _, m := range messages {
				list = append(list, deadRow{part.Name, m.ID.String(), m.Topic, m.Attempts, m.FinishedAt.UTC(),
					m.LastError})
			}
		default:
			continue
		}
		switch {
		case err == nil:
			parts++
		case errors.Is(part.Verify(ctx), dlock.ErrSetup):
			r.note("the tables of %s are missing, or do not fit this version: \"tickslot migrate up --only %s\" "+
				"creates or upgrades them", part.Name, part.Name)
		default:
			return nil, err
		}
	}
	if parts == 0 {
		return nil, errors.New("neither durable runs nor an outbox can be read here")
	}
	slices.SortFunc(list, func(x, y deadRow) int { return y.At.Compare(x.At) })
	t := &show.Table{None: "no dead letters", Data: list,
		Columns: []string{"KIND", "=ID", "NAME", "ATTEMPTS", "LAST ERROR", "=SINCE"}}
	for _, d := range list {
		t.Add(d.Kind, d.ID, d.Name, fmt.Sprint(d.Attempts), d.Error, instant(d.At))
	}
	return t, nil
}

func (a *app) durableControl() (*durable.Control, error) {
	if a.store.Durable == nil {
		return nil, errNoDurable
	}
	return a.store.Durable.Control(), nil
}

func (a *app) requeue() *cobra.Command {
	parent := &cobra.Command{Use: "requeue", Short: "Retry dead letters", GroupID: groupControl, Args: cobra.NoArgs,
		Long: "Dead durable runs and messages of the outbox are due again at once.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	handler, topic, force := "", "", false
	runs := a.originFlags(&cobra.Command{
		Use: "durable [ID...]", Short: "Queue dead durable runs again", GroupID: groupControl,
		Long: "They are due at once, with all attempts that their handler allows. By ID, canceled runs are queued\n" +
			"again, too.",
		Example: "  tickslot requeue durable 4711 4712\n  tickslot requeue durable --handler invoice",
		RunE: a.control(nil, func(ctx context.Context, args []string, by driver.Cause) (string, error) {
			control, err := a.durableControl()
			if err != nil {
				return "", err
			}
			which := durable.RunFilter{Handler: handler}
			for _, text := range args {
				id, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return "", fmt.Errorf("%q is not the ID of a run", text)
				}
				which.IDs = append(which.IDs, id)
				which.States = []durable.State{durable.StateDead, durable.StateCanceled}
			}
			if len(which.IDs) == 0 && handler == "" { // an empty filter would match the runs of all handlers
				return "", errors.New("say which: IDs, or --handler")
			}
			n, err := control.Requeue(ctx, which, by)
			if err == nil && n == 0 && handler != "" {
				return "", a.noDeadRuns(ctx, handler)
			}
			return requeued(n, "durable runs", err)
		}),
	})
	runs.Flags().StringVar(&handler, "handler", "", "all dead letters of this handler")
	messages := a.originFlags(&cobra.Command{
		Use: "outbox [ID...]", Short: "Deliver dead messages again", GroupID: groupControl,
		Long: "They are delivered again. Messages older than receivers are expected to remember are left out,\n" +
			"unless --force accepts that an effect may happen twice.",
		Example: "  tickslot requeue outbox 0190f5d4-7e1c-7c3a-9b1e-0f6f3f8e2a11\n  tickslot requeue outbox --topic " +
			"orders",
		RunE: a.control(nil, func(ctx context.Context, args []string, by driver.Cause) (string, error) {
			if a.store.Outbox == nil {
				return "", errNoOutbox
			}
			which := outbox.Filter{Topic: topic, State: outbox.StateDead}
			for _, text := range args {
				id, err := outbox.ParseID(text)
				if err != nil {
					return "", err
				}
				which.IDs = append(which.IDs, id)
			}
			if len(which.IDs) == 0 && topic == "" {
				return "", errors.New("say which: IDs, or --topic")
			}
			n, err := a.store.Outbox.Requeue(ctx, which, outbox.RequeueOptions{Force: force, Note: by.String()})
			if err == nil && n == 0 && topic != "" {
				return "", a.noDeadMessages(ctx, topic, force)
			}
			return requeued(n, "messages", err)
		}),
	})
	messages.Flags().StringVar(&topic, "topic", "", "all dead messages of this topic")
	messages.Flags().BoolVar(&force, "force", false, "include those that receivers may have forgotten")
	parent.AddGroup(&cobra.Group{ID: groupControl, Title: "Control:"})
	parent.AddCommand(runs, messages)
	return parent
}

func requeued(n int, what string, err error) (string, error) {
	if err == nil && n == 0 {
		err = fmt.Errorf("there are no such %s", what)
	}
	return fmt.Sprintf("%d %s: due again", n, what), err
}

// noDeadRuns reports that a handler has no dead letters, or that there is no such handler.
func (a *app) noDeadRuns(ctx context.Context, handler string) error {
	if err := a.checkHandler(ctx, handler); err != nil {
		return fmt.Errorf("nothing is changed: %w", err)
	}
	return fmt.Errorf("nothing is changed: handler %q has no dead letters", handler)
}

// noDeadMessages reports that a topic has no dead messages that can be redelivered, and lists the
// topics that have some.
func (a *app) noDeadMessages(ctx context.Context, topic string, force bool) error {
	dead, err := a.store.Outbox.Messages(ctx, outbox.Filter{State: outbox.StateDead}, outbox.MaxPage)
	if err != nil {
		return err
	}
	topics := map[string]bool{}
	for _, m := range dead {
		topics[m.Topic] = true
	}
	if topics[topic] && !force {
		return fmt.Errorf("nothing is changed: the dead messages of topic %q are older than receivers are expected to "+
			"remember: with --force they are delivered, and an effect may happen twice", topic)
	}
	return fmt.Errorf("nothing is changed: %w",
		unknownName("dead message of topic", topic, slices.Collect(maps.Keys(topics))))
}
