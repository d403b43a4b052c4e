// Package outbox sends messages that belong to a change of state: either both the change and its
// message are committed, or neither is. A relay delivers the messages, in order for each key.
// Receivers drop duplicates, so that every message takes effect once.
//
//	box := pgxoutbox.New(pool, outbox.Options{}) // or MySQL, SQLite
//
//	// the producer, in its own transaction
//	_, err := box.Append(ctx, pgxoutbox.Tx(tx), outbox.Message{
//		ID: outbox.NewID("order-42", version, 0), Topic: "invoice.create", Key: "order-42", Payload: order,
//	})
//	...
//	err = tx.Commit(ctx)
//	box.Notify() // optional: the relay need not wait for its next look
//
//	// on any number of hosts
//	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Sinks: map[string]outbox.Sink{"invoice.create": sink}})
//	err = relay.Run(ctx)
//
//	// the receiver, in its own transaction
//	fresh, err := box.Inbox().Once(ctx, pgxoutbox.Tx(tx), "billing", id)
//
// Without an outbox, a service that writes to its database and then sends a message loses the
// message if it dies in between, and cannot tell which messages are lost (the dual-write problem).
//
// # What is promised
//
// A message whose transaction was committed is never lost. It is pending until a sink accepts it;
// then it is dispatched. A message is dead once a sink has rejected it or has failed for
// Retry.MaxElapsedTime (54 days), or once the message has killed MaxCrashes relays. A dead message
// stays, with the history of its attempts, until an operator requeues or deletes it. A message
// whose transaction was rolled back does not exist.
//
// Delivery is at least once. If the receiver uses Inbox.Once or a Window, each message takes effect
// once.
//
// Messages with the same key are delivered in the order in which they were appended, even with
// retries: while a message waits for its next attempt, the later messages of its key wait, too.
// Other keys continue.
//
// One host delivers at a time. With RelayConfig.Shards, one host at a time delivers each shard, and
// each key belongs to one shard. When a host dies, another host takes over within RelayConfig.TTL +
// RetryInterval.
//
// # What is not promised
//
// There is no order between keys or between messages without a key. If two transactions append
// messages with the same key at the same time, the messages are delivered in the order of their
// rows. That order may differ from the order of the commits, and the second message may be
// delivered before the first is committed. So transactions that append messages with the same key
// must run one after the other, as they do anyway if they update the same row.
//
// A relay that was stopped (SIGSTOP) in the middle of a delivery may finish the delivery after
// another relay has delivered the same message and later ones. A receiver that records processed
// messages drops the second copy. A receiver without such a record needs the version of the state
// in the message to tell an old message from a new one.
//
// Append returns before the message is delivered. A caller that must show the result immediately
// reads it from its own database.
//
// # Programs in other languages
//
// A program in another language computes the same IDs as NewID if it passes these test vectors:
//
//	source     version               index  name                                    ID
//	order-42   7                     0      8:order-421:71:0                        3457d5ae-dd45-50af-8990-1ee9bc64d5fe
//	order-42   7                     1      8:order-421:71:1                        350e7cdb-9ede-5190-ad5a-a606e0653147
//	order-427  0                     0      9:order-4271:01:0                       d61cb410-7c32-5ef1-b3ae-78904734d4ca
//	(empty)    0                     0      0:1:01:0                                097c4388-b2bb-5446-98c4-4a36a89acd9d
//	größe 😀    18446744073709551615  -1     12:größe 😀20:184467440737095516152:-1   4cb3a9d0-a4c2-565d-983f-3dd43eaa9027
//
// Such a program may also insert messages itself, into the columns topic, key, payload, and:
//
//   - message_id: a UUID, or its 16 bytes on MySQL, MariaDB and SQLite.
//   - headers: a JSON object whose values are strings, {} if there are none. A number is not a
//     string: {"retries": "3"}.
//   - key_hash: the CRC-32 (IEEE, as in zlib and gzip) of the bytes of key, from 0 to 4294967295.
//     For a message without a key, it is the first four bytes of the ID, most significant first. A
//     wrong hash breaks the order of the key.
//
// For example:
//
//	key       ID                                    key_hash
//	order-42  any                                   1475806942
//	größe 😀   any                                   2046769627
//	(empty)   3457d5ae-dd45-50af-8990-1ee9bc64d5fe  878171566
//	(empty)   d61cb410-7c32-5ef1-b3ae-78904734d4ca  3592205328
//
// The tables refuse most invalid rows. If an invalid row is inserted nevertheless, the relay calls
// no sink for it. The message is dead with OutcomeUnreadable and an error that says what is wrong,
// and all other messages are delivered. Correct the row, and Requeue the message.
//
// # Many pending messages
//
// A relay never reads all messages that wait for an earlier message of their key, were dispatched
// or are dead, no matter how many there are. It reads the first 128 pending messages of all shards,
// or twice RelayConfig.BatchSize if that is more, and then searches key by key:
//
//   - One call reads up to 256 keys, or eight times BatchSize if that is more. On MySQL, MariaDB
//     and SQL Server, it reads that many messages instead. MySQL and MariaDB skip the messages of
//     500 keys that wait for their next attempt. If more keys wait, further calls read the rest.
//     After a call that finds nothing, the relay pauses for as long as that call took. A new
//     message after ten thousand waiting keys is found with about forty calls, or a few times as
//     many on MySQL, MariaDB and SQL Server.
//   - For a key beyond the first messages, a call returns at most eight messages. The next ones
//     follow when these are delivered.
//   - Beyond the first messages, messages without a key are read one by one if their topic has no
//     sink or if they belong to another shard.
package outbox
