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

// outboxSide is tickslot's. What is not set is as by default.
type outboxSide struct {
	postgres *postgresServer
	config   outbox.RelayConfig
	keys     int  // of the messages; 0: they have none
	hot      bool // every second message belongs to one key
	history  int  // so many messages are dead, and as many dispatched, before the first is appended
}

// outboxFleet is a fleet of relays. Each has an Outbox of its own, as in another process, and so
// has the producer.
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

// relayTopic is that of all messages.
const relayTopic = "job"

func (s outboxSide) fleet(workers, places int, work func(due time.Time)) (fleet, error) {
	database, err := s.postgres.newDatabase(false)
	if err != nil {
		return nil, err
	}
	f := &outboxFleet{pgDatabase: database, side: s, order: keyOrder{last: map[string]int64{}},
		stop: func() {}, ended: make(chan error, workers)}
	if err := f.fill(s, workers, places, work); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *outboxFleet) fill(s outboxSide, workers, places int, work func(due time.Time)) (err error) {
	for i := range 1 + workers {
		pool, err := f.pool()
		if err != nil {
			return err
		}
		box := pgxoutbox.New(pool, outbox.Options{})
		f.boxes = append(f.boxes, box)
		if i == 0 {
			f.producer = pool
			continue
		}
		config := s.config
		config.MaxDeliveries, config.Logger = places, warnings
		config.DefaultSink = outbox.SinkFunc(func(_ context.Context, d outbox.Delivery) error {
			var j job
			if err := json.Unmarshal(d.Payload, &j); err != nil {
				return outbox.Permanent(err)
			}
			f.order.had(d)
			work(j.at())
			return nil
		})
		relay, err := outbox.NewRelay(box, config)
		if err != nil {
			return err
		}
		f.relays = append(f.relays, relay)
	}
	if err := f.boxes[0].Migrate(ctx); err != nil {
		return err
	}
	return f.finished(s.history)
}

// finished writes messages as they are long after they were delivered, or could not be, with an
// attempt each. They have the keys of those to come.
func (f *outboxFleet) finished(n int) error {
	if n == 0 {
		return nil
	}
	_, err := f.admin.Exec(ctx, `INSERT INTO tickslot_outbox (message_id, topic, key, key_hash, payload, headers, state,
			attempts, finished_at, last_error)
		SELECT gen_random_uuid(), $1, 'key ' || i % $2, i % $2, '{"due":0}', '{}',
			CASE i % 2 WHEN 0 THEN 'dead' ELSE 'dispatched' END, 1, now(), CASE i % 2 WHEN 0 THEN 'no' ELSE '' END
		FROM generate_series(1, $3::bigint) AS i`, relayTopic, max(1, f.side.keys), 2*n)
	if err == nil {
		_, err = f.admin.Exec(ctx, `INSERT INTO tickslot_outbox_attempts (message, attempt, at, took, node, outcome, error)
			SELECT seq, 1, finished_at, 1, 'node', CASE state WHEN 'dead' THEN 'permanent' ELSE 'ok' END, last_error
			FROM tickslot_outbox`)
	}
	return err
}

func (f *outboxFleet) start() error {
	life, stop := context.WithCancel(ctx)
	f.stop = stop
	for _, r := range f.relays {
		f.running++
		go func() { f.ended <- r.Run(life) }()
	}
	return testkit.Poll(30*time.Second, "the relays", func(context.Context) error {
		for _, r := range f.relays {
			if err := r.Started(); err != nil {
				return err
			}
		}
		return nil
	})
}

// queue appends in transactions, and notifies after the commit.
func (f *outboxFleet) queue(due []time.Time) error {
	err := inBatches(due, func(part []time.Time) error {
		return pgx.BeginFunc(ctx, f.producer, func(tx pgx.Tx) error {
			for _, at := range part {
				payload, err := json.Marshal(jobDue(at))
				if err != nil {
					return err
				}
				if _, err := f.boxes[0].Append(ctx, pgxoutbox.Tx(tx), outbox.Message{ID: outbox.RandomID(),
					Topic: relayTopic, Key: f.key(), Payload: payload}); err != nil {
					return err
				}
			}
			return nil
		})
	})
	f.boxes[0].Notify()
	return err
}

// key is that of the next message.
func (f *outboxFleet) key() string {
	f.appended++
	switch {
	case f.side.keys == 0:
		return ""
	case f.side.hot && f.appended%2 == 0:
		return "key 0"
	}
	return fmt.Sprint("key ", f.appended%f.side.keys)
}

// done counts what has its attempt in the history, without what was there before. It fails if a key
// was delivered in another order.
func (f *outboxFleet) done() (int, error) {
	if err := f.order.broken(); err != nil {
		return 0, err
	}
	n, err := f.count("SELECT count(*) FROM tickslot_outbox AS m JOIN tickslot_outbox_attempts AS a " +
		"ON a.message = m.seq WHERE m.state = 'dispatched' AND a.outcome = 'ok'")
	return n - f.side.history, err
}

func (f *outboxFleet) close() (err error) {
	f.stop()
	for range f.running {
		err = errors.Join(err, <-f.ended)
	}
	for _, box := range f.boxes {
		err = errors.Join(err, box.Close())
	}
	return errors.Join(err, f.pgDatabase.close())
}

// keyOrder is a receiver that knows which message of each key it has had last.
type keyOrder struct {
	mu   sync.Mutex
	last map[string]int64
	err  error
}

func (o *keyOrder) had(d outbox.Delivery) {
	if d.Key == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if last := o.last[d.Key]; d.Seq <= last && o.err == nil {
		o.err = fmt.Errorf("%s: message %d came after %d", d.Key, d.Seq, last)
	}
	o.last[d.Key] = d.Seq
}

func (o *keyOrder) broken() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
