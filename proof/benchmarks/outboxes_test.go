package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// TestMain lets this program run as a relay too: see failOver.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childFlag {
		exit(child(os.Args[2]))
	}
	os.Exit(m.Run())
}

// Each fleet delivers messages appended before and after its start. Its database records them, and
// older messages do not count. A message is appended in the caller's transaction.
//
// Fails when a side loses messages, counts in another database, counts old messages, or appends
// outside the transaction.
func TestOutboxFleets(t *testing.T) {
	sqltest.RequirePostgres(t)
	redistest.Require(t)
	l := startLab(t)
	ours, hot, theirs, forwarded, queue := l.relays(), l.relays(), l.watermills(), l.watermills(), l.watermills()
	ours.history, theirs.history = 3, 3
	hot.keys, hot.hot = 2, true
	theirs.poll, forwarded.forwarder, queue.queue = 10*time.Millisecond, true, true
	inTx := map[string]func(fleet) func(pgx.Tx) error{"ours": appendOurs, "watermill": appendWatermill,
		"forwarder": appendWatermill, "queue": appendWatermill, "River": appendRiver}
	for name, s := range map[string]side{"ours": ours.fleet, "hot": hot.fleet, "watermill": theirs.fleet,
		"forwarder": forwarded.fleet, "queue": queue.fleet,
		"River": riverSide{postgres: l.postgres, config: quick, history: 3}.fleet} {
		const before, after = 5, 3
		come := newArrival(before + after)
		f, err := s(1, 4, come.come)
		if err != nil {
			t.Fatal(name, err)
		}
		if insert := inTx[name]; insert != nil {
			tx, err := inDatabase(f).admin.Begin(ctx)
			if err == nil {
				err = insert(f)(tx)
			}
			if err == nil {
				err = tx.Rollback(ctx)
			}
			if err != nil {
				t.Error(name, err)
			}
		}
		for i, due := range [][]time.Time{atOnceDue(before), atOnceDue(1), atOnceDue(after - 1)} {
			if err := f.queue(due); err != nil {
				t.Error(name, err)
			}
			if i == 0 {
				if err := f.start(); err != nil {
					t.Error(name, err)
				}
			}
		}
		select {
		case <-come.all:
		case <-time.After(longestLate):
			t.Errorf("%s: %d of %d messages were delivered", name, come.n.Load(), before+after)
		}
		err = testkit.Poll(longestLate, "the database of "+name, func(context.Context) error {
			done, err := f.done()
			if err == nil && done != before+after {
				err = fmt.Errorf("it has %d of %d messages", done, before+after)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := f.close(); err != nil {
			t.Error(name, err)
		}
	}
}

// Fails when a message that overtakes another with its key goes unnoticed, or when one with another
// key is reported.
func TestKeyOrder(t *testing.T) {
	o := keyOrder{last: map[string]int64{}}
	had := func(key string, seq int64) { o.had(outbox.Delivery{Message: outbox.Message{Key: key}, Seq: seq}) }
	had("a", 5)
	had("b", 4)
	had("", 3)
	had("", 2)
	had("a", 6)
	if err := o.broken(); err != nil {
		t.Error(err)
	}
	had("b", 3)
	if err := o.broken(); err == nil || !strings.HasPrefix(err.Error(), "b: ") {
		t.Errorf("the order of b is broken: %v", err)
	}
}

// Fails when it measures before the delivering relay is dead, or kills another one. A failover
// takes longer than the pause between heartbeats, and at most TTL plus RetryInterval and a margin
// for a busy machine.
func TestFailOver(t *testing.T) {
	sqltest.RequirePostgres(t)
	redistest.Require(t)
	const ttl = 3 * time.Second
	r, err := failsOver("ours", startLab(t).relays(), ttl).Open()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := r.measure(0)
		if err != nil {
			t.Fatal(err)
		}
		if least, most := (ttl / 3).Seconds(), (ttl + testkit.Patience).Seconds(); s.Value < least || s.Value > most {
			t.Errorf("another relay has delivered after %.2f s, want %.2f to %.2f", s.Value, least, most)
		}
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// Fails when River's clients have separate limits or none.
func TestBridge(t *testing.T) {
	sqltest.RequirePostgres(t)
	redistest.Require(t)
	l := startLab(t)
	const window = 2 * time.Second
	c := slotsOf("River", riverSide{postgres: l.postgres, redis: l.redis, limit: 3}.fleet,
		slotShape{limit: 3, workers: 2, places: 4}, window)
	r, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.measure(window) // fails if there are more than 3
	if err != nil {
		t.Fatal(err)
	}
	if s.Extra["most at once"] != 3 {
		t.Errorf("%.0f jobs went on at once, want 3", s.Extra["most at once"])
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}
