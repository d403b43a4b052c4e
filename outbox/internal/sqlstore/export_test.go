package sqlstore

import (
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Explained returns the statements of calls that a relay makes all the time, by file.
func (s *Store) Explained() map[string][]Explained {
	r := store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 32, Topics: []string{"orders", "mails"},
		StopOnDead: true, Keys: []string{"busy", "b2"}, IDs: []int64{7}}
	all := map[string]params{
		"due": dueParams(r), "layout": {}, "stats": statsParams([]string{"orders"}, true),
		"sweep": {"dispatched": int64(9e10), "dead": int64(9e10), "inbox_kept": int64(9e10), "limit": int64(100)},
		"mark": {"results": list([]resultJSON{{Seq: 100_001, Outcome: "success"}, {Seq: 100_002, Outcome: "transient"},
			{Seq: 100_003, Outcome: "success"}})},
		"message": {"id": store.ID{1}}, "append": appendParams(store.Message{ID: store.ID{15: 1}, Topic: "orders"}),
		"appended": {"id": store.ID{1}}, "once": {"consumer": name("c"), "id": store.ID{1}},
		"messages": {"limit": int64(10)},
	}
	if _, ok := s.texts["sweep_inbox"]; ok {
		all["sweep_inbox"] = all["sweep"]
	}
	statements := map[string][]Explained{}
	for file, p := range all {
		for _, st := range s.statements(file, "", p)() {
			statements[file] = append(statements[file], Explained{st.text, st.args})
		}
	}
	r.StopOnDead, r.Topics = false, nil
	for _, st := range s.statements("due", "", dueParams(r))() {
		statements["due of all topics"] = append(statements["due of all topics"], Explained{st.text, st.args})
	}
	return statements
}

// Explained is a statement with its arguments.
type Explained struct {
	Text string
	Args []any
}

// ExplainedDue is the statement of Due, and Planned what comes before it in its transaction.
func (s *Store) ExplainedDue(stopOnDead bool) Explained {
	st := s.statements("due", "", dueParams(store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 32,
		StopOnDead: stopOnDead}))()[0]
	return Explained{st.text, st.args}
}

// Planned is what Postgres is told before each transaction.
const Planned = planned
