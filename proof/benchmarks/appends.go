package main

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
)

// appends measures how long it takes to append a message in a transaction, and how much longer than
// an INSERT of the same row into a table with the same indexes. Each transaction does both,
// alternating.
type appends struct {
	fleet
	pool   *pgxpool.Pool
	insert func(pgx.Tx) error
	turn   bool
}

// appendsEach is the number of messages appended per transaction, next to as many bare INSERTs. The
// commit is not measured.
const appendsEach = 10

// overBare is the key of the additional time.
const overBare = "over an INSERT µs"

// appendOf is a case with a fleet that is not started.
func appendOf(name string, open side, insert func(fleet) func(pgx.Tx) error) Case {
	return Case{Name: name, Open: func() (runner, error) {
		f, err := open(1, 1, func(time.Time) {})
		if err != nil {
			return nil, err
		}
		m := &appends{fleet: f, insert: insert(f)}
		if m.pool, err = inDatabase(f).pool(); err == nil {
			err = m.bare()
		}
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		return m, nil
	}}
}

// inDatabase returns the database of a fleet that uses the run's Postgres.
func inDatabase(f fleet) *pgDatabase {
	switch f := f.(type) {
	case *outboxFleet:
		return f.pgDatabase
	case *watermillFleet:
		return f.pgDatabase
	case *riverFleet:
		return f.pgDatabase
	}
	panic("it has no database of Postgres")
}

// bare creates the table for the bare INSERTs. It is always a copy of tickslot's message table.
func (a *appends) bare() error {
	box := pgxoutbox.New(a.pool, outbox.Options{TableName: "model"})
	err := errors.Join(box.Migrate(ctx), box.Close())
	if err == nil {
		_, err = a.pool.Exec(ctx, "CREATE TABLE bare (LIKE model INCLUDING ALL)")
	}
	return err
}

func (a *appends) measure(window time.Duration) (sample, error) {
	var theirs, bare []time.Duration
	for began := time.Now(); time.Since(began) < window; {
		err := pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
			for range 2 * appendsEach {
				a.turn = !a.turn
				list, insert := &theirs, a.insert
				if a.turn {
					list, insert = &bare, insertBare
				}
				began := time.Now()
				if err := insert(tx); err != nil {
					return err
				}
				*list = append(*list, time.Since(began))
			}
			return nil
		})
		if err != nil {
			return sample{}, err
		}
	}
	slices.Sort(theirs)
	slices.Sort(bare)
	micros := func(list []time.Duration, q float64) float64 {
		return list[int(q*float64(len(list)-1))].Seconds() * 1e6
	}
	return sample{Value: micros(theirs, 0.5), Did: float64(len(theirs)), Extra: map[string]float64{
		"INSERT µs": micros(bare, 0.5), overBare: micros(theirs, 0.5) - micros(bare, 0.5),
		"p99 µs": micros(theirs, 0.99), "INSERT p99 µs": micros(bare, 0.99)}}, nil
}

func payloadNow() []byte {
	b, err := json.Marshal(jobDue(time.Now()))
	if err != nil {
		panic(err)
	}
	return b
}

// insertBare inserts a row like Append, with a statement prepared once, which is pgx's default.
func insertBare(tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO bare (message_id, topic, key, key_hash, payload, headers) VALUES ($1, $2, "+
		"$3, $4, $5, $6)", [16]byte(outbox.RandomID()), relayTopic, "key 1", int64(1), payloadNow(), "{}")
	return err
}

func appendOurs(f fleet) func(pgx.Tx) error {
	box := f.(*outboxFleet).boxes[0]
	return func(tx pgx.Tx) error {
		_, err := box.Append(ctx, pgxoutbox.Tx(tx), outbox.Message{ID: outbox.RandomID(), Topic: relayTopic,
			Key: "key 1", Payload: payloadNow()})
		return err
	}
}

func appendWatermill(f fleet) func(pgx.Tx) error {
	w := f.(*watermillFleet)
	return func(tx pgx.Tx) error {
		return w.publish(tx, message.NewMessage(outbox.RandomID().String(), payloadNow()))
	}
}

func appendRiver(f fleet) func(pgx.Tx) error {
	client := f.(*riverFleet).client
	return func(tx pgx.Tx) error {
		_, err := client.InsertTx(ctx, tx, jobDue(time.Now()), nil)
		return err
	}
}
