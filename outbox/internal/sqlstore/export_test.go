package sqlstore

import (
	"context"
	"fmt"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Explained returns the statements of a relay's regular calls, by name.
func (s *Store) Explained() map[string][]Explained {
	r := store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 32, Topics: []string{"orders", "mails"},
		StopOnDead: true, Keys: []string{"busy", "b2"}, IDs: []int64{7}}
	all := map[string]sqlkit.Params{
		"due": dueParams(r), "layout": {}, "stats": statsParams([]string{"orders"}, true),
		"sweep": {"dispatched": int64(9e10), "dead": int64(9e10), "inbox_kept": int64(9e10), "limit": int64(100)},
		"mark": {"results": sqlkit.InJSON([]resultJSON{{ID: inHex(1), Seq: 100_001, Outcome: "ok"},
			{ID: inHex(2), Seq: 100_002, Outcome: "transient"}, {ID: inHex(3), Seq: 100_003, Outcome: "ok"}})},
		"note_begun": {"begun": sqlkit.InJSON([]begunJSON{{ID: inHex(1), Seq: 100_001},
			{ID: inHex(2), Seq: 100_002}})},
		"failing":     failingParams(),
		"topics_kept": {"most_topics": int64(store.MaxTopics)}, "topic_history": topicParams("orders"),
		"flow":    flowParams(),
		"message": {"id": sqlkit.ID{1}}, "append": appendParams(store.Message{ID: store.ID{15: 1}, Topic: "orders"}),
		"appended": {"id": sqlkit.ID{1}}, "once": {"consumer": sqlkit.Name("c"), "id": sqlkit.ID{1}},
		"messages": {"limit": int64(10)}, "due_by_key": dueParams(r), "due_keyless": dueParams(r),
		"due_live": dueParams(r), "oldest_by_key": statsParams([]string{"orders"}, true),
	}
	all["flow"]["most"] = int64(100) // for more than the table has, to read all of it is best
	if _, ok := s.texts["sweep_inbox"]; ok {
		all["sweep_inbox"] = all["sweep"]
	}
	if _, ok := s.texts["held_keys"]; ok {
		all["held_keys"] = sqlkit.Params{"after": sqlkit.Name(""), "most_held": int64(dueHeld)}
		all["due_by_key"]["held"], all["oldest_by_key"]["held"] = sqlkit.Names{"a", "b"}, sqlkit.Names{"a", "b"}
	}
	statements := map[string][]Explained{}
	for name, p := range all {
		for _, st := range s.statements(name, "", p) {
			statements[name] = append(statements[name], Explained{st.Text, st.Args})
		}
	}
	r.StopOnDead, r.Topics = false, nil
	for _, st := range s.statements("due", "", dueParams(r)) {
		statements["due of all topics"] = append(statements["due of all topics"], Explained{st.Text, st.Args})
	}
	return statements
}

func inHex(id byte) string { return fmt.Sprintf("%032X", id) }

// Explained is a statement with its arguments.
type Explained struct {
	Text string
	Args []any
}

// Spoil makes a statement fail from now on.
func (s *Store) Spoil(name string) { s.texts[name] = "SELECT nothing FROM nowhere" }

// ExplainedDue returns the statement of Due.
func (s *Store) ExplainedDue(stopOnDead bool) Explained {
	st := s.statements("due", "", dueParams(store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 32,
		StopOnDead: stopOnDead}))[0]
	return Explained{st.Text, st.Args}
}

// ExplainedSearch returns the statements with which relays and health checks search for due
// messages, by name, in the form that they have after a first call.
func (s *Store) ExplainedSearch(ctx context.Context, stopOnDead bool, keys ...string) (map[string]Explained, error) {
	texts := map[string]sqlkit.Params{
		"due": dueParams(store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 32, StopOnDead: stopOnDead,
			Keys: keys}),
		"stats": statsParams([]string{"orders"}, stopOnDead),
	}
	texts["due_by_key"], texts["due_keyless"], texts["oldest_by_key"] = texts["due"], texts["due"], texts["stats"]
	if _, ok := s.texts["held_keys"]; ok {
		texts["held_keys"] = sqlkit.Params{"after": sqlkit.Name(""), "most_held": int64(dueHeld)}
	}
	held, err := s.held(ctx, "")
	if err != nil {
		return nil, err
	}
	if _, err := s.Stats(ctx, nil, stopOnDead); err != nil {
		return nil, err
	}
	search := map[string]Explained{}
	for name, p := range texts {
		s.edgeOf(p)
		p["held"] = held
		st := s.statements(name, "", p)[0]
		search[name] = Explained{st.Text, st.Args}
	}
	return search, nil
}
