// Package service assembles a program from timers, durable runs, an outbox, the registry of the
// fleet, the operator's page, probes and metrics. All parts share one holder, start together and
// drain together. Create a Service with the package for your database:
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
// Packages pgservice, sqliteservice and redisservice (locks and timers only) create the stores. New
// accepts any other stores. None of these packages links the driver of another.
//
// A Service adds nothing to the promises of its parts, and hides none of them. Use Timers, Worker,
// Relay, Registry and the stores for anything that Config has no field for. You can also assemble
// each part yourself.
package service
