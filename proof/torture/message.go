package torture

// A Message is an entry about a message of an outbox, or about the change that it belongs to. The
// change with number Version of an Order has a Count of messages, with an Index from 0 on.
type Message struct {
	Order   string `json:"order,omitempty"`
	Version int64  `json:"version,omitempty"`
	Index   int    `json:"index,omitempty"`
	Count   int    `json:"count,omitempty"`
	// By is the transaction. One that was rolled back and the next may have the same Version.
	By string `json:"by,omitempty"`

	Keyed   bool   `json:"keyed,omitempty"` // it keeps the order of its Order
	Seq     int64  `json:"seq,omitempty"`   // of its row
	Attempt int    `json:"attempt,omitempty"`
	State   string `json:"state,omitempty"`
	Node    string `json:"node,omitempty"` // of an attempt
	// Outcome is how an attempt ended, as package outbox calls it; what a sink has said: Accepted,
	// Refused or Failed; or what became of a transaction.
	Outcome string `json:"outcome,omitempty"`
}

// The kinds of lines about messages. Of a message there are also Started and Returned, of the relay
// that gave it to its sink; and Row and Tried, what the database has in the end.
const (
	Appended = "appended" // of a producer: a transaction has ended
	Due      = "due"      // of the watch: it could be delivered from First to Last
	Dropped  = "dropped"  // of a receiver: it has had the message
	Change   = "change"   // what the database has in the end of a change
	Effect   = "effect"   // the same of what a receiver has done, in the order of the lines
)

// What sinks say.
const (
	Accepted = "accepted"
	Refused  = "refused" // for good
	Failed   = "failed"
)
