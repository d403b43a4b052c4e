// Package store is what an outbox asks of a database, and the types of the answers. Package
// sqlstore implements it, and package memory for tests in virtual time; package storetest checks
// that they keep to it.
//
// All instants are those of the database's clock, in whole microseconds. Every method is one
// transaction of its own, done or not done, unless it takes the caller's. After an error the caller
// does not know which, and may call again: nothing is then done twice. Methods return when their
// context ends. An error matches dlock.ErrSetup if the database answers, but cannot serve until
// somebody sets it up right: a table or a right is missing, or the tables are older than this
// version needs.
package store

import (
	"context"
	"errors"
	"time"
)

// MaxName is how many bytes a topic, a key and the name of a consumer have at most.
const MaxName = 200

// MaxAppendAll is how many messages AppendAll takes: SQL Server has at most 2,100 parameters, and a
// message six.
const MaxAppendAll = 300

// ErrNoListen is what Listen returns if the database cannot wake anybody.
var ErrNoListen = errors.New("outbox: this database cannot wake other processes")

// ErrRepeat is matched by an error of Append and Once that is no fault of theirs, nor of the
// database: another transaction was in the way of the caller's, which has to be rolled back and
// done again from its begin.
var ErrRepeat = errors.New("roll the transaction back, and repeat it")

// Store keeps messages, attempts, and what receivers have had.
type Store interface {
	// String is "postgres", "mysql", "sqlite" or "sqlserver".
	String() string

	// Migrate creates or upgrades the tables, Verify checks them, and Schema returns what Migrate
	// executes. See package sqlmigrate.
	Migrate(ctx context.Context) error
	Verify(ctx context.Context) error
	Schema() ([]string, error)

	Producer
	Relay
	Receiver
	Operator
}

// Producer is what Append calls.
type Producer interface {
	// Append inserts a message in the caller's transaction. fresh is false if a message with this
	// ID is there. Then its topic, key and payload are returned for comparison, without headers: a
	// producer that repeats itself has another trace.
	Append(ctx context.Context, tx Tx, m Message) (fresh bool, old Message, err error)

	// AppendAll inserts messages with different IDs in the caller's transaction, in their order, in
	// two statements, and returns true. If one of the IDs is there already, it inserts none and
	// returns false. At most MaxAppendAll messages.
	AppendAll(ctx context.Context, tx Tx, list []Message) (bool, error)

	// NextAppended returns the first pending message with a Seq above after, as a transaction of
	// the caller sees it; ok is false if there is none. It is for tests of users.
	NextAppended(ctx context.Context, tx Tx, after int64) (m Message, seq int64, ok bool, err error)

	// Notify wakes the relays of other processes, if the database can.
	Notify(ctx context.Context) error
}

// Relay is what the host that leads a shard calls.
type Relay interface {
	// Layout returns how many shards there are, and how often that has changed. If want is not 0
	// and differs, it sets it first.
	Layout(ctx context.Context, want int) (Layout, error)

	// Due returns messages that can be delivered: pending, of the shard, with a NextAttemptAt that
	// has come, and with nothing before them in their key that has to be delivered first. Those of
	// a key are in the order of their rows, without a gap, and the first rows come first unless a
	// long queue is in the way. What is behind a message that was tried before is left out, until
	// that has ended. Beside those that somebody has requeued, those appended after all of these
	// have half of the answer, if there are so many. See DueRequest for what else is left out. It
	// takes no locks. If
	// request.Layout is not the current one, it returns none, and the current one.
	Due(ctx context.Context, request DueRequest) (Due, error)

	// Mark writes the results of attempts, at most one of a Seq, and a row for each. It keeps the
	// rows of the first FirstAttempts and the latest LastAttempts of a message. One counts only if
	// its message is still pending with the number of attempts that Due has returned: another relay
	// has not tried it since. It also has to be that message: a database that was put back to a
	// copy, or a standby that lagged, gives the numbers of rows that it lacks to other messages.
	//
	// It waits for no row that another session keeps locked: such results are not written, but
	// returned, and the caller calls again with them.
	Mark(ctx context.Context, relay string, results []Result) (Marked, error)

	// NoteBegun writes how many relays will have died while they delivered messages, if this one
	// dies, too, before the deliveries begin. Mark makes it 0. It writes nothing of a message that
	// is no longer pending with so many attempts, nor of one whose row another session keeps
	// locked.
	NoteBegun(ctx context.Context, list []Begun) error

	// Sweep deletes up to limit messages that were dispatched, or dead, for longer than the
	// retention of their state, with their attempts, and up to limit records of receivers that are
	// older than Inbox. 0 keeps them forever. It returns how many messages and records.
	Sweep(ctx context.Context, retention Retention, limit int) (deleted int, err error)

	// Failing returns the topics whose messages are tried again, those that have failed for longest
	// first: at most MaxFailingTopics, of the MaxFailing messages that have failed for longest.
	Failing(ctx context.Context) ([]FailingTopic, error)

	// Stats returns what health and metrics show. topics are those that this relay has a sink for;
	// nil: all. stopOnDead is that of its DueRequest.
	Stats(ctx context.Context, topics []string, stopOnDead bool) (Stats, error)

	// Listen calls woken whenever somebody calls Notify, and once after each connection it makes,
	// until ctx ends or it fails. It returns ErrNoListen if the database cannot.
	Listen(ctx context.Context, woken func()) error
}

