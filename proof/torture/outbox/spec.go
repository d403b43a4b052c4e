//go:build linux

package main

import (
	"fmt"
	"hash/crc32"
	"os"
	"time"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/deliveries"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// A Spec tells a process what to do.
type Spec struct {
	nemesis.Spec
	Shards    int      // of a relay; 0: the number set last
	Receivers []string // addresses of their sockets
}

// A Timing sets the speed of a torture.
type Timing struct{ TTL time.Duration }

// Retry returns how often a relay tries to lead.
func (t Timing) Retry() time.Duration { return t.TTL / 6 }

// Call returns the timeout of a database call, and Deliver the timeout of a delivery.
func (t Timing) Call() time.Duration    { return t.TTL / 3 }
func (t Timing) Deliver() time.Duration { return t.TTL / 3 }

// Poll returns the poll interval of a relay without notifications, and Idle that of a relay with
// them, because a producer may be killed before it notifies.
func (t Timing) Poll() time.Duration { return t.TTL / 10 }
func (t Timing) Idle() time.Duration { return t.TTL / 2 }

// maxAttempts is so small that messages use it up when the receivers are down.
const maxAttempts = 10

// slack is the time added by calls, the watch's looks and a busy machine.
func (t Timing) slack() time.Duration { return t.Call() + 2*nemesis.LookEvery }

// rules returns the promises.
func (t Timing) rules() deliveries.Rules {
	within := t.TTL + t.Retry()
	return deliveries.Rules{MaxAttempts: maxAttempts, Within: within + t.slack(),
		Looks: t.Idle()*6/5 + t.Deliver() + t.slack(),
		// When the store failed, a relay may have got a lease without knowing it.
		Recovers: within + t.Call(), Begins: 2*t.Call() + 1500*time.Millisecond}
}

// These are the topics, and what happens to their messages.
const (
	plain  = "plain"
	flaky  = "flaky"  // its sink and its receiver fail more often than they succeed
	doomed = "doomed" // the receiver refuses it
	stuck  = "stuck"  // the receiver sometimes hangs, and the sink waits for it and ignores its context
)

// These are the application's tables. The change of an order has a number, and shows what was
// committed. A transaction that changes an order waits for the previous one, so the messages of one
// order are appended one at a time.
const (
	tableOfOrders  = "torture_orders"
	tableOfChanges = "torture_changes"
	tableOfEffects = "torture_effects"

	orders = 24
)

// schema returns the statements that create them.
func schema(d *nemesis.Door) (statements []string) {
	number := "bigint AUTO_INCREMENT PRIMARY KEY"
	switch {
	case d.Pool != nil:
		number = "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	case d.File:
		number = "INTEGER PRIMARY KEY AUTOINCREMENT"
	}
	statements = []string{
		"CREATE TABLE " + tableOfOrders + " (id varchar(20) PRIMARY KEY, version bigint NOT NULL)",
		"CREATE TABLE " + tableOfChanges + " (of_order varchar(20), version bigint, made_by varchar(80), messages int)",
		"CREATE TABLE " + tableOfEffects + " (id " + number + ", name varchar(200) NOT NULL)",
	}
	for i := range orders {
		statements = append(statements, fmt.Sprintf("INSERT INTO %s VALUES ('o%d', 0)", tableOfOrders, i))
	}
	return statements
}

// A message's payload is its name, which identifies it everywhere.
func textOf(m torture.Message) string {
	return fmt.Sprintf("%s %d %s %d %t", m.Order, m.Version, m.By, m.Index, m.Keyed)
}

func parse(text string) (m torture.Message, err error) {
	_, err = fmt.Sscanf(text, "%s %d %s %d %t", &m.Order, &m.Version, &m.By, &m.Index, &m.Keyed)
	return m, err
}

// outboxOf returns the outbox behind a door.
func outboxOf(d *nemesis.Door) *outbox.Outbox {
	switch {
	case d.Pool != nil:
		return pgxoutbox.New(d.Pool, outbox.Options{})
	case d.File:
		return outbox.SQLite(d.DB, outbox.Options{})
	default:
		return outbox.MySQL(d.DB, outbox.Options{})
	}
}

// txOf converts a transaction for the outbox.
func txOf(tx nemesis.Tx) outbox.Tx {
	if tx.Pgx != nil {
		return pgxoutbox.Tx(tx.Pgx)
	}
	return outbox.SQLTx(tx.SQL)
}

// socketOf returns the address of a receiver in the abstract socket namespace. It is free as soon
// as the process is gone.
func socketOf(dir, place string) string {
	return fmt.Sprintf("@torture-%d-%08x-%s", os.Getpid(), crc32.ChecksumIEEE([]byte(dir)), place)
}
