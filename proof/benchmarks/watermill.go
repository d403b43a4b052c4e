package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/outbox"
)

// watermillSide configures watermill-sql as documented for an outbox: a publisher in the
// transaction, and a subscriber. Zero values mean defaults.
type watermillSide struct {
	postgres  *postgresServer
	poll      time.Duration
	forwarder bool // messages are wrapped, and a forwarder publishes them
	queue     bool // the other schema, which deletes acknowledged messages
	history   int  // number of messages acknowledged before the first is published
}

// watermillFleet is a fleet of subscribers.
type watermillFleet struct {
	*pgDatabase
	side        watermillSide
	schema      watermillsql.SchemaAdapter
	producer    *pgxpool.Pool
	subscribers []*watermillsql.Subscriber
	forwarders  []*forwarder.Forwarder
	published   int
	work        func(due time.Time)
	handling    sync.WaitGroup
	ended       chan error
	running     int
}

func (w watermillSide) fleet(workers, _ int, work func(due time.Time)) (fleet, error) {
	database, err := w.postgres.newDatabase(false)
	if err != nil {
		return nil, err
	}
	f := &watermillFleet{pgDatabase: database, side: w, work: work, ended: make(chan error, workers),
		schema: watermillsql.DefaultPostgreSQLSchema{}}
	if err := f.fill(workers); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (w *watermillFleet) fill(workers int) (err error) {
	var offsets watermillsql.OffsetsAdapter = watermillsql.DefaultPostgreSQLOffsetsAdapter{}
	if w.side.queue {
		w.schema = watermillsql.PostgreSQLQueueSchema{}
		offsets = watermillsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true}
	}
	if w.producer, err = w.pool(); err != nil {
		return err
	}
	for range workers {
		pool, err := w.pool()
		if err != nil {
			return err
		}
		s, err := watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(pool), watermillsql.SubscriberConfig{
			SchemaAdapter: w.schema, OffsetsAdapter: offsets, PollInterval: w.side.poll}, nil)
		if err != nil {
			return err
		}
		if err := s.SubscribeInitialize(relayTopic); err != nil {
			return err
		}
		w.subscribers = append(w.subscribers, s)
	}
	return w.acknowledged(w.side.history)
}

// acknowledged writes acknowledged messages.
func (w *watermillFleet) acknowledged(n int) error {
	if n == 0 {
		return nil
	}
	_, err := w.admin.Exec(ctx, `WITH had AS (
			INSERT INTO watermill_job (uuid, payload, metadata, transaction_id)
			SELECT gen_random_uuid(), '{"due":0}', '{}', pg_current_xact_id() FROM generate_series(1, $1::bigint)
			RETURNING "offset", transaction_id)
		INSERT INTO watermill_offsets_job (consumer_group, offset_acked, last_processed_transaction_id)
		SELECT '', max("offset"), (SELECT transaction_id FROM had LIMIT 1) FROM had`, n)
	return err
}

func (w *watermillFleet) start() error {
	for _, s := range w.subscribers {
		if w.side.forwarder {
			fwd, err := forwarder.NewForwarder(s, toWork(w.had), nil, forwarder.Config{ForwarderTopic: relayTopic})
			if err != nil {
				return err
			}
			w.forwarders = append(w.forwarders, fwd)
			w.running++
			go func() { w.ended <- fwd.Run(ctx) }()
			<-fwd.Running()
			continue
		}
		messages, err := s.Subscribe(ctx, relayTopic)
		if err != nil {
			return err
		}
		w.handling.Go(func() {
			for m := range messages {
				if w.had(m) == nil {
					m.Ack()
				} else {
					m.Nack()
				}
			}
		})
	}
	return nil
}

func (w *watermillFleet) had(m *message.Message) error {
	var j job
	if err := json.Unmarshal(m.Payload, &j); err != nil {
		return err
	}
	w.work(j.at())
	return nil
}

// A toWork is a forwarder's publisher.
type toWork func(*message.Message) error

func (t toWork) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := t(m); err != nil {
			return err
		}
	}
	return nil
}

func (t toWork) Close() error { return nil }

// queue publishes in transactions.
func (w *watermillFleet) queue(due []time.Time) error {
	return inBatches(due, func(part []time.Time) error {
		var list []*message.Message
		for _, at := range part {
			payload, err := json.Marshal(jobDue(at))
			if err != nil {
				return err
			}
			list = append(list, message.NewMessage(outbox.RandomID().String(), payload))
		}
		w.published += len(part)
		return pgx.BeginFunc(ctx, w.producer, func(tx pgx.Tx) error { return w.publish(tx, list...) })
	})
}

// publish publishes in a transaction, which needs its own publisher.
func (w *watermillFleet) publish(tx pgx.Tx, list ...*message.Message) error {
	var p message.Publisher
	p, err := watermillsql.NewPublisher(watermillsql.TxFromPgx(tx), watermillsql.PublisherConfig{
		SchemaAdapter: w.schema}, nil)
	if err != nil {
		return err
	}
	if w.side.forwarder {
		p = forwarder.NewPublisher(p, forwarder.PublisherConfig{ForwarderTopic: relayTopic})
	}
	return p.Publish(relayTopic, list...)
}

// done counts newly acknowledged messages.
func (w *watermillFleet) done() (n int, err error) {
	if w.side.queue {
		left, err := w.count("SELECT count(*) FROM watermill_job")
		return w.published - left, err
	}
	n, err = w.count(`SELECT count(*) FROM watermill_job AS m JOIN watermill_offsets_job AS o ON true
		WHERE (m.transaction_id, m."offset") <= (o.last_processed_transaction_id, o.offset_acked)`)
	return n - w.side.history, err
}

func (w *watermillFleet) close() (err error) {
	limited, cancel := context.WithTimeout(ctx, childGrace)
	defer cancel()
	for _, fwd := range w.forwarders {
		err = errors.Join(err, fwd.Close())
	}
	for range w.running {
		select {
		case e := <-w.ended:
			err = errors.Join(err, e)
		case <-limited.Done():
			err = errors.Join(err, fmt.Errorf("a forwarder does not end"))
		}
	}
	for _, s := range w.subscribers {
		err = errors.Join(err, s.Close())
	}
	w.handling.Wait()
	return errors.Join(err, w.pgDatabase.close())
}