// Receiver is what Inbox.Once calls.
type Receiver interface {
	// Once records in the caller's transaction that the consumer has had the message, and returns
	// false if that was recorded before.
	Once(ctx context.Context, tx Tx, consumer string, id ID) (fresh bool, err error)
}

// Operator is what people look at, and do.
type Operator interface {
	// Messages returns messages without payload and headers, the newest first.
	Messages(ctx context.Context, which Filter, limit int) ([]Record, error)
	// Message returns one message with its payload, and its attempts, the first first. ok is false
	// if there is none.
	Message(ctx context.Context, id ID) (m Record, attempts []Attempt, ok bool, err error)

	// Requeue makes dead messages pending again, due at once, with a new budget of attempts and of
	// time: their attempts are still counted from the first on. It looks at up to request.Limit
	// messages, in the order of their rows, in one transaction.
	Requeue(ctx context.Context, which Filter, request RequeueRequest) (Requeued, error)

	// Delete deletes dead messages, which accepts their loss, and returns how many.
	Delete(ctx context.Context, which Filter) (int, error)
}

// Tx is a transaction of the caller, in the words that database/sql and pgx share.
type Tx interface {
	QueryRow(ctx context.Context, query string, args ...any) Row
	Exec(ctx context.Context, query string, args ...any) (rows int64, err error)
}

// Row is the answer to Tx.QueryRow.
type Row = interface{ Scan(dest ...any) error }

// ID is the identity of a message.
type ID [16]byte

// A Message is what a producer appends, and a sink gets.
type Message struct {
	ID      ID
	Topic   string
	Key     string // "": in no order
	Hash    uint32 // of Key, or of ID if that is empty; its remainder is the shard
	Payload []byte
	Headers map[string]string

	// Fault is what is wrong with a row that cannot be read, as another program may have inserted
	// it; "": nothing. What could be read is there. Such a row is not in the way of others.
	Fault string
}

// State is that of a message.
type State string

