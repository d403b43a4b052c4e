package main

import (
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/timer"
)

const (
	leaseTTL     = 2 * time.Second // how long the slot of a dead host stays taken; the default is 15 s
	storeTimeout = 500 * time.Millisecond
)

// A host is what one process of yours would be. It shares nothing with the other hosts but the server.
type host struct {
	wire   *wire
	client *redis.Client
	lock   *redislock.Store
	timers *timer.Scheduler
}

func newHost(name string, server *server, rec *recorder, log *slog.Logger) (*host, error) {
	h := &host{}
	options := server.client // a copy
	h.wire = newWire(&options)
	h.client = redis.NewClient(&options)
	h.lock = redislock.New(h.client, server.lock)

	holder := dlock.NewHolder()
	holder.Host = name // by default all hosts here would go by this machine's name
	var err error
	h.timers, err = timer.New(timer.Config{
		Lock:         h.lock,
		Logger:       log.With("host", name),
		TTL:          leaseTTL,
		StoreTimeout: storeTimeout,
		Holder:       holder,
	}, timers(name, rec)...)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (h *host) close() error { return errors.Join(h.lock.Close(), h.client.Close()) }
