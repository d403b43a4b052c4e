// Command outbox tortures outboxes, to attack I15. Operating system processes are the producers,
// relays and receivers, with a real database, and a nemesis breaks all of them.
//
//	go run -tags sqlite ./proof/torture/outbox -store postgres,pgbouncer,mariadb,sqlite -for 8m -seed 7
//
// Producers change orders and append messages in the same transactions, and roll some of them back.
// Each starting relay changes the number of shards. Relays deliver over HTTP, through sinks that
// fail, hang, panic and reject. Receivers apply effects in the transaction of Inbox.Once, and then
// sometimes return an error or no answer. The receivers of one topic hang for longer than any
// timeout, and its sink ignores its context; all other topics must be delivered in time. A Postgres
// standby that lacks the last seconds is promoted: only these may be lost. Each role is another
// process of this program behind its own fault proxy (SQLite has none). Finally, without other
// faults, the delivering relay is killed and paused, and another must take over in time.
//
// A watch reads the database. When all messages are dispatched or dead, package deliveries, which
// knows nothing of the library, checks the logs and the database. The last line of the output is
// JSON. The exit status is 1 if a promise was broken, or if too little happened.
//
// The seed determines the target, time and duration of each fault (-plan prints them), but not the
// consequences. The program cannot simulate power loss, or set clocks.
package main
