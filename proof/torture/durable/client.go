//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// A client triggers runs unless too many wait.
type client struct {
	number int
	door   *nemesis.Door
	store  *durable.Store
	log    *torture.Log
}

func runClients(spec nemesis.Spec, log *torture.Log) error {
	ctx, stop := nemesis.UntilTold()
	defer stop()
	var all sync.WaitGroup
	for i, way := range spec.Ways {
		d, err := nemesis.Open(way)
		if err != nil {
			return err
		}
		defer d.Close()
		c := &client{number: i, door: d, store: storeOf(d), log: log}
		all.Go(func() {
			for n := 0; ctx.Err() == nil; {
				n = c.round(n)
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	all.Wait()
	return nil
}

// storeOf returns the durable store behind a door.
func storeOf(d *nemesis.Door) *durable.Store {
	if d.Pool != nil {
		return pgxdurable.New(d.Pool, durable.Options{})
	}
	return durable.SQLite(d.DB, durable.Options{})
}

// round triggers runs of each handler with few waiting runs. It returns n plus the number of
// transactions.
func (c *client) round(n int) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	handlers, err := c.store.Handlers(ctx)
	if err != nil {
		return n
	}
	for _, w := range works {
		for _, h := range handlers {
			if h.Name == w.name && h.Queued < w.backlog {
				c.transaction(w, fmt.Sprintf("%d-%d", c.number, n))
				n++
			}
		}
	}
	return n
}

// transaction triggers some runs, all or none, and logs the outcome.
func (c *client) transaction(w work, key string) {
	began := nemesis.Mono()
	runs := 1 + rand.IntN(w.batch)
	rollback := rand.IntN(8) == 0
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	outcome := func() string {
		tx, err := c.door.Begin(ctx, (c.number+runs)%2 == 0)
		if err != nil {
			return torture.RolledBack
		}
		of := durable.SQLTx(tx.SQL)
		if tx.Pgx != nil {
			of = pgxdurable.Tx(tx.Pgx)
		}
		for i := range runs {
			k := fmt.Sprintf("%s/%d", key, i)
			if _, err = c.store.Trigger(ctx, of, w.name, []byte(k), durable.TriggerOptions{
				Key: k, Priority: durable.Priority(rand.IntN(3) - 1),
				RunIn: rand.N(100 * time.Millisecond)}); err != nil {
				break
			}
		}
		if err != nil || rollback {
			tx.Rollback(ctx)
			return torture.RolledBack
		}
		if tx.Commit(ctx) != nil {
			return torture.Unknown
		}
		return torture.Committed
	}()
	c.log.Write(torture.Line{Kind: torture.Triggered, First: began,
		Work: &torture.Work{Handler: w.name, Key: key, Runs: runs, Outcome: outcome}})
}
