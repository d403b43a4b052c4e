package main

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
)

// pgConnections is the total number of connections of each side.
const pgConnections = 16

// prepare creates the tables and holds slots in both.
func (p *postgresServer) prepare(slots, held int) error {
	const table = `DROP TABLE IF EXISTS naive; CREATE TABLE naive (name text, slot int, token text, expires_at timestamptz, fence bigint, PRIMARY KEY (name, slot))`
	if _, err := p.admin.Exec(ctx, table); err != nil {
		return err
	}
	for slot := range held {
		if _, err := p.admin.Exec(ctx, "INSERT INTO naive VALUES ('timer:pg', $1, 'held', now() + interval '2 "+
			"hours', 1)", slot); err != nil {
			return err
		}
	}
	store := pgxlock.New(p.admin, sqllock.Options{})
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if _, err := p.admin.Exec(ctx, "TRUNCATE distributed_locks"); err != nil {
		return err
	}
	if err := hold(store, "timer:pg", slots, held); err != nil {
		return err
	}
	_, err := p.admin.Exec(ctx, "CHECKPOINT") // now, so that none happens during a measurement
	return err
}

// oursOn has four stores, as on four hosts. Each opens at most four connections, so together they
// have as many as the naive loop.
func (p *postgresServer) oursOn(slots, workers int) (runner, error) {
	const stores = pgConnections / 4
	pool, err := p.pool(pgConnections) // this pool never connects itself
	if err != nil {
		return nil, err
	}
	c := &cycles{workers: workers, proof: p.wal(), stop: []func() error{func() error { pool.Close(); return nil }}}
	takers := make([]taker, stores)
	for i := range takers {
		store := pgxlock.New(pool, sqllock.Options{})
		c.stop = append(c.stop, store.Close)
		take, stop, err := ours{slots: slots, names: shared("pg")}.session(store, workers)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		takers[i] = take
		c.stop = append(c.stop, stop)
	}
	c.take = func(w int) (func() error, error) { return takers[w%stores](w) }
	return c, nil
}

func (p *postgresServer) naiveOn(slots, workers int) (runner, error) {
	pool, err := p.pool(pgConnections)
	if err != nil {
		return nil, err
	}
	stop := func() error { pool.Close(); return nil }
	return &cycles{workers: workers, take: naiveRows(pool, slots), proof: p.wal(), stop: []func() error{stop}}, nil
}

func naiveRows(pool *pgxpool.Pool, slots int) taker {
	return func(int) (func() error, error) {
		token := rand.Text()
		for slot := range slots {
			err := pool.QueryRow(ctx, `INSERT INTO naive AS x (name, slot, token, expires_at, fence) VALUES ('timer:pg', $1, $2, now() + interval '60s', 1)
				ON CONFLICT (name, slot) DO UPDATE SET token = EXCLUDED.token, expires_at = EXCLUDED.expires_at, fence = x.fence + 1
				WHERE x.expires_at < now() RETURNING slot`, slot, token).Scan(&slot)
			if errors.Is(err, pgx.ErrNoRows) {
				continue
			}
			if err != nil {
				return nil, err
			}
			return func() error {
				tag, err := pool.Exec(ctx, "UPDATE naive SET expires_at = 'epoch' WHERE name = 'timer:pg' AND slot = "+
					"$1 AND token = $2", slot, token)
				if err == nil && tag.RowsAffected() != 1 {
					err = fmt.Errorf("slot %d was lost", slot)
				}
				return err
			}, nil
		}
		return nil, errBusy
	}
}
