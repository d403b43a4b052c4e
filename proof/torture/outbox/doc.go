// Command outbox tortures outboxes, against I15: operating-system processes as producers, relays
// and receivers, a real database behind them, and a nemesis that breaks all of them.
//
//	go run -tags sqlite ./proof/torture/outbox -store postgres,pgbouncer,mariadb,sqlite -for 8m -seed 7
//
// Producers change orders and append messages about that in the same transactions, some of which
// they roll back. Relays, which change the number of shards as they come and go, deliver over HTTP,
// through sinks that fail, hang, panic and reject. Receivers have their effects in the transaction
// of Inbox.Once, and then sometimes answer that they failed, or not at all; those of one topic hang
// for longer than any time-out, and its sink ignores its context: all others are delivered in time.
// A standby of Postgres is promoted that lacks the last seconds: only that is lost. Each of them is
// this program once more, behind a fault proxy of its own (SQLite has none). Last, while nothing
// else is done, the relay that delivers is killed and stopped, and another one has to take over in
// time.
//
// A watch looks into the database. When all messages are dispatched or dead, what was written down
// and what the database has is examined by package deliveries, which knows nothing of the library.
// The last line of the output is a line of JSON; the exit status is 1 if anything was broken, or if
// too little happened to tell.
//
// The seed decides what is done to whom, when and for how long (-plan prints it), not what comes of
// it. What it cannot do: lose power, or set clocks.
package main
