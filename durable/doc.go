// Package durable runs recurring and triggered work that must not be lost: each run is a row in a
// database until it succeeds or becomes a dead letter for an operator to handle.
//
//	store := pgxdurable.New(pool, durable.Options{}) // or SQLite
//	worker, err := durable.NewWorker(store, durable.Config{MaxRuns: 16})
//	worker.Handle("report", buildReport, durable.HandlerOptions{
//		MaxConcurrency: 3,
//		Retry:          durable.Retry{MaxElapsedTime: 3 * 24 * time.Hour},
//	})
//	worker.Schedule("report-daily", "report", schedule.Daily("07:00", "Europe/Berlin"),
//		durable.ScheduleOptions{})
//	err = worker.Run(ctx) // blocks; drains and gives back its leases when ctx ends
//
// A program that only triggers runs needs no worker:
//
//	id, err := store.Trigger(ctx, pgxdurable.Tx(tx), "report", payload,
//		durable.TriggerOptions{})
//
// # What is promised
//
// A committed run is never lost. It is tried until its handler returns nil or an error marked by
// Permanent, until it has failed for three weeks (Retry sets other bounds, by time and by count),
// or until an operator cancels it. If a worker dies, hangs or loses its database, another worker
// reclaims its runs within TTL + PollInterval, even without having their handler. A run that has
// lost its lease MaxCrashes times becomes a dead letter, because it may be killing the workers.
//
// A run has one owner at a time: the worker that holds its lease. Before the lease can go to
// another worker, the run's context has ended (context.Cause matches ErrLeaseLost). When the whole
// process was paused (SIGSTOP) beyond its lease, Run.Valid is false immediately afterwards, and the
// context ends within a second. After a sleep of the machine, the same holds only on Linux, where
// clocks measure the sleep exactly. A worker's writes for a run that it no longer owns change
// nothing, because every write names the attempt.
//
// Each tick of a schedule has at most one run and is counted once, as queued, coalesced, skipped or
// paused.
//
// Three limits hold at every instant, in the whole fleet:
//
//   - HandlerOptions.MaxConcurrency: runs of a handler in the fleet.
//   - Config.MaxActive: runs of all handlers in the fleet.
//   - Config.MaxRuns: runs of this worker.
//
// # What is not promised
//
// A handler may be called, and may even finish, more than once for a run: after a crash, after a
// lost lease, and if its result cannot be written. So it has to be idempotent. Run.Key, which is
// the same for all attempts, helps with that. A handler that ignores its context keeps running
// after its lease is lost. It then no longer counts towards the limits of the fleet, but keeps its
// place on its worker.
//
// If the database's clock is set forward, leases end early. A worker notices with its next renewal,
// within a third of the lease; until then a run may have two owners.
//
// Runs are claimed in the order of priority and due time, but may end in another order, and several
// workers may execute the runs of one handler in any order.
//
// Package durable is not a general job queue: it has no workflows and no uniqueness by arguments.
// docs/which-one.md explains when to use a timer, a durable run, the outbox, or River.
//
// # Lines in the log
//
// These lines keep their text and keys across versions. At a …, the line continues with an
// explanation.
//
//	"durable: worker started"                   Info: worker, handlers, schedules, max_runs, ttl
//	"durable: draining"                         Info: cause
//	"durable: worker stopped"                   Info: worker, drain, still_running
//	"durable: materialize cycle starting"       Debug
//	"durable: materialize cycle completed"      Debug: due, queued
//	"durable: ticks materialized"               Debug: schedule, queued, coalesced, skipped, paused
//	"durable: ticks already materialized by …"  Debug: schedule
//	"durable: claim cycle starting"             Debug: room
//	"durable: claim cycle completed"            Debug: claimed
//	"durable: run started"                      Debug
//	"durable: run ended"                        Debug: outcome, took, err
//	"durable: an attempt failed: …"             Warn: outcome, took, err, retry_in, left_out
//	"durable: a run was given back"             Info: outcome, took, err
//	"durable: a run was canceled"               Info: by, note
//	"durable: a run was reclaimed: …"           Warn: run, handler, attempt, worker, leases_lost
//	"durable: a run has lost its lease: …"      Warn
//	"durable: gave up: …"                       Error: outcome, took, err, attempts, tried_for,
//	                                            stack, left_out
//	"durable: the database does not answer: …"  Error: err
//	"durable: the database answers again"       Info: down_for
//
// A line about a run also has run, handler, attempt and worker; for the run of a tick, also
// schedule and due_at. drain is how long the drain took. still_running names the handlers that did
// not return, if any. Each handler logs at most ten lines a minute about failed attempts and dead
// letters. Further ones are logged at Debug, and left_out says how many. The database skips runs
// that another worker has claimed, so no line reports them.
//
// # Databases
//
// Postgres 13 or newer (package pgxdurable), also behind a PgBouncer in transaction mode, and
// SQLite 3.38 or newer, for the processes of one machine. Call Store.Migrate once per deployment,
// or at every start. All deadlines are computed by the database's clock, so the clocks of hosts may
// differ by any amount.
//
// A run that is triggered in a transaction becomes visible when the transaction commits, and starts
// at the next poll of a worker: within PollInterval, or within milliseconds after Store.Notify
// (Postgres). Worker.Trigger without a transaction wakes its own worker immediately. The worker
// that is first to queue a due tick starts its run. If that worker has no room, it notifies the
// others.
//
// # Fixed times
//
// These times cannot be configured:
//
//   - A tick counts as missed (CatchUp) when it is queued more than LateAfter (1 min) late, or when
//     a later tick is due as well.
//   - A worker registers its handlers and schedules every minute. It counts as gone three and a
//     half minutes after its last registration.
//   - If the answer to a claim took longer than half of TTL, the worker gives back the claimed
//     runs.
//   - The database counts as down after three failed calls in a row, until one succeeds.
//   - Health checks and metrics of the fleet show data that is read about every 30 s. They show
//     none if it is more than 2 min old.
//   - The history of a run keeps its first 10 and its latest 40 attempts, with up to 4,096 bytes of
//     each error.
package durable
