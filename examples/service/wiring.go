package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/httpsink"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/service/sqliteservice"
	"github.com/tickslot/tickslot/timer"
)

// serve is the whole program. It runs until ctx ends, and sends its address to listening.
func (s *shop) serve(ctx context.Context, addr string, listening chan<- string) (err error) {
	s.svc, err = sqliteservice.New(s.db, service.Config{
		Environment:  "demo",
		DrainTimeout: 10 * time.Second,
		Registerer:   prometheus.DefaultRegisterer, // also has metrics of the process
		Timers:       timer.Config{Limits: []timer.Limit{{Name: "image-server", Size: 4}}},
		Relay: outbox.RelayConfig{Retry: outbox.Retry{MaxWait: 2 * time.Second},
			Sinks: map[string]outbox.Sink{topicPlaced: httpsink.New(s.partner, httpsink.Options{})}},
	}, s.timers()...)
	if err != nil {
		return err
	}
	s.receipt = service.Handle(s.svc.Worker(), "receipt", s.writeReceipt, durable.HandlerOptions{MaxConcurrency: 3})
	s.svc.Worker().Handle("report", s.writeReport, durable.HandlerOptions{})
	s.svc.Worker().Schedule("report", "report", schedule.Every(10*time.Second), durable.ScheduleOptions{})

	mux := http.NewServeMux()
	mux.Handle("/admin/", s.svc.Page(page.Config{Authorize: s.operator}))
	mux.Handle("/", s.svc.Probes())
	mux.Handle("/metrics", s.svc.Metrics())
	mux.HandleFunc("GET /{$}", s.show)
	mux.HandleFunc("POST /orders", s.order)
	server := &http.Server{Addr: addr, Handler: mux, BaseContext: func(l net.Listener) context.Context {
		listening <- "http://" + l.Addr().String()
		return context.WithoutCancel(ctx)
	}}
	return s.svc.Run(ctx, tickslot.Server(server), tickslot.PartFunc(s.followStock))
}

// followStock runs on one host of the fleet at a time.
func (s *shop) followStock(ctx context.Context) error {
	session, err := dlock.NewSession(s.svc.Locks(), dlock.SessionOptions{})
	if err != nil {
		return err
	}
	defer session.Close(context.WithoutCancel(ctx))
	return leader.Run(ctx, session, leader.Role{Name: "stock-feed", Registerer: prometheus.DefaultRegisterer,
		Run: func(ctx context.Context, _ *leader.Term) error {
			<-ctx.Done() // simulates following the feed
			return nil
		}})
}

// timers returns timers of all kinds. Each has a fleet-wide limit: if you start this program twice
// with the same -db, at two addresses, both share the limits.
func (s *shop) timers() []timer.Timer {
	all := []timer.Timer{
		{Name: "refresh-rates", Schedule: schedule.Every(2 * time.Second), Run: busy(300 * time.Millisecond)},
		{Name: "resize-images", Schedule: schedule.Every(3 * time.Second), MaxConcurrency: 3, MaxPerTick: 3,
			Limits: []string{"image-server"}, Run: busy(4 * time.Second)},
		{Name: "purge-carts", Schedule: schedule.Cron("*/5 * * * * *", "Europe/Berlin"), Run: busy(time.Second / 20)},
		{Name: "sync-stock", Schedule: schedule.Every(4 * time.Second), Delay: timer.Delay{Jitter: 0.2},
			OnFull: timer.FullWait, Run: busy(time.Second)},
		{Name: "nightly-backup", Schedule: schedule.Daily("03:00", "Europe/Berlin"), Run: busy(5 * time.Second)},
		{Name: "import-prices", Schedule: schedule.Every(6 * time.Second), Retry: timer.Retry{MaxAttempts: 2},
			Run: func(context.Context) error { return errors.New("the supplier answers 503") }},
		{Name: "warm-cache", Schedule: schedule.Every(5 * time.Second), LocalOnly: true, // on every host
			RunOnStart: timer.RunOnStartEachHost, Run: busy(100 * time.Millisecond)},
	}
	if s.customers > 0 {
		all = append(all, timer.Timer{Name: "customers", Schedule: schedule.Every(s.customers),
			Run: func(ctx context.Context) error { return s.place(ctx, "dora") }})
	}
	return all
}

// busy returns work that takes a while.
func busy(takes time.Duration) timer.Handler {
	return func(ctx context.Context) error {
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done(): // the lease was lost, or the program is stopping
			return context.Cause(ctx)
		}
	}
}

// operator grants access to users with the password, under the name operator. Without a password,
// it accepts requests from this machine. In your own program, check your own sessions instead.
func operator(password string) (func(*http.Request) page.Access, error) {
	if password != "" {
		return page.BasicAuth(page.User{Name: "operator", Password: password, Act: true, Payloads: true})
	}
	return func(r *http.Request) page.Access {
		access := page.Loopback(r)
		access.Act, access.Payloads, access.By = access.Read, access.Read, "you"
		return access
	}, nil
}
