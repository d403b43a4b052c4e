package sqlstore_test

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// The clock of a database was an hour ahead when a message failed for the first time, and is then
// set back. FailingSince moves to the next failing attempt and does not stay in the future for that
// hour.
//
// Fails when an instant in the future is kept, so that the message is tried for an hour longer, or
// has been failing for a negative time.
func TestInstantOfAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	for kind, d := range dialects {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := d.of(t)
			made, _ := s.migrated(t)
			d.fill(t, s, "m", "'a'", "pending", 1, d.now, 1)
			s.exec(t, "UPDATE tickslot_outbox SET failing_since = "+d.later)
			due, err := made.Due(t.Context(), store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 1})
			if err != nil || len(due.Messages) != 1 || due.Messages[0].Failing != 0 {
				t.Fatalf("%+v, %v", due, err)
			}
			m := due.Messages[0]
			marked, err := made.Mark(t.Context(), "n", []store.Result{{ID: m.ID, Seq: m.Seq, Attempts: m.Attempts,
				Outcome: store.OutcomeTransient, MostLate: time.Hour}})
			if err != nil || len(marked.Counted) != 1 {
				t.Fatalf("%+v, %v", marked, err)
			}
			topics, err := made.Failing(t.Context())
			if err != nil || len(topics) != 1 || topics[0].For > time.Minute {
				t.Fatalf("%+v, %v", topics, err)
			}
			if off := time.Until(topics[0].Since).Abs(); off > time.Minute {
				t.Errorf("the topic has been failing since %v, want since now", topics[0].Since)
			}
		})
	}
}
