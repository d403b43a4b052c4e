package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
)

// outboxSide configures tickslot. Zero values mean defaults.
type outboxSide struct {
	postgres *postgresServer
	config   outbox.RelayConfig
	keys     int  // number of keys; 0: messages have none
	hot      bool // every second message has the same key
	history  int  // number of dead, and of dispatched, messages before the first is appended
}

// outboxFleet is a fleet of relays. Each relay and the producer have their own Outbox, as separate
// processes would.
type outboxFleet struct {
	*pgDatabase
	side     outboxSide
	producer *pgxpool.Pool
	boxes    []*outbox.Outbox // the first is the producer's
	relays   []*outbox.Relay
	appended int
	order    keyOrder
	stop     context.CancelFunc
	ended    chan error
	running  int
}

// relayTopic is the topic of all messages.
const relayTopic = "job"

func (o outboxSide) fleet(workers, places int, work func(due time.Time)) (fleet, error) {
	database, err := o.postgres.newDatabase(false)
	if err != nil {
		return nil, err
	}
	f := &outboxFleet{pgDatabase: database, side: o, order: keyOrder{last: map[string]int64{}},
		stop: func() {}, ended: make(chan error, workers)}
	if err := f.fill(o, workers, places, work); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (o *outboxFleet) fill(s outboxSide, workers, places int, work func(due time.Time)) (err error) {
	for i := range 1 + workers {
		pool, err := o.pool()
		if err != nil {
			return err
		}
		box := pgxoutbox.New(pool, outbox.Options{})
		o.boxes = append(o.boxes, box)
		if i == 0 {
			o.producer = pool
			continue
		}
		config := s.config
		config.MaxDeliveries, config.Logger = places, warnings
		config.DefaultSink = outbox.SinkFunc(func(_ context.Context, d outbox.Delivery) error {
			var j job
			if err := json.Unmarshal(d.Payload, &j); err != nil {
				return outbox.Permanent(err)
			}
			o.order.had(d)
			work(j.at())
			return nil
		})
		relay, err := outbox.NewRelay(box, config)
		if err != nil {
			return err
		}
		o.relays = append(o.relays, relay)
	}
	if err := o.boxes[0].Migrate(ctx); err != nil {
		return err
	}
	return o.finished(s.history)
}

// finished writes messages in the state long after their delivery or failure, with one attempt
// each. They have the same keys as later messages.
func (o *outboxFleet) finished(n int) error {
	if n == 0 {
		return nil
	}
	_, err := o.admin.Exec(ctx, `INSERT INTO tickslot_outbox (message_id, topic, key, key_hash, payload, headers, state,
			attempts, finished_at, last_error)
		SELECT gen_random_uuid(), $1, 'key ' || i % $2, i % $2, '{"due":0}', '{}',
			CASE i % 2 WHEN 0 THEN 'dead' ELSE 'dispatched' END, 1, now(), CASE i % 2 WHEN 0 THEN 'no' ELSE '' END
		FROM generate_series(1, $3::bigint) AS i`, relayTopic, max(1, o.side.keys), 2*n)
	if err == nil {
		_, err = o.admin.Exec(ctx, `INSERT INTO tickslot_outbox_attempts (message, attempt, at, took, node, outcome, error)
			SELECT seq, 1, finished_at, 1, 'node', CASE state WHEN 'dead' THEN 'permanent' ELSE 'ok' END, last_error
			FROM tickslot_outbox`)
	}
	return err
}

func (o *outboxFleet) start() error {
	life, stop := context.WithCancel(ctx)
	o.stop = stop
	for _, r := range o.relays {
		o.running++
		go func() { o.ended <- r.Run(life) }()
	}
	return testkit.Poll(30*time.Second, "the relays", func(context.Context) error {
		for _, r := range o.relays {
			if err := r.Started(); err != nil {
				return err
			}
		}
		return nil
	})
}

// queue appends in transactions, and notifies after the commit.
func (o *outboxFleet) queue(due []time.Time) error {
	err := inBatches(due, func(part []time.Time) error {
		return pgx.BeginFunc(ctx, o.producer, func(tx pgx.Tx) error {
			for _, at := range part {
				payload, err := json.Marshal(jobDue(at))
				if err != nil {
					return err
				}
				if _, err := o.boxes[0].Append(ctx, pgxoutbox.Tx(tx), outbox.Message{ID: outbox.RandomID(),
					Topic: relayTopic, Key: o.key(), Payload: payload}); err != nil {
					return err
				}
			}
			return nil
		})
	})
	o.boxes[0].Notify()
	return err
}

// key returns the key of the next message.
func (o *outboxFleet) key() string {
	o.appended++
	switch {
	case o.side.keys == 0:
		return ""
	case o.side.hot && o.appended%2 == 0:
		return "key 0"
	}
	return fmt.Sprint("key ", o.appended%o.side.keys)
}

// done counts new messages that have an attempt in the history. It fails if a key was delivered out
// of order.
func (o *outboxFleet) done() (int, error) {
	if err := o.order.broken(); err != nil {
		return 0, err
	}
	n, err := o.count("SELECT count(*) FROM tickslot_outbox AS m JOIN tickslot_outbox_attempts AS a " +
		"ON a.message = m.seq WHERE m.state = 'dispatched' AND a.outcome = 'ok'")
	return n - o.side.history, err
}

func (o *outboxFleet) close() (err error) {
	o.stop()
	for range o.running {
		err = errors.Join(err, <-o.ended)
	}
	for _, box := range o.boxes {
		err = errors.Join(err, box.Close())
	}
	return errors.Join(err, o.pgDatabase.close())
}

// A keyOrder is a receiver that remembers the last message of each key.
type keyOrder struct {
	mu   sync.Mutex
	last map[string]int64
	err  error
}

func (k *keyOrder) had(d outbox.Delivery) {
	if d.Key == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if last := k.last[d.Key]; d.Seq <= last && k.err == nil {
		k.err = fmt.Errorf("%s: message %d came after %d", d.Key, d.Seq, last)
	}
	k.last[d.Key] = d.Seq
}

func (k *keyOrder) broken() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}
