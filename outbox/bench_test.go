package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// relayed runs a relay until the benchmark ends.
func relayed(b *testing.B, box *outbox.Outbox, config outbox.RelayConfig) {
	b.Helper()
	config.Logger = slog.New(slog.DiscardHandler)
	r, err := outbox.NewRelay(box, config)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	for r.Started() != nil {
		time.Sleep(time.Millisecond)
	}
}

func benchEach(b *testing.B, bench func(b *testing.B, p place, box *outbox.Outbox)) {
	for name, open := range map[string]func(testing.TB) place{"SQLite": onSQLite, "Postgres": onPostgres,
		"MariaDB": onMariaDB} {
		b.Run(name, func(b *testing.B) {
			p := open(b)
			box := p.open()
			b.Cleanup(func() { box.Close() })
			if err := box.Migrate(b.Context()); err != nil {
				b.Fatal(err)
			}
			bench(b, p, box)
		})
	}
}

// appendAll appends n messages with 1,000 keys, a hundred per transaction.
func appendAll(b *testing.B, p place, box *outbox.Outbox, n int) {
	b.Helper()
	for from := 0; from < n; from += 100 {
		tx, commit, _ := p.begin(b)
		for i := from; i < min(from+100, n); i++ {
			if _, err := box.Append(b.Context(), tx, outbox.Message{ID: outbox.RandomID(), Topic: "t",
				Key: fmt.Sprint(i % 1000), Payload: make([]byte, 200)}); err != nil {
				b.Fatal(err)
			}
		}
		if err := commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRelay delivers waiting messages to a sink that does nothing.
func BenchmarkRelay(b *testing.B) {
	for _, batch := range []int{outbox.DefaultBatchSize, 200} {
		b.Run(fmt.Sprint("batch ", batch), func(b *testing.B) {
			benchEach(b, func(b *testing.B, p place, box *outbox.Outbox) {
				appendAll(b, p, box, b.N)
				var n atomic.Int64
				done := make(chan struct{})
				b.ResetTimer()
				relayed(b, box, outbox.RelayConfig{BatchSize: batch, DefaultSink: outbox.SinkFunc(
					func(context.Context, outbox.Delivery) error {
						if n.Add(1) == int64(b.N) {
							close(done)
						}
						return nil
					})})
				<-done
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
				b.StopTimer()
			})
		})
	}
}

// BenchmarkCommitToDeliver appends one message after the other, and waits until each is delivered.
func BenchmarkCommitToDeliver(b *testing.B) {
	benchEach(b, func(b *testing.B, p place, box *outbox.Outbox) {
		delivered := make(chan struct{})
		relayed(b, box, outbox.RelayConfig{DefaultSink: outbox.SinkFunc(
			func(context.Context, outbox.Delivery) error { delivered <- struct{}{}; return nil })})
		var took []time.Duration
		for i := range b.N + 1 {
			tx, commit, _ := p.begin(b)
			if _, err := box.Append(b.Context(), tx, outbox.Message{ID: outbox.RandomID(), Topic: "t"}); err != nil {
				b.Fatal(err)
			}
			if err := commit(); err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			box.Notify()
			<-delivered
			if i > 0 { // the first message waits for the election
				took = append(took, time.Since(began))
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	})
}

// BenchmarkAppend appends ten messages per transaction.
func BenchmarkAppend(b *testing.B) {
	benchEach(b, func(b *testing.B, p place, box *outbox.Outbox) {
		tx, commit, _ := p.begin(b)
		for i := range b.N {
			if i%10 == 9 {
				if err := commit(); err != nil {
					b.Fatal(err)
				}
				tx, commit, _ = p.begin(b)
			}
			if _, err := box.Append(b.Context(), tx, outbox.Message{ID: outbox.RandomID(), Topic: "t",
				Payload: make([]byte, 200)}); err != nil {
				b.Fatal(err)
			}
		}
		if err := commit(); err != nil {
			b.Fatal(err)
		}
	})
}
