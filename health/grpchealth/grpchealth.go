// Package grpchealth serves the gRPC health protocol (grpc.health.v1) from functions such as those
// of package health.
//
//	probes := health.New(timers)
//	server := grpchealth.New(grpchealth.Services{
//		Ready:  probes.Ready,
//		Names:  []string{"shop.v1.Orders"},
//		Others: map[string]func() error{"liveness": probes.Live},
//	})
//	healthpb.RegisterHealthServer(grpcServer, server) // google.golang.org/grpc/health/grpc_health_v1
//	go server.Run(ctx)                                // the context that SIGTERM ends, as for timers.Run
//	err := timers.Run(ctx)                            // the gRPC server serves until this returns
//	late := time.AfterFunc(10*time.Second, grpcServer.Stop)
//	grpcServer.GracefulStop() // also waits for clients that Watch, hence the line before
//	late.Stop()
//
// Check and List call the functions immediately. Watch pushes the changes that Run finds every
// [Interval]. When Run's context ends, Watch pushes NOT_SERVING immediately: the host then drains
// and stays NOT_SERVING, whatever Ready returns.
//
// The protocol has no field for the reason why a service is not serving, and no degraded state: a
// degraded host is SERVING. This package does not bound a function that hangs. The functions should
// return soon, as those of health.Handler do, however long their checks take.
//
// This is a module of its own, so that users of tickslot who do not use gRPC do not get it in their
// module graph. It needs no other package of tickslot.
package grpchealth

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Interval is how often Run calls the functions.
const Interval = 200 * time.Millisecond

// Services are the services that a Server reports. The zero value is valid: the whole server is
// SERVING until Run's context ends.
type Services struct {
	// Ready decides for the whole server, whose name is "", and for all of Names: they are SERVING
	// while it returns nil and Run's context has not ended. Default nil: always ready.
	Ready func() error
	// Names are the full names of the gRPC services that follow Ready, such as shop.v1.Orders.
	// Default: none.
	Names []string
	// Others are further names, each with a function that alone decides. The end of Run's context
	// does not change them, because draining is no reason to restart a process. Default: none.
	Others map[string]func() error
}

// A Server implements the health service with grpc's own implementation inside.
type Server struct {
	healthpb.HealthServer // inner, embedded as the interface to hide its other methods
	inner                 *health.Server
	services              map[string]*service

	mu       sync.Mutex // guards draining and calls of inner.SetServingStatus
	draining bool
}

type service struct {
	asking sync.Mutex // one call at a time, so that an old result does not overwrite a new one
	ask    func() error
	drains bool
}

// New returns a Server. Until Run has begun, Watch reports NOT_SERVING.
func New(s Services) *Server {
	inner := health.NewServer()
	server := &Server{HealthServer: inner, inner: inner, services: map[string]*service{}}
	for name, ask := range s.Others {
		server.services[name] = &service{ask: ask}
	}
	for _, name := range append([]string{""}, s.Names...) {
		server.services[name] = &service{ask: s.Ready, drains: true}
	}
	for name := range server.services {
		inner.SetServingStatus(name, healthpb.HealthCheckResponse_NOT_SERVING)
	}
	return server
}

// Run updates clients that Watch until ctx ends. After that, everything that depends on Ready stays
// NOT_SERVING.
func (s *Server) Run(ctx context.Context) {
	// The loop may be waiting for a function when ctx ends.
	defer context.AfterFunc(ctx, s.drain)()
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		s.lookAtAll()
		select {
		case <-ctx.Done():
			s.drain() // the loop may have seen the end first
			return
		case <-tick.C:
		}
	}
}

func (s *Server) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for name, service := range s.services {
		if service.drains {
			s.inner.SetServingStatus(name, healthpb.HealthCheckResponse_NOT_SERVING)
		}
	}
}

// Check reports the current status of a service.
func (s *Server) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	s.look(r.GetService())
	return s.HealthServer.Check(ctx, r)
}

// List reports the current status of all services.
func (s *Server) List(ctx context.Context, r *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	s.lookAtAll()
	return s.HealthServer.List(ctx, r)
}

func (s *Server) lookAtAll() {
	for name := range s.services {
		s.look(name)
	}
}

// look calls a service's function and passes a change on to the clients that Watch the service.
func (s *Server) look(name string) {
	service, ok := s.services[name]
	if !ok {
		return
	}
	service.asking.Lock()
	defer service.asking.Unlock()
	err := safely(service.ask)
	s.mu.Lock()
	defer s.mu.Unlock()
	status := healthpb.HealthCheckResponse_SERVING
	if err != nil || service.drains && s.draining {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.inner.SetServingStatus(name, status)
}

// safely turns a panic into an error.
func safely(ask func() error) (err error) {
	if ask == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check panicked: %v", p)
		}
	}()
	return ask()
}
