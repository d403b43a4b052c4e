// Package service assembles a program: timers, durable runs, an outbox, the registry of the fleet,
// the operator's page, probes and metrics. All share one holder, start together and drain together.
// Make a Service with the package of your database:
//
//	svc, err := pgservice.New(pool, service.Config{Environment: "production"},
//		timer.Timer{Name: "rates", Schedule: schedule.Every(time.Minute), Run: fetchRates})
//	if err != nil {
//		return err
//	}
//	mux.Handle("/", svc.Probes())
//	mux.Handle("/admin/", svc.Page(page.Config{Authorize: page.Loopback}))
//	return svc.Run(ctx, tickslot.Server(&http.Server{Addr: ":8080", Handler: mux}))
//
// Packages pgservice, sqliteservice and redisservice (locks and timers only) create the stores; New
// accepts stores of any other kind. None of them links the driver of another.
//
// A Service adds nothing to what its parts promise, and hides none of them. For what Config has no
// field for, use Timers, Worker, Relay, Registry and the stores; each can also be assembled by hand
// instead.
package service
