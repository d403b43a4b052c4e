package torture

// A Message is a log entry about an outbox message, or about its change. The change with number
// Version of an Order has Count messages, with an Index from 0.
type Message struct {
	Order   string `json:"order,omitempty"`
	Version int64  `json:"version,omitempty"`
	Index   int    `json:"index,omitempty"`
	Count   int    `json:"count,omitempty"`
	// By is the transaction. A rolled back transaction and the next one may have the same Version.
	By string `json:"by,omitempty"`

	Keyed   bool   `json:"keyed,omitempty"` // it is in order with others of its Order
	Seq     int64  `json:"seq,omitempty"`   // number of its row
	Attempt int    `json:"attempt,omitempty"`
	State   string `json:"state,omitempty"`
	Node    string `json:"node,omitempty"` // of an attempt
	// Outcome is how an attempt ended, in the terms of package outbox; the result of a sink:
	// Accepted, Refused or Failed; or the outcome of a transaction.
	Outcome string `json:"outcome,omitempty"`
}

// These are the kinds of lines about messages. There are also Started and Returned, from the relay
// that passed a message to its sink, and Row and Tried, from the final database.
const (
	Appended = "appended" // from a producer: a transaction has ended
	Due      = "due"      // from the watch: deliverable from First to Last
	Dropped  = "dropped"  // from a receiver: a duplicate
	Change   = "change"   // the final state of a change in the database
	Effect   = "effect"   // the final effects of a receiver, in the order of the lines
)

// These are the results of sinks.
const (
	Accepted = "accepted"
	Refused  = "refused" // permanently
	Failed   = "failed"
)
