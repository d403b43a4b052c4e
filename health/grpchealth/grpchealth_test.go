package grpchealth_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tickslot/tickslot/health/grpchealth"
)

const (
	serving    = healthpb.HealthCheckResponse_SERVING
	notServing = healthpb.HealthCheckResponse_NOT_SERVING
	unknown    = healthpb.HealthCheckResponse_SERVICE_UNKNOWN
)

// dial serves s on a real gRPC server and returns a client.
func dial(t *testing.T, s *grpchealth.Server) healthpb.HealthClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, s)
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///host", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn,
			error) {
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Stop(); served.Wait() })
	return healthpb.NewHealthClient(conn)
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func check(t *testing.T, c healthpb.HealthClient, service string, want healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	r, err := c.Check(bounded(t), &healthpb.HealthCheckRequest{Service: service})
	if err != nil || r.GetStatus() != want {
		t.Errorf("Check %q: %v %v, want %v", service, r.GetStatus(), err, want)
	}
}

// watch subscribes to a service. The returned function waits for the next status, which must be
// want.
func watch(t *testing.T, c healthpb.HealthClient,
	service string) func(want healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	stream, err := c.Watch(bounded(t), &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		r, err := stream.Recv()
		if err != nil || r.GetStatus() != want {
			t.Fatalf("Watch %q: %v %v, want %v", service, r.GetStatus(), err, want)
		}
	}
}

func wait(t *testing.T, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-bounded(t).Done():
		t.Fatal("not asked")
	}
}

// An answer is a check whose result can be changed.
type answer struct {
	err   atomic.Pointer[error]
	calls atomic.Int64
}

func (a *answer) set(err error) { a.err.Store(&err) }
func (a *answer) ask() error {
	a.calls.Add(1)
	if err := a.err.Load(); err != nil {
		return *err
	}
	return nil
}

var errBad = errors.New("it is bad")

// run starts Run. The returned function stops it.
func run(t *testing.T, s *grpchealth.Server) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { s.Run(ctx) })
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	return stop
}

// Fails when Check returns a cached result, a name uses the function of another name, or an unknown
// name has a status.
func TestCheckAsksAtThatMoment(t *testing.T) {
	t.Parallel()
	var ready, live answer
	c := dial(t, grpchealth.New(grpchealth.Services{
		Ready: ready.ask, Names: []string{"shop.v1.Orders"},
		Others: map[string]func() error{"liveness": live.ask, "well": nil, "panics": func() error { panic("oh") }},
	})) // Run is not called
	for range 2 {
		for name, want := range map[string]healthpb.HealthCheckResponse_ServingStatus{"": serving,
			"shop.v1.Orders": serving, "liveness": serving, "well": serving, "panics": notServing} {
			check(t, c, name, want)
		}
		ready.set(errBad)
		check(t, c, "", notServing)
		check(t, c, "shop.v1.Orders", notServing)
		check(t, c, "liveness", serving)
		list, err := c.List(bounded(t), &healthpb.HealthListRequest{})
		if err != nil || len(list.GetStatuses()) != 5 || list.GetStatuses()[""].GetStatus() != notServing ||
			list.GetStatuses()["liveness"].GetStatus() != serving {
			t.Errorf("List: %v %v", list, err)
		}
		live.set(errBad)
		check(t, c, "liveness", notServing)
		ready.set(nil)
		live.set(nil)
	}
	if _, err := c.Check(bounded(t),
		&healthpb.HealthCheckRequest{Service: "nosuch"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v", err)
	}
	check(t, dial(t, grpchealth.New(grpchealth.Services{})), "", serving)
}

// Fails when Run calls the functions only once, or does not update the clients of Watch.
func TestWatchIsTold(t *testing.T) {
	t.Parallel()
	var ready, live answer
	s := grpchealth.New(grpchealth.Services{Ready: ready.ask, Names: []string{"shop.v1.Orders"},
		Others: map[string]func() error{"liveness": live.ask}})
	c := dial(t, s)
	all, orders, alive, nobody := watch(t, c, ""), watch(t, c, "shop.v1.Orders"), watch(t, c, "liveness"),
		watch(t, c, "nosuch")
	nobody(unknown)
	for _, next := range []func(healthpb.HealthCheckResponse_ServingStatus){all, orders, alive} {
		next(notServing) // Run has not begun yet
	}
	if n := ready.calls.Load() + live.calls.Load(); n != 0 {
		t.Errorf("%d calls before Run", n)
	}
	run(t, s)
	for _, next := range []func(healthpb.HealthCheckResponse_ServingStatus){all, orders, alive} {
		next(serving)
	}
	for range 2 {
		ready.set(errBad)
		all(notServing)
		orders(notServing)
		live.set(errBad)
		alive(notServing)
		ready.set(nil)
		all(serving)
		orders(serving)
		live.set(nil)
		alive(serving)
	}
}

// Fails when NOT_SERVING is not sent when Run's context ends, when it is taken back, or when
// liveness changes with it. In this test a function keeps Run waiting, and Ready keeps succeeding.
func TestDrainingIsToldAtOnce(t *testing.T) {
	t.Parallel()
	var ready, live answer
	hang, entered := make(chan struct{}), make(chan struct{})
	var once sync.Once
	open := sync.OnceFunc(func() { close(hang) })
	defer open()
	s := grpchealth.New(grpchealth.Services{Ready: ready.ask, Names: []string{"shop.v1.Orders"},
		Others: map[string]func() error{
			"liveness": live.ask,
			"hangs":    func() error { once.Do(func() { close(entered) }); <-hang; return nil },
		}})
	c := dial(t, s)
	check(t, c, "", serving)
	check(t, c, "liveness", serving)
	all, orders, alive := watch(t, c, ""), watch(t, c, "shop.v1.Orders"), watch(t, c, "liveness")
	all(serving)
	orders(notServing)
	check(t, c, "shop.v1.Orders", serving)
	orders(serving)
	alive(serving)

	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { s.Run(ctx) })
	wait(t, entered)
	cancel()
	all(notServing)
	orders(notServing)
	check(t, c, "", notServing)
	check(t, c, "liveness", serving)
	open()
	done.Wait()
	check(t, c, "", notServing)
	check(t, c, "shop.v1.Orders", notServing)
	check(t, c, "liveness", serving)
	live.set(errBad)
	check(t, c, "liveness", notServing)
	alive(notServing) // the initial status
}

