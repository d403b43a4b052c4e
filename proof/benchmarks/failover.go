package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
)

// failOver measures the seconds from the kill of the delivering relay to the first delivery by
// another one. Each relay is a process, and messages arrive all the time.
type failOver struct {
	fleet
	database *pgDatabase
	ttl      time.Duration
	relays   map[string]*childRunner // by name
	started  int
}

const (
	// appendPause is the time between two messages.
	appendPause = 20 * time.Millisecond
	// longestOver is how long to wait for a failover beyond its limit.
	longestOver = 30 * time.Second
)

// failsOver is a case with two processes.
func failsOver(name string, s outboxSide, ttl time.Duration) Case {
	return Case{Name: name, Open: func() (runner, error) {
		f, err := s.fleet(0, 0, nil) // only the producer
		if err != nil {
			return nil, err
		}
		m := &failOver{fleet: f, database: inDatabase(f), ttl: ttl, relays: map[string]*childRunner{}}
		for range 2 {
			if err := m.relay(); err != nil {
				return nil, errors.Join(err, m.close())
			}
		}
		return m, nil
	}}
}

// relay starts another relay.
func (f *failOver) relay() error {
	f.started++
	name := fmt.Sprint("relay ", f.started)
	c, err := inChild(spec{Kind: "relay", Name: name, TTL: f.ttl,
		Postgres: f.database.server.DSN("", "", f.database.name)})()
	if err == nil {
		f.relays[name] = c.(*childRunner)
	}
	return err
}

// measure kills the relay that delivers, and starts another one in its place.
func (f *failOver) measure(time.Duration) (sample, error) {
	leader, err := f.delivered("", longestOver)
	if err != nil {
		return sample{}, err
	}
	killed := f.relays[leader]
	if killed == nil {
		return sample{}, fmt.Errorf("%q delivers, who is dead", leader)
	}
	delete(f.relays, leader)
	began := time.Now()
	if err := killed.kill(); err != nil {
		return sample{}, err
	}
	if _, err := f.delivered(leader, f.ttl+outbox.DefaultRetryInterval+longestOver); err != nil {
		return sample{}, err
	}
	took := time.Since(began).Seconds()
	return sample{Value: took, Did: 1, Extra: map[string]float64{"TTL s": f.ttl.Seconds()}}, f.relay()
}

// delivered appends messages until a relay other than not has delivered one, and returns that
// relay's name.
func (f *failOver) delivered(not string, within time.Duration) (who string, err error) {
	var first int64
	row := f.database.admin.QueryRow(ctx, "SELECT coalesce(max(seq), 0) FROM tickslot_outbox")
	if err := row.Scan(&first); err != nil {
		return "", err
	}
	for began := time.Now(); time.Since(began) < within; time.Sleep(appendPause) {
		if err := f.queue(atOnceDue(1)); err != nil {
			return "", err
		}
		row := f.database.admin.QueryRow(ctx, `SELECT coalesce((SELECT node FROM tickslot_outbox_attempts
			WHERE message > $1 AND node <> $2 ORDER BY message DESC LIMIT 1), '')`, first, not)
		if err := row.Scan(&who); who != "" || err != nil {
			return who, err
		}
	}
	return "", fmt.Errorf("nobody but %q has delivered within %v", not, within)
}

func (f *failOver) close() (err error) {
	for _, c := range f.relays {
		err = errors.Join(err, c.close())
	}
	return errors.Join(err, f.fleet.close())
}

// relayInChild runs a relay, which is not measured itself.
func relayInChild(s spec) (runner, error) {
	pool, err := pgxpool.New(ctx, s.Postgres)
	if err != nil {
		return nil, err
	}
	r, err := outbox.NewRelay(pgxoutbox.New(pool, outbox.Options{}), outbox.RelayConfig{Name: s.Name, TTL: s.TTL,
		Logger: warnings, DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })})
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return nil, testkit.Poll(longestOver, "the relay", func(context.Context) error {
		select {
		case err := <-ended:
			return fmt.Errorf("it has ended: %w", err)
		default:
			return r.Started()
		}
	})
}
