//go:build linux && amd64

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/linear"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

const (
	// clientsPerDoor is the number of clients that share a connection to the store.
	clientsPerDoor = 3
	// round is how long a name is used, because checking a long history would take too long.
	round = 2 * time.Second
)

// A client calls the store directly, with leases so short that it often loses them, and logs the
// answers.
type client struct {
	number  int
	door    *door
	log     *torture.Log
	wait    time.Duration
	ids     *atomic.Int64
	repeats bool // the driver repeats a call whose connection broke, as for a Cluster
}

func runClients(spec Spec, log *torture.Log) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			stop() // there is only one command
		}
	}()
	var all sync.WaitGroup
	var ids atomic.Int64
	for i, s := range spec.Store {
		d, err := open(s, spec.Timing)
		if err != nil {
			return err
		}
		defer d.close()
		for k := range clientsPerDoor {
			c := &client{number: i*clientsPerDoor + k, door: d, log: log, wait: spec.Timing.StoreTimeout, ids: &ids,
				repeats: s.Kind == "cluster"}
			all.Go(func() {
				for ctx.Err() == nil {
					c.turn()
				}
			})
		}
	}
	all.Wait()
	return nil
}

func sleep(least, most time.Duration) { time.Sleep(least + mrand.N(most-least)) }

// turn takes one lease through its life.
func (c *client) turn() {
	number := nemesis.Mono() / int64(round)
	g := driver.Grant{Name: fmt.Sprint("torture:", number), Slots: 1 + int(number)%linear.Slots, Token: rand.Text(),
		Slot: driver.AnySlot}
	switch result := c.acquire(&g); {
	case result == "unknown" && mrand.IntN(2) == 0:
		sleep(50*time.Millisecond, 150*time.Millisecond)
		if c.acquire(&g) != "ok" { // the same token gets the same grant
			c.giveUp(g)
			return
		}
	case result == "unknown":
		c.giveUp(g)
		return
	case result != "ok":
		sleep(10*time.Millisecond, 40*time.Millisecond)
		return
	}
	c.hold()
	for mrand.IntN(2) == 0 {
		c.extend(g)
		c.hold()
	}
	if mrand.IntN(6) == 0 {
		return // it does not release
	}
	c.release(g)
	if mrand.IntN(6) == 0 { // as if it did not know the result
		sleep(0, 20*time.Millisecond)
		c.extend(g)
		c.release(g)
	}
}

// giveUp releases what the store may have granted, and waits. Calls over a broken network return at
// once, and each call with an unknown outcome doubles the number of histories to check.
func (c *client) giveUp(g driver.Grant) {
	c.release(g)
	sleep(300*time.Millisecond, 600*time.Millisecond)
}

// hold works for a while, sometimes for longer than the lease. Nothing else shows whether a store
// compares tokens.
func (c *client) hold() {
	if mrand.IntN(5) == 0 {
		sleep(clientTTL, clientTTL*3/2)
		return
	}
	sleep(0, 50*time.Millisecond)
}

func (c *client) acquire(g *driver.Grant) string {
	return c.call("acquire", g, func(ctx context.Context) (string, error) {
		got, err := c.door.lock.TryAcquire(ctx, driver.Request{Name: g.Name, Slots: g.Slots, Token: g.Token,
			TTL: clientTTL, Holder: dlock.Holder{Host: "client"}})
		if err == nil {
			g.Slot = got.Slot
			return "ok", nil
		}
		if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
			if no.Reason != dlock.ReasonFull {
				return string(no.Reason), nil // the error does not name slots
			}
			return "no", nil
		}
		return "", err
	})
}

func (c *client) extend(g driver.Grant) {
	c.call("extend", &g, func(ctx context.Context) (string, error) {
		return outcome(c.door.lock.Extend(ctx, clientTTL, g))
	})
}

func (c *client) release(g driver.Grant) {
	c.call("release", &g, func(ctx context.Context) (string, error) { return outcome(c.door.lock.Release(ctx, g)) })
}

func outcome(results []driver.Result, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return results[0].Outcome.String(), nil
}

func (c *client) call(what string, g *driver.Grant, do func(ctx context.Context) (string, error)) string {
	ctx, cancel := context.WithTimeout(context.Background(), c.wait)
	defer cancel()
	op := torture.Op{Client: c.number, ID: c.ids.Add(1), Op: what, Name: g.Name, Slots: g.Slots, Token: g.Token,
		Repeats: c.repeats, Call: nemesis.Mono()}
	result, err := do(ctx)
	op.Return, op.Result, op.Slot = nemesis.Mono(), result, max(0, g.Slot)
	if err != nil {
		op.Result = "unknown"
	}
	switch op.Result {
	case "ok", "no", "lost", "unknown":
		c.log.Write(torture.Line{Kind: torture.Locked, Op: &op})
	}
	return op.Result
}
