package main

// settings are those of the other libraries, from their documentation.
const settings = `- Every pool of connections to Redis has 64; go-redis otherwise has its defaults, for rivals. The leases of all are 15 s long.
- redsync: a ` + "`Mutex`" + ` per worker, kept; ` + "`TryLockContext`" + `, so that there is no retry.
- bsm/redislock: no retry strategy and no metadata.
- rueidislock: ` + "`KeyMajority: 1`" + ` (one server), ` + "`NoLoopTracking: true`" + `, ` + "`TryNextAfter`" + ` 1 s, as there is no next key.
- etcd: embedded, one member, fsync on; one session, ` + "`TryLock`" + `. It makes durable what Redis does not.
- asynq ` + "`x/rate`" + `: the newest version that the module proxy has, which insists on go-redis v8; its script with v9 stands beside it. A token is
  taken for a task, so a real asynq server lends the contexts of tasks.
- robfig/cron: its default chain (no wrappers), a schedule that delays by a period to the millisecond.
- gocron: its defaults, ` + "`DurationJob`" + `.
- naive loop: SET NX PX (Postgres: INSERT … ON CONFLICT … WHERE expired) for one slot after the other; the first ones are held, as it would hold them itself.
- tickslot: a ` + "`dlock.Session`" + `, with everything that it does, on a ` + "`redislock.Store`" + ` with ` + "`PoolSize: 64`" + `; schedulers with a handler that counts.
- Postgres: 16 workers and 16 connections on each side. tickslot has four stores of four, as on four hosts, and prepares nothing (so that any PgBouncer will do);
  the naive loop has one pool, and pgx' default, statements that are prepared once.
- Latency store by store: one caller, one of five slots with a tick; Redis keeps nothing on disk, Postgres writes each commit to it, MariaDB leaves
  that to the system, SQLite (synchronous=NORMAL) writes at its checkpoints. "10 ms away" is a proxy on this machine that delays every chunk by 5 ms in each direction.
- 64 due timers: the time until the last of 64 attempts that begin together has its answer, the median of the bursts of a window.
`

// durableSettings are the settings of the part for durable runs.
const durableSettings = `- Each fleet has a database of its own on the one Postgres of the run (its defaults: fsync on, 128 MB of shared buffers), a file (SQLite,
  WAL, synchronous=NORMAL) or a database of the one Redis. Its workers are goroutines of one process, each with a pool of 10 connections of its own, as in
  processes of their own; those on SQLite share theirs. Statements are prepared, as pgx does by default. The payload is a number in JSON, on all sides.
- History: tickslot keeps the run and a row for each attempt (7 days), River the job (24 h), asynq the task (` + "`Retention(24h)`" + `). All of them are counted in the
  database before the clock stops. It starts with the first job, so that it does not matter how long a library takes to start.
- tickslot: its defaults, but for ` + "`MaxRuns`" + `: 500 for no-ops, 16 for starts, 10 for slots, 50 for the steady load. A client triggers in its own transaction, or
  one by one without, and calls ` + "`Notify`" + ` after that.
- River OSS: what its own benchmark has, as that is "much better than the client's default values": ` + "`FetchCooldown`" + ` 2 ms, ` + "`FetchPollInterval`" + ` 20 ms, and for
  no-ops ` + "`MaxWorkers`" + ` 2,000; with "its defaults" 100 ms and 1 s. ` + "`Insert`" + ` for one job, ` + "`InsertMany`" + ` for many; it notifies in the same transaction. It has no
  limit over the fleet (that is in River Pro), so its share of slots is that of four clients without one.
- asynq: ` + "`Concurrency`" + ` 100 for no-ops, else as the others. Its Redis keeps nothing on disk, or syncs each write where that is said. With its defaults a server that
  has found nothing looks again after a second, and for tasks of the future every 5 s; its instants are whole seconds, so its jobs are due at one. No limit over the fleet.
- Starts: two workers; jobs come every 25 ms on average. The time is that from before the call that triggers a job, or from the instant for which it was scheduled,
  until its handler begins. Those that are scheduled ahead are queued 6.5 s before the first is due, which is longer than any library waits between two polls. There
  are 40 schedules of a second, spread over it.
- Slots: the replay of riverqueue/river#1145, where River Pro fell from 33,000 to 17,000 jobs of 5 s per hour when four clients with ten workers each got a limit
  of 40. Here jobs take 100 to 500 ms, so that what is lost between two jobs counts more. Jobs always wait. The value is the time in handlers, of all that 40 slots have.
- xmin: a transaction of level REPEATABLE READ has a snapshot and does nothing, for as long as the case is measured. Four clients queue 10 jobs every 50 ms each, for four
  workers with room for 50; "/s by 1:00" is the rate of the half minute before. The "dead rows" are those of all tables of the database at the end.
- Idle: defaults, 1,000 schedules of a year on each worker; a proxy counts what is executed, with BEGIN, COMMIT and settings, and how often a client waits for an answer.
`

// outboxSettings are the settings of the part for the outbox.
const outboxSettings = `- Each case has a database of its own on the one Postgres of the run (its defaults: fsync on, 128 MB of shared buffers). Relays, subscribers, clients and
  the producer are goroutines of one process, each with a pool of 10 connections of its own, as in processes of their own. The payload is a number in JSON, on all sides.
- tickslot: its defaults (batches of 32, 8 deliveries at once), messages of 1,000 keys unless something else is said; the producer has an ` + "`Outbox`" + ` of its own, and calls
  ` + "`Notify`" + ` after each commit. It keeps each message and a row for each attempt (30 days).
- watermill-sql: as its documentation has it for an outbox: a publisher in the transaction, pgx, its default schema, payloads as JSON, batches of 100; a subscriber that handles
  and acknowledges, or, as "forwarder", the forwarder with its envelopes. "Queue schema" is its other schema, which deletes what was acknowledged, and keeps nothing.
  The default schema keeps the messages, and where each group of consumers is. Messages are delivered one after the other, in one order, within a transaction that is open until all
  of a batch are acknowledged. There is no fail-over to measure: several subscribers take turns at a row lock, which ends with its connection.
- River OSS, as an outbox: ` + "`InsertTx`" + `, and a worker that delivers; two clients, with ` + "`FetchCooldown`" + ` 2 ms, ` + "`FetchPollInterval`" + ` 20 ms and ` + "`MaxWorkers`" + ` 2,000, as its own
  benchmark has; "its defaults" are 100 ms, 1 s and room for 16. It keeps no order.
- Append: each transaction has ten messages and ten bare INSERTs of such a row, into a table with the same indexes, in turns; the commit is not measured. The bare INSERT is
  prepared once, as pgx does by default; Append prepares nothing, so that any PgBouncer will do. "Over an INSERT" is the difference of the two medians of a round.
- Delivery: sinks do nothing. All messages wait when it starts; it begins with the first delivery, and ends when the database has the results of all.
- From commit to delivery: one producer; two relays, subscribers or clients; messages come every 25 ms on average. The clock starts when the commit has returned.
- Fail-over: each relay is a process; the one that delivers is killed (SIGKILL). Messages come every 20 ms. The time is that until the database has the first delivery of another relay.
- Old messages: of the same 1,000 keys, with an attempt each.
- River with tickslot's limit: ` + "`contrib/river`" + `; four clients with their defaults, each with a session of its own on the one Redis; jobs always wait. The measurement fails if
  more jobs than the limit allows go on at once.
`
