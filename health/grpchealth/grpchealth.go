// Package grpchealth answers the health protocol of gRPC (grpc.health.v1) with functions such as those of package health:
//
//	probes := health.New(health.Checks{Live: timers.Live, Ready: timers.Ready})
//	server := grpchealth.New(grpchealth.Services{
//		Ready:  probes.Ready,
//		Names:  []string{"shop.v1.Orders"},
//		Others: map[string]func() error{"liveness": probes.Live},
//	})
//	healthpb.RegisterHealthServer(grpcServer, server) // google.golang.org/grpc/health/grpc_health_v1
//	go server.Run(ctx)                                // the context that SIGTERM ends, the one of timers.Run
//	err := timers.Run(ctx)                            // the gRPC server serves until this returns
//	late := time.AfterFunc(10*time.Second, grpcServer.Stop)
//	grpcServer.GracefulStop() // waits for those that Watch, too, hence the line before
//	late.Stop()
//
// Check and List ask the functions at that moment. Watch pushes what Run finds every [Interval], and NOT_SERVING at once when Run's context ends:
// then the host drains, whatever Ready says, and stays NOT_SERVING.
//
// It does not say why a service is not serving, as the protocol has no words for it, and knows no degraded: a host that is degraded can serve. It
// keeps nothing from hanging: functions should return soon, as those of health.Handler do whatever the checks behind them do.
//
// It is a module of its own, so that users of tickslot without gRPC have no gRPC in their module graph, and it needs no other package of tickslot.
package grpchealth

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Interval is how often Run asks the functions.
const Interval = 200 * time.Millisecond

// Services are what a Server tells of.
type Services struct {
	// Ready decides for the whole server, whose name is "", and for all of Names: SERVING while it returns nil and Run's context has not
	// ended. Default: nil is always ready.
	Ready func() error
	// Names are full names of gRPC services, such as shop.v1.Orders. Default: none.
	Names []string
	// Others are further names with a function of their own, which alone decides: draining is no reason to restart a process. Default: none.
	Others map[string]func() error
}

// A Server is an implementation of the health service, on that of grpc itself.
type Server struct {
	healthpb.HealthServer // inner, of which only the protocol is to be seen
	inner                 *health.Server
	services              map[string]*service

	mu       sync.Mutex // of draining and what is set in inner
	draining bool
}

type service struct {
	asking sync.Mutex // one at a time, so that an old answer does not follow a new one
	ask    func() error
	drains bool
}

// New returns a Server. Until Run has begun, Watch says NOT_SERVING.
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

// Run tells those that watch, until ctx ends. Then whatever depends on Ready is NOT_SERVING for good.
func (s *Server) Run(ctx context.Context) {
	// Beside the loop, which may be waiting for a function.
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		s.drain()
	})
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		s.lookAtAll()
		select {
		case <-ctx.Done():
			stop()
			<-done
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

// Check says how a service is at this moment.
func (s *Server) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	s.look(r.GetService())
	return s.HealthServer.Check(ctx, r)
}

// List says how all of them are.
func (s *Server) List(ctx context.Context, r *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	s.lookAtAll()
	return s.HealthServer.List(ctx, r)
}

func (s *Server) lookAtAll() {
	for name := range s.services {
		s.look(name)
	}
}

// look asks a service's function. What is new goes to those that watch it.
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
