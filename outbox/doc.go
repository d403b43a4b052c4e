// Package outbox sends the messages that belong to a change of state: change and message are
// committed together, or neither is. A relay delivers them, in order for each key, and receivers
// drop what they have had before, so that every message has its effect once.
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
// Without it, a service that writes to its database and then sends a message loses the message if
// it dies in between, and cannot tell which ones are lost (the dual write).
//
// # What is promised
//
// A message whose transaction was committed is never lost. It is pending until a sink has taken it
// (dispatched), has rejected it, or has failed for as long as Retry.MaxElapsedTime says, 54 days
// (dead); a dead message stays, with the history of its attempts, until somebody requeues or
// deletes it. So is one that has killed MaxCrashes relays. A message whose transaction was rolled
// back was never there.
//
// Delivery is at least once. With Inbox.Once, or a Window, at the receiver its effect is once.
//
// Messages of one key are delivered in the order in which they were appended, through retries: a
// key whose message waits for its next attempt holds back its later messages. Other keys go on.
//
// One host delivers at a time; with RelayConfig.Shards, one for each shard, and a key belongs to
// one shard. A host that dies is followed by another within RelayConfig.TTL + RetryInterval.
//
// # What is not promised
//
// There is no order between keys, nor between messages without a key. If two transactions append to
// one key at the same time, their messages are delivered in the order of their rows, which need not
// be that of the commits, and the second may be delivered before the first is committed. So
// transactions that append to the same key must run one after the other, as they do anyway if they
// update the same row.
//
// A relay that was stopped (SIGSTOP) in the middle of a delivery may finish it after another one
// has delivered the same message, and its successors. A receiver that records the messages it has
// had drops the second copy. A receiver without such a record needs the version of the state in the
// message, to tell an old message from a new one.
//
// Append returns before anything is delivered. A caller that has to show something at once reads it
// from its own database.
package outbox
