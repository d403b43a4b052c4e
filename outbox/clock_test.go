//go:build linux

package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// The clock of the relay's host is an hour ahead of the database's clock, or an hour behind it.
// Only the database's clock counts: a message is delivered immediately, a retry comes after its
// back-off, later messages of its key wait for it, and messages become dead or are deleted at the
// usual time.
//
// Fails when a time of the host's clock reaches the database, or when a time of the database's
// clock is compared with the host's clock.
func TestClockOfTheHostIsAnHourOff(t *testing.T) {
	t.Parallel()
	testkit.Long(t) // the test starts two servers
	for name, ahead := range map[string]time.Duration{"behind": time.Hour, "ahead": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sqltest.Postgres(t, sqltest.Options{ClockAhead: ahead})
			pool, err := pgxpool.New(t.Context(), server.DSN("", "", ""))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			var now time.Time
			err = pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now)
			if off := time.Until(now) - ahead; err != nil || off.Abs() > time.Minute {
				t.Fatalf("the database's clock shows %v, want a clock that is %v ahead: %v", now, ahead, err)
			}
			clockIsOff(t, pool)
		})
	}
}

func clockIsOff(t *testing.T, pool *pgxpool.Pool) {
	const wait, attempts = time.Second, 3
	box := pgxoutbox.New(pool, outbox.Options{})
	t.Cleanup(func() { box.Close() })
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	sink := &times{at: map[string][]time.Time{}}
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{DefaultSink: sink, Logger: slog.New(slog.DiscardHandler),
		Retry:     outbox.Retry{MaxAttempts: attempts, FirstWait: wait, MaxWait: wait},
		Retention: outbox.Retention{Dispatched: 30 * time.Minute, Dead: 30 * time.Minute}, SweepInterval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	// The relay leads and has nothing to do.
	first := commit(t, box, pool, "first")
	testkit.Eventually(t, testkit.Patience, "the relay delivers", func() bool { return len(sink.of("first")) == 1 })

	committed := time.Now()
	ids := commit(t, box, pool, "good", "retried", "after retried", "dead", "after dead")
	testkit.Eventually(t, testkit.Patience, "all are delivered or dead", func() bool {
		return len(sink.of("after retried")) > 0 && len(sink.of("after dead")) > 0
	})
	for _, what := range []string{"good", "retried", "dead"} {
		// A poll would come after IdleDelay, and a retry after half of wait.
		if took := sink.of(what)[0].Sub(committed); took > 10*time.Second {
			t.Errorf("%s: delivered after %v", what, took)
		}
	}
	for what, want := range map[string]int{"good": 1, "retried": 2, "dead": attempts, "after retried": 1,
		"after dead": 1} {
		at := sink.of(what)
		if len(at) != want {
			t.Errorf("%s: %d attempts, want %d", what, len(at), want)
		}
		for i := 1; i < len(at); i++ {
			// A wait is shortened by up to half.
			if gap := at[i].Sub(at[i-1]); gap < wait/2 || gap > wait+10*time.Second {
				t.Errorf("%s: attempt %d came %v after the previous one", what, i+1, gap)
			}
		}
	}
	for _, what := range []string{"retried", "dead"} {
		if last := sink.of(what); sink.of("after " + what)[0].Before(last[len(last)-1]) {
			t.Errorf("the message after %q came before its last attempt", what)
		}
	}
	if age := sink.oddestAge(); age < 0 || age > testkit.Patience {
		t.Errorf("a sink got a message whose age was given as %v", age)
	}
	// A sweep deletes only rows that are too old by the database's clock.
	if _, err := pool.Exec(t.Context(), "UPDATE "+outbox.DefaultTableName+
		" SET finished_at = clock_timestamp() - interval '31 minutes' WHERE key = 'first'"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "a sweep deletes the first message", func() bool {
		_, _, err := box.Message(t.Context(), first[0])
		return errors.Is(err, outbox.ErrNoMessage)
	})
	for i, want := range []outbox.State{outbox.StateDispatched, outbox.StateDispatched, outbox.StateDispatched,
		outbox.StateDead, outbox.StateDispatched} {
		m, tried, err := box.Message(t.Context(), ids[i])
		if err != nil || m.State != want || len(tried) != m.Attempts {
			t.Errorf("message %d: %+v, attempts %+v, %v; want %v", i, m, tried, err, want)
		}
	}
}

// commit appends and commits messages with the given texts. The message "after x" has the same key
// as "x".
func commit(t *testing.T, box *outbox.Outbox, pool *pgxpool.Pool, texts ...string) (ids []outbox.ID) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		ids = append(ids, outbox.RandomID())
		key := strings.TrimPrefix(text, "after ")
		_, err := box.Append(t.Context(), pgxoutbox.Tx(tx), outbox.Message{ID: ids[len(ids)-1], Topic: "t", Key: key,
			Payload: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	box.Notify()
	return ids
}

// times is a sink that records when it is called. The text of a message decides whether its
// delivery fails once, always or never.
type times struct {
	mu   sync.Mutex
	at   map[string][]time.Time
	ages []time.Duration
}

// Deliver implements outbox.Sink.
func (s *times) Deliver(_ context.Context, d outbox.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := string(d.Payload)
	s.at[text] = append(s.at[text], time.Now())
	s.ages = append(s.ages, d.Age)
	if text == "dead" || text == "retried" && d.Attempt == 1 {
		return errReceiver
	}
	return nil
}

func (s *times) of(text string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at[text])
}

// oddestAge returns a negative age of a delivery if there was one. Otherwise, it returns the
// greatest age.
func (s *times) oddestAge() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if least := slices.Min(s.ages); least < 0 {
		return least
	}
	return slices.Max(s.ages)
}
