package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// A report is the output of -json. The receiver counted all but the first two numbers.
type report struct {
	Orders     int `json:"orders"`
	Messages   int `json:"messages"`
	Deliveries int `json:"deliveries"`
	Effects    int `json:"effects"` // invoices
	Lost       int `json:"lost"`    // orders without an invoice
	Doubled    int `json:"doubled"` // invoices beyond the first for an order
	Kills      int `json:"kills"`
}

const kills = 3

// play starts a shop, kills it when it has committed orders that are not delivered, and starts
// another one. It repeats this a few times. When it returns, no process and no file is left.
func play(ctx context.Context, asJSON bool) (err error) {
	folder, err := os.MkdirTemp("", "tickslot-outbox-")
	if err != nil {
		return err
	}
	ctx, end := context.WithTimeoutCause(ctx, 40*time.Second, errors.New("the play takes too long"))
	var shops []*exec.Cmd
	defer func() {
		end()
		for _, s := range shops {
			_ = s.Wait() // reaps the last one and the killed ones
		}
		err = errors.Join(err, os.RemoveAll(folder))
	}()
	s, err := openShop(ctx, folder)
	if err != nil {
		return err
	}
	defer s.db.Close()
	b, err := openBilling(ctx, folder)
	if err != nil {
		return err
	}
	defer b.db.Close()
	began := time.Now()
	tell := func(format string, args ...any) {
		fmt.Printf("%5.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}

	r := report{}
	for range kills {
		shop, err := start(ctx, folder)
		if err != nil {
			return err
		}
		shops = append(shops, shop)
		tell("a shop takes orders, and delivers their messages")
		last := r.Effects
		if err := await(ctx, func() (bool, error) {
			err := r.count(ctx, s.db, b.db)
			return r.Effects >= last+30 && r.Lost > 0, err
		}); err != nil {
			return err
		}
		if err := shop.Process.Kill(); err != nil {
			return err
		}
		_ = shop.Wait()
		shops = shops[:len(shops)-1]
		r.Kills++
		if err := r.count(ctx, s.db, b.db); err != nil {
			return err
		}
		tell("kill -9 %d: %d orders are committed, %d of them have no invoice", shop.Process.Pid, r.Orders, r.Lost)
	}
	shop, err := start(ctx, folder, "-closed")
	if err != nil {
		return err
	}
	shops = append(shops, shop)
	tell("the next one only delivers what is left")
	if err := await(ctx, func() (bool, error) {
		pending, err := s.box.Messages(ctx, outbox.Filter{State: outbox.StatePending}, 1)
		return len(pending) == 0, err
	}); err != nil {
		return err
	}
	if err := r.count(ctx, s.db, b.db); err != nil {
		return err
	}
	tell("%d orders, %d deliveries, %d invoices: %d lost, %d doubled", r.Orders, r.Deliveries, r.Effects, r.Lost,
		r.Doubled)
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	return nil
}

// count fills in the report from both databases.
func (r *report) count(ctx context.Context, shop, billing *sql.DB) error {
	var invoiced int
	err := errors.Join(
		shop.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM tickslot_outbox)").
			Scan(&r.Orders, &r.Messages),
		billing.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM deliveries), count(*), count(DISTINCT order_id)
			FROM invoices`).Scan(&r.Deliveries, &r.Effects, &invoiced))
	r.Lost, r.Doubled = r.Orders-invoiced, r.Effects-invoiced
	return err
}

// start starts this program as a shop. The shop ends with ctx, or when this process ends, which
// closes the shop's standard input.
func start(ctx context.Context, folder string, more ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := exec.CommandContext(ctx, self, append([]string{"-played", "-folder", folder}, more...)...)
	s.Stderr = os.Stderr
	in, err := s.StdinPipe()
	if err != nil {
		return nil, err
	}
	s.Cancel = in.Close            // stops the shop cleanly
	s.WaitDelay = 10 * time.Second // then kills it
	return s, s.Start()
}

// await calls done until it returns true.
func await(ctx context.Context, done func() (bool, error)) error {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		yes, err := done()
		if yes && err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
