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
//	go server.Run(ctx)                                // the context that SIGTERM cancels, as for timers.Run
//	err := timers.Run(ctx)                            // the gRPC server serves until this returns
//	late := time.AfterFunc(10*time.Second, grpcServer.Stop)
//	grpcServer.GracefulStop() // also waits for Watch streams; the line above bounds the wait
//	late.Stop()
//
// Check and List call the functions for each request. Watch pushes the changes that Run finds every
// [Interval]. When Run's context ends, Watch pushes NOT_SERVING immediately. The host then drains
// and stays NOT_SERVING, whatever Ready returns.
//
// The protocol has no field for the reason why a service is not serving, and no degraded state. A
// degraded host is SERVING. This package does not bound a function that hangs. The functions should
// return promptly; those of health.Handler do, however long their checks take.
//
// This package is a module of its own, so that users of tickslot who do not use gRPC do not get
// gRPC in their module graph. It does not import any other package of tickslot.
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
	// Ready determines the status of the whole server, whose name is "", and of all Names. They are
	// SERVING while Ready returns nil and Run's context has not ended. Default nil: always ready.
	Ready func() error
	// Names are the full names of the gRPC services that follow Ready, such as shop.v1.Orders.
	// Default: none.
	Names []string
	// Others are additional names. The function of each name alone determines its status. The end
	// of Run's context does not change it, because draining is no reason to restart a process.
	// Default: none.
	Others map[string]func() error
}

// A Server implements the health service on top of the server in google.golang.org/grpc/health.
type Server struct {
	healthpb.HealthServer // is inner; embedding the interface hides inner's other methods
	inner                 *health.Server
	services              map[string]*service

	mu       sync.Mutex // guards draining and calls of inner.SetServingStatus
	draining bool
}

type service struct {
	asking sync.Mutex // serializes calls, so that an old result does not overwrite a new one
	ask    func() error
	drains bool
}

// New returns a Server. Watch reports NOT_SERVING until Run begins.
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

// Run updates the clients of Watch until ctx ends. After that, everything that depends on Ready
// stays NOT_SERVING.
func (s *Server) Run(ctx context.Context) {
	// When ctx ends, the loop below may still be waiting for a function.
	defer context.AfterFunc(ctx, s.drain)()
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		s.lookAtAll()
		select {
		case <-ctx.Done():
			s.drain() // the loop may notice the end before AfterFunc runs
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

// look calls a service's function and passes a change to the clients that watch the service.
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