// Fails when clients that watch liveness get NOT_SERVING when Run's context ends.
func TestDrainingLeavesLivenessAlone(t *testing.T) {
	t.Parallel()
	s := grpchealth.New(grpchealth.Services{Others: map[string]func() error{"liveness": nil}})
	c := dial(t, s)
	all, alive := watch(t, c, ""), watch(t, c, "liveness")
	all(notServing)
	alive(notServing)
	stop := run(t, s)
	all(serving)
	alive(serving)
	stop()
	all(notServing)
	watch(t, c, "liveness")(serving)
}

// A lateContext closes Done before the functions of context.AfterFunc start. Run then stops those
// functions before they start. Any context may behave this way.
type lateContext struct{ context.Context }

func (lateContext) AfterFunc(func()) func() bool { return func() bool { return true } }

// Value hides the inner context. Otherwise context.AfterFunc would register with it directly.
func (lateContext) Value(any) any { return nil }

// Fails when Run waits for a function that it has stopped, or when no client is notified of the end
// in that order.
func TestRunThatSeesTheEndFirst(t *testing.T) {
	t.Parallel()
	s := grpchealth.New(grpchealth.Services{})
	c := dial(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(lateContext{ctx}) }()
	check(t, c, "", serving)
	cancel()
	wait(t, ended)
	check(t, c, "", notServing)
}

// Fails when two calls of a function overlap, so that the older result is stored last.
func TestAnOldAnswerDoesNotFollowANewOne(t *testing.T) {
	t.Parallel()
	entered, gate := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	s := grpchealth.New(grpchealth.Services{Ready: func() error {
		if calls.Add(1) > 1 {
			return errBad
		}
		close(entered)
		<-gate
		return nil // an outdated result
	}})
	c := dial(t, s)
	var first sync.WaitGroup
	first.Go(func() { _, _ = c.Check(bounded(t), &healthpb.HealthCheckRequest{}) })
	wait(t, entered)
	second := make(chan struct{})
	go func() {
		defer close(second)
		check(t, c, "", notServing)
	}()
	select {
	case <-second:
	case <-time.After(200 * time.Millisecond): // the call waits for the first one
	}
	close(gate)
	<-second
	first.Wait()
	watch(t, c, "")(notServing)
}

func ExampleNew() {
	draining := false
	server := grpchealth.New(grpchealth.Services{
		Ready: func() error { // in a program, the Ready method of a health.Handler
			if draining {
				return errors.New("draining")
			}
			return nil
		},
		Names: []string{"shop.v1.Orders"},
	})
	g := grpc.NewServer()
	healthpb.RegisterHealthServer(g, server)

	for _, draining = range []bool{false, true} {
		r, err := server.Check(context.Background(), &healthpb.HealthCheckRequest{Service: "shop.v1.Orders"})
		fmt.Println(r.GetStatus(), err)
	}
	// Output:
	// SERVING <nil>
	// NOT_SERVING <nil>
}
