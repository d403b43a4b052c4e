package sqlstore_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// BenchmarkBatch appends a batch in one transaction, reads the batch with Due, and marks its
// messages.
func BenchmarkBatch(b *testing.B) {
	for _, way := range databases {
		b.Run(way, func(b *testing.B) {
			s := ways[way](b)
			box, db := s.migrated(b)
			const batch = 100
			n := uint64(0)
			for b.Loop() {
				tx, err := db.BeginTx(b.Context(), nil)
				if err != nil {
					b.Fatal(err)
				}
				for range batch {
					n++
					m := store.Message{Topic: "orders", Key: fmt.Sprint(n % 1000), Payload: make([]byte, 200)}
					binary.BigEndian.PutUint64(m.ID[:], n)
					if _, _, err := box.Append(b.Context(), sqlTx{tx}, m); err != nil {
						b.Fatal(err)
					}
				}
				if err := tx.Commit(); err != nil {
					b.Fatal(err)
				}
				due, err := box.Due(b.Context(), store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1},
					Limit: batch, Topics: []string{"orders"}})
				if err != nil || len(due.Messages) != batch {
					b.Fatal(len(due.Messages), err)
				}
				results := make([]store.Result, batch)
				for i, m := range due.Messages {
					results[i] = store.Result{ID: m.ID, Seq: m.Seq, Outcome: store.OutcomeOK}
				}
				marked, err := box.Mark(b.Context(), "node", results)
				if err != nil || len(marked.Counted) != batch {
					b.Fatal(len(marked.Counted), err)
				}
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
