package demo

import (
	"errors"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer"
)

const (
	// LeaseTTL is how long a dead host's slot stays taken. The default is 15 s; a short value makes
	// the demonstration quick.
	LeaseTTL = 2 * time.Second
	// StoreTimeout bounds every call to the store. The default is 1 s.
	StoreTimeout = 500 * time.Millisecond
)

// A host represents one of your processes. Hosts share only the store.
type host struct {
	wire       *wire
	disconnect func() error
	timers     *timer.Scheduler
}

func newHost(name string, store *Store, rec *recorder, log *slog.Logger) (*host, error) {
	client, disconnect, err := store.Connect()
	if err != nil {
		return nil, err
	}
	h := &host{wire: &wire{store: client}, disconnect: disconnect}

	holder := dlock.NewHolder()
	holder.Host = name // the default is the machine's name, which all hosts here would share
	h.timers, err = timer.New(timer.Config{
		Store:        h.wire, // in your service: the store itself
		Logger:       log.With("host", name),
		TTL:          LeaseTTL,
		StoreTimeout: StoreTimeout,
		Holder:       holder,
	}, timers(name, rec)...)
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (h *host) close() error { return h.disconnect() }
