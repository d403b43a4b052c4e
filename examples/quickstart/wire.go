package main

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

var errCut = errors.New("the wire is cut")

// A wire is all that connects one host with Redis.
type wire struct {
	dialer func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	gone  bool
	conns []net.Conn
}

// newWire puts a wire where the client with these options dials.
func newWire(options *redis.Options) *wire {
	w := &wire{dialer: redis.NewDialer(options)} // go-redis's own, which also knows TLS
	options.Dialer = w.dial
	return w
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if w.isCut() {
		return nil, errCut
	}
	conn, err := w.dialer(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone { // meanwhile
		return nil, errors.Join(errCut, conn.Close())
	}
	w.conns = append(w.conns, conn)
	return conn, nil
}

func (w *wire) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

// cut ends every connection, and no other will come about.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	for _, conn := range w.conns {
		_ = conn.Close()
	}
}
