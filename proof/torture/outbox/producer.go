//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// backlog is how many messages may be pending before producers wait.
const backlog = 120

// A producer changes orders unless too many messages wait.
type producer struct {
	spec Spec
	door *nemesis.Door
	box  *outbox.Outbox
	log  *torture.Log
	n    int // number of transactions
}

func runProducer(spec Spec, log *torture.Log) error {
	d, err := nemesis.Open(spec.Ways[0])
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, stop := nemesis.UntilTold()
	defer stop()
	p := &producer{spec: spec, door: d, box: outboxOf(d), log: log}
	for ctx.Err() == nil {
		if p.mayGoOn() {
			p.n++
			p.transaction(fmt.Sprintf("%s-%d", spec.Name, p.n))
		}
		time.Sleep(rand.N(40 * time.Millisecond)) // a pause between transactions
	}
	return nil
}

func (p *producer) mayGoOn() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var n int
	err := p.door.DB.QueryRowContext(ctx, "SELECT count(*) FROM "+tableOfMessages+" WHERE state = 'pending'").Scan(&n)
	return err == nil && n < backlog
}

// transaction changes an order and appends messages, all or none, and logs the outcome.
func (p *producer) transaction(by string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	began := nemesis.Mono()
	m := torture.Message{Order: fmt.Sprint("o", rand.IntN(orders)), By: by, Count: 1 + rand.IntN(4)}
	m.Outcome = func() string {
		tx, err := p.door.Begin(ctx, p.n%2 == 0)
		if err != nil {
			return torture.RolledBack
		}
		if m.Version, err = p.change(ctx, tx, m); err != nil || rand.IntN(8) == 0 {
			tx.Rollback(ctx)
			return torture.RolledBack
		}
		if tx.Commit(ctx) != nil {
			return torture.Unknown
		}
		return torture.Committed
	}()
	if m.Outcome == torture.Committed && rand.IntN(10) > 0 {
		p.box.Notify()
	}
	p.log.Write(torture.Line{Kind: torture.Appended, First: began, Message: &m})
}

func (p *producer) change(ctx context.Context, tx nemesis.Tx, m torture.Message) (version int64, err error) {
	_, err = tx.Exec(ctx, fmt.Sprintf("UPDATE %s SET version = version + 1 WHERE id = '%s'", tableOfOrders, m.Order))
	if err != nil {
		return 0, err
	}
	version, err = tx.Int(ctx, fmt.Sprintf("SELECT version FROM %s WHERE id = '%s'", tableOfOrders, m.Order))
	if err != nil {
		return 0, err
	}
	m.Version = version
	_, err = tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s VALUES ('%s', %d, '%s', %d)", tableOfChanges, m.Order, version,
		m.By, m.Count))
	for i := 0; i < m.Count && err == nil; i++ {
		m.Index, m.Keyed = i, rand.IntN(6) > 0
		message := outbox.Message{ID: outbox.NewID(m.Order+" "+m.By, uint64(version), i), Topic: plain,
			Payload: []byte(textOf(m))}
		switch rand.IntN(14) {
		case 0, 1, 2, 3:
			message.Topic = flaky
		case 4:
			message.Topic = doomed
		case 5, 6:
			message.Topic = stuck
		}
		if m.Keyed {
			message.Key = m.Order
		}
		_, err = p.box.Append(ctx, txOf(tx), message)
	}
	return version, err
}
