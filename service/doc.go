// Package service assembles a program: timers, durable runs, an outbox, the registry of the fleet,
// the operator's page, probes and metrics, under one holder, with one start and one drain. Make a
// Service with the package of your database:
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
// Packages pgservice, sqliteservice and redisservice (locks and timers only) make the stores; New
// takes stores of any other kind. None of them links the driver of another.
//
// A Service adds nothing to what its parts promise, and hides none of them: Timers, Worker, Relay,
// Registry and the stores are there for all that Config has no field for, and each can be assembled
// by hand instead.
package service
