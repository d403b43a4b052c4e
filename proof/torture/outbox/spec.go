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

// A Spec is what a process has to know.
type Spec struct {
	nemesis.Spec
	Shards    int      // of a relay; 0: what the last one has set
	Receivers []string // the addresses of their sockets
}

// A Timing is how quick a torture is.
type Timing struct{ TTL time.Duration }

// Retry is how often a relay tries to lead.
func (t Timing) Retry() time.Duration { return t.TTL / 6 }

// Call is how long a call to the database may take, and Deliver how long a delivery.
func (t Timing) Call() time.Duration    { return t.TTL / 3 }
func (t Timing) Deliver() time.Duration { return t.TTL / 3 }

// Poll is how often a relay looks that is told nothing, and Idle how often one that would be told:
// a producer may be killed before it tells.
func (t Timing) Poll() time.Duration { return t.TTL / 10 }
func (t Timing) Idle() time.Duration { return t.TTL / 2 }

// maxAttempts are used up now and then, when the receivers are away.
const maxAttempts = 10

// slack is what calls, the looks of the watch and a busy machine add.
func (t Timing) slack() time.Duration { return t.Call() + 2*nemesis.LookEvery }

// rules are what was promised.
func (t Timing) rules() deliveries.Rules {
	within := t.TTL + t.Retry()
	return deliveries.Rules{MaxAttempts: maxAttempts, Within: within + t.slack(),
		Looks: t.Idle()*6/5 + t.Deliver() + t.slack(),
		// Whoever led when the store went away may have a lease of which it does not know.
		Recovers: within + t.Call(), Begins: 2*t.Call() + 1500*time.Millisecond}
}

// The topics, and what becomes of their messages.
const (
	plain  = "plain"
	flaky  = "flaky"  // its sink and its receiver fail more often than not
	doomed = "doomed" // the receiver refuses it
	stuck  = "stuck"  // the receiver hangs now and then, and the sink waits for it, whatever its context says
)

// The application's tables. The change of an order has a number, and is the truth about what was
// committed. Whoever changes an order waits for the transaction that does so before, so the
// messages of one order are appended one after the other.
const (
	tableOfOrders  = "torture_orders"
	tableOfChanges = "torture_changes"
	tableOfEffects = "torture_effects"

	orders = 24
)

// schema creates them.
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

// A message's payload is its name, from which everybody knows what it is.
func textOf(m torture.Message) string {
	return fmt.Sprintf("%s %d %s %d %t", m.Order, m.Version, m.By, m.Index, m.Keyed)
}

func parse(text string) (m torture.Message, err error) {
	_, err = fmt.Sscanf(text, "%s %d %s %d %t", &m.Order, &m.Version, &m.By, &m.Index, &m.Keyed)
	return m, err
}

// outboxOf returns the outbox that a door leads to.
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

// txOf returns a transaction as the outbox takes it.
func txOf(tx nemesis.Tx) outbox.Tx {
	if tx.Pgx != nil {
		return pgxoutbox.Tx(tx.Pgx)
	}
	return outbox.SQLTx(tx.SQL)
}

// socketOf is the address of a receiver, in the name space of the system: it is free again as soon
// as its process is gone.
func socketOf(dir, place string) string {
	return fmt.Sprintf("@torture-%d-%08x-%s", os.Getpid(), crc32.ChecksumIEEE([]byte(dir)), place)
}
