package demo

import (
	"errors"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/timer"
)

const (
	// LeaseTTL is how long the slot of a dead host stays taken; the default is 15 s.
	LeaseTTL = 2 * time.Second
	// StoreTimeout bounds every call to the store.
	StoreTimeout = 500 * time.Millisecond
)

// A host stands for one of your processes. It shares nothing with the other hosts but the store.
type host struct {
	wire       *wire
	disconnect func() error
	timers     *timer.Scheduler
}

func newHost(name string, store *Store, rec *recorder, log *slog.Logger) (*host, error) {
	lock, disconnect, err := store.Connect()
	if err != nil {
		return nil, err
	}
	h := &host{wire: newWire(lock), disconnect: disconnect}

	holder := dlock.NewHolder()
	holder.Host = name // by default every host here would have this machine's name
	h.timers, err = timer.New(timer.Config{
		Lock:         h.wire, // yours would be the store itself
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
