// Command durable tortures durable runs, against I14: operating-system processes as workers, a real
// database behind them, and a nemesis that breaks both.
//
//	go run -tags sqlite ./proof/torture/durable -store postgres,pgbouncer,sqlite -for 12m -seed 7
//
// Each worker is this program once more, with a real durable.Worker, behind a fault proxy of its
// own (SQLite has none). Its handlers succeed, fail, panic, work for longer than their leases, and
// ignore their contexts; they write down when they were called, when they returned, and in which
// stretches of time Run.Valid was true. Clients trigger runs in transactions, some of which they
// roll back, and write down what became of each. A standby of Postgres is promoted that lacks the
// last seconds: only that is lost, or done again. A watch looks into the database. When all faults
// are over and all runs have ended, what was written down and what the database has is examined by
// package owners, which knows nothing of the library. The last line of the output is a line of
// JSON; the exit status is 1 if anything was broken, or if too little happened to tell.
//
// The seed decides what is done to whom, when and for how long (-plan prints it), not what comes of
// it. What it cannot do: lose power, or set clocks.
package main