// The states of a message.
const (
	StatePending    State = "pending"
	StateDispatched State = "dispatched"
	StateDead       State = "dead"
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes of an attempt.
const (
	OutcomeOK        Outcome = "ok"
	OutcomePermanent Outcome = "permanent" // dead at once
	OutcomeTransient Outcome = "transient" // another attempt follows
	OutcomeExhausted Outcome = "exhausted" // dead: that was the last attempt
	// OutcomeUnreadable: dead at once, and no sink was called, because of Message.Fault.
	OutcomeUnreadable Outcome = "unreadable"
)

// A Layout says how keys are spread over shards. Epoch is 1 at first, and grows with every change.
type Layout struct {
	Shards int
	Epoch  int64
}

// A DueRequest says which messages Due returns.
type DueRequest struct {
	Layout Layout
	Shard  int
	Limit  int
	// Topics are those with a sink; nil: all. A message of another one waits, and so do the later
	// messages of its key.
	Topics []string
	// FullTopics are those for which the caller has no room. Their messages wait as those without a
	// sink do.
	FullTopics []string
	// StopOnDead has the later messages of a key wait while one of it is dead.
	StopOnDead bool
	// Keys and IDs of messages that the caller has in memory: they are left out.
	Keys []string
	IDs  []int64
	// After is that of the answer before, if the search is to go on. Of what is behind a long
	// queue, keys up to it are left out.
	After string
}

// DueBytes bounds an answer to Due: no message follows payloads that are so long together. One
// message is there whatever its length is.
const DueBytes = 4 << 20

// Due are messages to deliver.
type Due struct {
	Layout   Layout // the current one
	Messages []Pending
	// NextIn is in how long the first message that only waits for its NextAttemptAt can be
	// delivered; negative: there is none. One that comes after a message that was requeued waits
	// for that, too. It need not be exact if Full is set.
	NextIn time.Duration
	// Full is set if what was found is as much as one answer has, Limit messages or DueBytes: the
	// caller asks again.
	Full bool
	// After is not empty if there may be more, in keys after it: the caller asks again.
	After string
	// More is set if later messages of the keys in Messages may have been left out: the caller asks
	// again when it has none of such a key any more. It need not be set if Full is set.
	More bool
}

// A Pending is a message to deliver.
type Pending struct {
	Message
	Seq      int64         // of its row: the order in its key
	Attempts int           // so far
	Budget   int           // attempts that do not count, because somebody requeued the message after them
	Crashes  int           // relays that have died while they delivered it, as NoteBegun has written it
	Age      time.Duration // since it was appended
	// Failing is how long after Record.FailingSince this attempt was to begin: the time by which it
	// was late is not in it. 0: no attempt has failed.
	Failing time.Duration
}

// A Begun is a message whose delivery begins.
type Begun struct {
	ID       ID
	Seq      int64
	Attempts int // as Due has returned it
	Crashes  int // if the relay dies now
}

// A Result is what came of an attempt.
type Result struct {
	ID       ID    // of the message
	Seq      int64 // of its row
	Attempts int   // before this one, as Due has returned it
	Outcome  Outcome
	RetryIn  time.Duration // after OutcomeTransient
	Took     time.Duration
	Error    string
	// MostLate bounds the delay between NextAttemptAt and the beginning of the attempt. If the
	// delay was longer, no relay ran, or the database's clock was set forward: Mark then moves
	// Record.FailingSince by the whole delay.
	MostLate time.Duration
}

// Of the attempts that a message has had, the first FirstAttempts and the latest LastAttempts are
// kept: one that fails for weeks has thousands. How it began to fail and how it fails now can be
// seen.
const (
	FirstAttempts = 10
	LastAttempts  = 40
)

// Marked says what Mark has done with results, by the IDs of their messages. Those in neither list
// do not count.
type Marked struct {
	Counted []ID // also if an earlier call has written the same result, and its answer was lost
	Locked  []ID // not written, because another session has the row locked, or has just had it
}

// Retention is how long rows are kept since their end; 0: forever.
type Retention struct {
	Dispatched time.Duration
	Dead       time.Duration
	Inbox      time.Duration // since the receiver has had the message
}

// Stats are what health and metrics show.
type Stats struct {
	Pending, Dead int64 // MaxCount: at least so many
	// OldestDue is for how long the oldest of the first messages that Due would return can have
	// been delivered, and was not. OldestPending is for how long the oldest one has been pending,
	// since it was appended or requeued. 0: there is none.
	OldestDue, OldestPending time.Duration
	// Unknown are how many pending messages each topic has that has no sink; at most MaxUnknown
	// topics. Those that are not among the first MaxCount pending ones need not be counted, but
	// their topics are named.
	Unknown map[string]int64
}

// A FailingTopic is a topic whose messages are tried again.
type FailingTopic struct {
	Topic    string
	Messages int64         // which are tried again, of those that were looked at
	Since    time.Time     // Record.FailingSince of the one that has failed for longest
	For      time.Duration // since then
	Error    string        // its last error
}

const (
	// MaxFailing is of how many messages Failing tells at most, and MaxFailingTopics of how many
	// topics.
	MaxFailing       = 1_000
	MaxFailingTopics = 20

	// MaxUnknown is how many topics Stats.Unknown names at most.
	MaxUnknown = 20

	// MaxCount is how far Stats counts, so that it costs little whatever has accumulated.
	MaxCount = 10_000
)

// A Filter says which messages. Empty fields match all.
type Filter struct {
	IDs                        []ID
	Topic, Key                 string
	State                      State
	CreatedFrom, CreatedBefore time.Time // appended
	BeforeSeq                  int64     // of the page before the last Seq: smaller ones follow
}

// A RequeueRequest says how messages are requeued.
type RequeueRequest struct {
	// Those appended longer than OlderThan ago (0: any age) are left out, unless Force is set.
	OlderThan time.Duration
	Force     bool
	Note      string
	Limit     int
	After     int64 // only those behind this row; 0: all
}

// Requeued says what Requeue has done.
type Requeued struct {
	N, TooOld int
	After     int64 // that of the next request; 0: there are no more
}

// A Record is a message as people see it.
type Record struct {
	Message
	Seq           int64
	State         State
	Attempts      int
	NextAttemptAt time.Time
	CreatedAt     time.Time
	// FailingSince is when the first attempt began that failed since the message was appended or
	// requeued; zero: none has. It is never later than the beginning of the latest attempt, so that
	// one of a clock that was ahead is not believed. See Result.MostLate for what moves it.
	FailingSince time.Time
	FinishedAt   time.Time // zero: it is pending
	LastError    string
}

// An Attempt is a delivery that was tried.
type Attempt struct {
	Number     int
	FinishedAt time.Time
	Took       time.Duration
	Relay      string
	Outcome    Outcome
	Error      string
}
