package tickslot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// serverGrace is how long requests have to end when a Server stops.
const serverGrace = 5 * time.Second

// Server returns a part that serves HTTP. It listens before the parts after it start; if the
// address is taken, none of them starts. So probes are answered with 503 until all parts run, and
// answered until the last of them has stopped. After a stop, requests have 5 s to end; then their
// connections are closed. If s has a TLSConfig with certificates, the part serves HTTPS. If it
// serves a page of page.New, call s.RegisterOnShutdown(page.Close), because live views never end on
// their own; a service.Service does this for its page.
func Server(s *http.Server) Part {
	if s == nil {
		return nil
	}
	return &server{http: s, listening: make(chan struct{})}
}

type server struct {
	http      *http.Server
	ran       atomic.Bool
	listening chan struct{}
}

// Running returns a channel that is closed when the server listens.
func (s *server) Running() <-chan struct{} { return s.listening }

// Run serves until ctx ends.
func (s *server) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("the server was run before: make another")
	}
	addr := s.http.Addr
	if addr == "" {
		addr = ":http"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	close(s.listening)
	served := make(chan error, 1)
	go func() {
		if t := s.http.TLSConfig; t != nil && (len(t.Certificates) > 0 || t.GetCertificate != nil) {
			served <- s.http.ServeTLS(listener, "", "")
			return
		}
		served <- s.http.Serve(listener)
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), serverGrace)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		return errors.Join(fmt.Errorf("requests had not ended %v after the stop, and their connections were closed: %w",
			serverGrace, err), s.http.Close())
	}
	return nil
}
