// Package tickslot runs the parts of a program: see [Run]. It is the root of a module for recurring
// timers that run at most N times at once in a fleet of hosts, and for other products on the same
// leases. Its packages answer these questions:
//
//   - How do I assemble all parts on Postgres, SQLite or Redis? See [service].
//   - When is a timer due? See [schedule].
//   - May it run on this host now, and how did it end? See [timer], and start there.
//   - Is this lock still mine? See [dlock], also for a mutex or semaphore of your own.
//   - Where are locks stored? On Redis: [redislock], or [redlock] on several independent servers.
//     On Postgres, MySQL or SQLite: [sqllock], and [pgxlock] for pgx; without a table:
//     [nativelock]. In the memory of one process: [memlock].
//   - Which host is the leader? See [leader].
//   - How does work survive the death of a host? See [durable], and [pgxdurable] for Postgres.
//   - How is a message sent if, and only if, a change is committed? See [outbox], and [pgxoutbox]
//     for Postgres.
//   - Which hosts exist, and what do they hold? See [cluster], and its [page] for operators.
//   - How long do locks wait, how long are they held, and how many are lost? See [lockmetrics].
//   - Does my own store satisfy the contract? See [dlocktest].
//   - What do probes answer? See [health].
//
// The command line, traces and gRPC health are separate modules: cmd/tickslot, oteltickslot and
// health/grpchealth.
//
// docs/guarantees.md lists the promises and their limits. docs/architecture.md describes how the
// parts work together.
//
// [service]: https://pkg.go.dev/github.com/tickslot/tickslot/service
// [schedule]: https://pkg.go.dev/github.com/tickslot/tickslot/schedule
// [timer]: https://pkg.go.dev/github.com/tickslot/tickslot/timer
// [dlock]: https://pkg.go.dev/github.com/tickslot/tickslot/dlock
// [redislock]: https://pkg.go.dev/github.com/tickslot/tickslot/dlock/redislock
// [redlock]: https://pkg.go.dev/github.com/tickslot/tickslot/dlock/redlock
// [sqllock]: https://pkg.go.dev/github.com/tickslot/tickslot/dlock/sqllock
// [pgxlock]: https://pkg.go.dev/github.com/tickslot/tickslot/dlock/sqllock/pgxlock
// [nativelock]: https://pkg.go.dev/github.com/tickslot/tickslot/dlock/nativelock
// [memlock]: https://pkg.go.dev/github.com/tickslot/tickslot/dlock/memlock
// [leader]: https://pkg.go.dev/github.com/tickslot/tickslot/leader
// [durable]: https://pkg.go.dev/github.com/tickslot/tickslot/durable
// [pgxdurable]: https://pkg.go.dev/github.com/tickslot/tickslot/durable/pgxdurable
// [outbox]: https://pkg.go.dev/github.com/tickslot/tickslot/outbox
// [pgxoutbox]: https://pkg.go.dev/github.com/tickslot/tickslot/outbox/pgxoutbox
// [cluster]: https://pkg.go.dev/github.com/tickslot/tickslot/cluster
// [page]: https://pkg.go.dev/github.com/tickslot/tickslot/cluster/page
// [lockmetrics]: https://pkg.go.dev/github.com/tickslot/tickslot/dlock/lockmetrics
// [dlocktest]: https://pkg.go.dev/github.com/tickslot/tickslot/dlock/dlocktest
// [health]: https://pkg.go.dev/github.com/tickslot/tickslot/health
package tickslot
