// Package store is the contract between an outbox and its database. Package sqlstore implements it,
// and so does package memory for tests in virtual time. Package storetest checks that they keep it.
//
// All instants are in whole microseconds of the database's clock. A method that does not take the
// caller's transaction is one transaction, which is either committed or has no effect. After an
// error, the caller does not know which, and may call again: nothing is done twice. Methods return
// when their context ends. An error matches dlock.ErrSetup if the database answers but is not set
// up correctly: a table or a privilege is missing, or the tables are older than this version needs.
package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tickslot/tickslot/internal/flow"
)

// MaxName is the maximum length in bytes of a topic, a key, and the name of a consumer.
const MaxName = 200

// MaxAppendAll is the maximum number of messages that AppendAll takes. SQL Server allows at most
// 2,100 parameters, and a message has six.
const MaxAppendAll = 300

// ErrNoListen is the error of Listen if the database does not support notifications.
var ErrNoListen = errors.New("outbox: this database cannot wake other processes")

// ErrRepeat is matched by the error of Append or Once if the caller's transaction conflicted with
// another transaction. Roll the transaction back and repeat it from its beginning.
var ErrRepeat = errors.New("roll the transaction back, and repeat it")

// Store keeps messages, attempts, and the records of messages that receivers have processed.
type Store interface {
	// String returns "postgres", "mysql", "sqlite" or "sqlserver".
	String() string

	// Migrate creates or upgrades the tables, Verify checks them, and Schema returns the statements
	// that Migrate executes. See package sqlmigrate.
	Migrate(ctx context.Context) error
	Verify(ctx context.Context) error
	Schema() ([]string, error)

	Producer
	Relay
	Receiver
	Operator
}

// Producer is the part of a Store that Append calls.
type Producer interface {
	// Append inserts a message in the caller's transaction. If a message with this ID exists, fresh
	// is false, and old has the topic, key and payload of that message for comparison. old lacks
	// the headers, because a producer that repeats its work has another trace.
	Append(ctx context.Context, tx Tx, m Message) (fresh bool, old Message, err error)

	// AppendAll inserts messages with different IDs in the caller's transaction, in order, with two
	// statements, and returns true. If one of the IDs already exists, it inserts none and returns
	// false. At most MaxAppendAll messages.
	AppendAll(ctx context.Context, tx Tx, list []Message) (bool, error)

	// NextAppended returns the first pending message with a Seq above after that the caller's
	// transaction sees. ok is false if there is none. NextAppended is for users' tests.
	NextAppended(ctx context.Context, tx Tx, after int64) (m Message, seq int64, ok bool, err error)

	// Notify wakes the relays of other processes, if the database supports notifications.
	Notify(ctx context.Context) error
}

// Relay is the part of a Store that relays call.
type Relay interface {
	// Layout returns the number of shards and an epoch that grows with every change of that number.
	// If want is not 0 and differs from the number, Layout first sets the number to want.
	Layout(ctx context.Context, want int) (Layout, error)

	// Due returns deliverable messages of the shard: they are pending, their NextAttemptAt has
	// passed, and no earlier message of their key must be delivered first. Messages of a key are in
	// the order of their rows, without a gap. The first rows come first, except past a long queue.
	// If a message was tried before, Due omits the later messages of its key until it has ended. If
	// messages were requeued, those appended after them get half of the answer, if there are that
	// many. DueRequest describes which other messages Due omits. Due takes no locks. If
	// request.Layout is not the current layout, Due returns the current layout and no messages.
	Due(ctx context.Context, request DueRequest) (Due, error)

	// Mark writes the results of attempts, at most one for each Seq, and a row for each attempt. It
	// keeps the rows of the first FirstAttempts and the latest LastAttempts attempts of a message.
	// A result counts only if its message is still pending with the number of attempts that Due has
	// returned, so that no other relay has tried it since. The row must also still belong to that
	// message: a database restored from a copy, or a lagging standby, assigns the row numbers that
	// it lacks to other messages.
	//
	// Mark does not wait for rows that another session keeps locked. It returns the results of such
	// rows unwritten, and the caller calls again with them.
	Mark(ctx context.Context, relay string, results []Result) (Marked, error)

	// NoteBegun is called before deliveries begin. For each message, it writes how many relays will
	// have died while delivering it if this relay also dies. Mark resets the number to 0. NoteBegun
	// skips a message that is no longer pending with the given number of attempts, or whose row
	// another session keeps locked.
	NoteBegun(ctx context.Context, list []Begun) error

	// Sweep deletes up to limit messages that have been dispatched or dead for longer than the
	// retention of their state, with their attempts, and up to limit records of receivers that are
	// older than Inbox. A retention of 0 keeps rows forever. Sweep returns how many messages and
	// records it has deleted.
	Sweep(ctx context.Context, retention Retention, limit int) (deleted int, err error)

	// Failing returns at most MaxFailingTopics topics with messages that have failed and will be
	// retried, the longest failing first. It counts only the MaxFailing messages that have been
	// failing longest.
	Failing(ctx context.Context) ([]FailingTopic, error)

	// Stats returns the data for health checks and metrics. topics are the topics for which this
	// relay has a sink; nil means all. stopOnDead is like DueRequest.StopOnDead.
	Stats(ctx context.Context, topics []string, stopOnDead bool) (Stats, error)

	// Listen calls woken for each Notify of any process, and once after each new connection, until
	// ctx ends or Listen fails. It returns ErrNoListen if the database does not support
	// notifications.
	Listen(ctx context.Context, woken func()) error
}

// Receiver is the part of a Store that Inbox.Once calls.
type Receiver interface {
	// Once records in the caller's transaction that the consumer has processed the message. It
	// returns false if that was already recorded.
	Once(ctx context.Context, tx Tx, consumer string, id ID) (fresh bool, err error)
}

// Operator is the part of a Store for operators.
type Operator interface {
	// Messages returns messages without payload and headers, newest first.
	Messages(ctx context.Context, which Filter, limit int) ([]Record, error)
	// Message returns a message with its payload, and its attempts in order. ok is false if there
	// is no such message.
	Message(ctx context.Context, id ID) (m Record, attempts []Attempt, ok bool, err error)

	// Topics returns what the messages of each topic have come to, by topic, of the first MaxTopics
	// topics.
	Topics(ctx context.Context) ([]TopicHistory, error)

	// Flow returns how many messages of each topic were appended and ended when.
	Flow(ctx context.Context) (flow.Flow, error)

	// Requeue makes dead messages pending again, due immediately, with a new budget of attempts and
	// time. Attempt numbers continue from the last one. Requeue processes up to request.Limit
	// messages in one transaction, in the order of their rows.
	Requeue(ctx context.Context, which Filter, request RequeueRequest) (Requeued, error)

	// Delete deletes dead messages permanently and returns how many it has deleted.
	Delete(ctx context.Context, which Filter) (int, error)
}

// Tx is a transaction of the caller, reduced to what database/sql and pgx have in common.
type Tx interface {
	QueryRow(ctx context.Context, query string, args ...any) Row
	Exec(ctx context.Context, query string, args ...any) (rows int64, err error)
}

// Row is the answer to Tx.QueryRow.
type Row = interface{ Scan(dest ...any) error }

// ID identifies a message.
type ID [16]byte

// A Message is appended by a producer and delivered to a sink.
type Message struct {
	ID      ID
	Topic   string
	Key     string // "" means unordered
	Hash    uint32 // of Key, or of ID if Key is empty; modulo the number of shards, it gives the shard
	Payload []byte
	Headers map[string]string

	// Fault is why a row cannot be read, for example because another program has inserted it. It is
	// "" if the row can be read. The readable fields are set. An unreadable row does not hold up
	// others.
	Fault string
}

// State is the state of a message.
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
	OutcomePermanent Outcome = "permanent" // dead immediately
	OutcomeTransient Outcome = "transient" // another attempt follows
	OutcomeExhausted Outcome = "exhausted" // dead: the last attempt has failed
	// OutcomeUnreadable means dead immediately because of Message.Fault. No sink was called.
	OutcomeUnreadable Outcome = "unreadable"
)

// A Layout says how keys are distributed over shards. Epoch is initially 1 and grows with every
// change.
type Layout struct {
	Shards int
	Epoch  int64
}

// A DueRequest says which messages Due returns.
type DueRequest struct {
	Layout Layout
	Shard  int
	Limit  int
	// Topics are the topics with a sink; nil means all. A message of another topic waits, and so do
	// the later messages of its key.
	Topics []string
	// FullTopics are the topics for which the caller has no room. Their messages wait like messages
	// without a sink.
	FullTopics []string
	// StopOnDead makes the later messages of a key wait while a message of the key is dead.
	StopOnDead bool
	// Keys are the keys, and IDs the Seqs of messages without a key, that the caller has in memory.
	// Due omits them.
	Keys []string
	IDs  []int64
	// After is Due.After of the previous answer, to continue a search. Past a long queue, Due omits
	// keys up to After.
	After string
}

// DueBytes bounds the payloads of an answer to Due. The message whose payload reaches it is the
// last.
const DueBytes = 4 << 20

// Due are messages to deliver.
type Due struct {
	Layout   Layout // the current one
	Messages []Pending
	// NextIn is the time until the first message that waits only for its NextAttemptAt can be
	// delivered. It is negative if there is no such message. A message after a requeued message of
	// its key also waits for that message and does not count. If Full is true, NextIn may be
	// inexact.
	NextIn time.Duration
	// Full is true if the answer has reached Limit messages or DueBytes. Then the caller asks
	// again.
	Full bool
	// After is not empty if there may be more messages in later keys. Then the caller asks again.
	After string
	// More is true if later messages of the keys in Messages may have been omitted. Then the caller
	// asks again once it has no more messages of such a key. If Full is true, More may be false.
	More bool
}

// A Pending is a message to deliver.
type Pending struct {
	Message
	Seq      int64         // number of its row, which gives the order within its key
	Attempts int           // so far
	Budget   int           // attempts before the latest Requeue, which do not count
	Crashes  int           // relays that have died while delivering it, as written by NoteBegun
	Age      time.Duration // since it was appended
	// Failing is the time from Record.FailingSince to when this attempt was due. It does not
	// include the delay of the attempt. It is 0 if no attempt has failed.
	Failing time.Duration
}

// A Begun is a message whose delivery begins.
type Begun struct {
	ID       ID
	Seq      int64
	Attempts int // as returned by Due
	Crashes  int // number of crashes if this relay dies now
}

// A Result is the outcome of an attempt.
type Result struct {
	ID       ID    // of the message
	Seq      int64 // of its row
	Attempts int   // attempts before this one, as returned by Due
	Outcome  Outcome
	RetryIn  time.Duration // set with OutcomeTransient
	Took     time.Duration
	Error    string
	// MostLate bounds the delay from NextAttemptAt to the beginning of the attempt. If the delay
	// was longer, no relay was running, or the database's clock was set forward. Then Mark moves
	// Record.FailingSince by the whole delay.
	MostLate time.Duration
}

// A message keeps its first FirstAttempts and its latest LastAttempts attempts, because a message
// that fails for weeks has thousands. The kept attempts show how it began to fail and how it fails
// now.
const (
	FirstAttempts = 10
	LastAttempts  = 40
)

// Marked says what Mark has done with results, by the IDs of their messages. Results in neither
// list do not count.
type Marked struct {
	Counted []ID // includes results that an earlier call has written before its answer was lost
	Locked  []ID // not written, because another session has locked the row, or had just locked it
}

// Retention is how long rows are kept after their end; 0 means forever.
type Retention struct {
	Dispatched time.Duration
	Dead       time.Duration
	Inbox      time.Duration // counted from when the receiver got the message
}

// Stats has the data for health checks and metrics.
type Stats struct {
	Pending, Dead int64 // MaxCount stands for that many or more
	// OldestDue is how long the oldest of the first messages that Due would return has been due.
	// OldestPending is how long the oldest pending message has been pending since it was appended
	// or requeued. Both are 0 if there is no such message.
	OldestDue, OldestPending time.Duration
	// Unknown counts the pending messages of each topic without a sink, for at most MaxUnknown
	// topics. Messages that are not among the first MaxCount pending messages may be left
	// uncounted, but their topics are named.
	Unknown map[string]int64
}

// A TopicHistory is what the messages of a topic have come to, as far as they are kept.
type TopicHistory struct {
	Topic        string
	Pending      int64     // counted up to MaxCount
	EndedAt      time.Time // the message that was dispatched or died last; zero: none is kept
	DispatchedAt time.Time // the message that was dispatched last; zero: none is kept
	Dead         int64     // messages that died after it, counted up to MaxOutcomes
	FailingSince time.Time // the first of these failed or, if that is later, DispatchedAt
	LastError    string    // of the last of these
	Outcomes     []State   // of the MaxOutcomes messages that ended last, the oldest first
}

// Bounds of Topics.
const (
	MaxTopics   = 100
	MaxOutcomes = 30
)

// SetEnded sets what follows from the messages of the topic that ended last: the MaxOutcomes latest
// of each state, in any order. Of each only State, FinishedAt, FailingSince and LastError are used.
func (t *TopicHistory) SetEnded(ended []Record) {
	slices.SortStableFunc(ended, func(a, b Record) int { return a.FinishedAt.Compare(b.FinishedAt) })
	for _, r := range ended {
		t.EndedAt = r.FinishedAt
		if t.Outcomes = append(t.Outcomes, r.State); r.State == StateDispatched {
			t.DispatchedAt = r.FinishedAt
		}
	}
	t.Outcomes = t.Outcomes[max(0, len(t.Outcomes)-MaxOutcomes):]
	for _, r := range ended {
		if r.State != StateDead || !r.FinishedAt.After(t.DispatchedAt) {
			continue
		}
		since := r.FailingSince
		if since.IsZero() {
			since = r.FinishedAt
		}
		if t.Dead++; t.Dead == 1 || since.Before(t.FailingSince) {
			t.FailingSince = since
		}
		t.LastError = r.LastError
	}
	if t.Dead > 0 && t.FailingSince.Before(t.DispatchedAt) {
		t.FailingSince = t.DispatchedAt
	}
}

// A FailingTopic is a topic with messages that have failed and are tried again.
type FailingTopic struct {
	Topic    string
	Messages int64         // number of such messages among those that Failing has read
	Since    time.Time     // Record.FailingSince of the message that has been failing longest
	For      time.Duration // since then
	Error    string        // its last error
}

const (
	// MaxFailing is the maximum number of messages that Failing reads, and MaxFailingTopics is the
	// maximum number of topics that it returns.
	MaxFailing       = 1_000
	MaxFailingTopics = 20

	// MaxUnknown is the maximum number of topics that Stats.Unknown names.
	MaxUnknown = 20

	// MaxCount is the number up to which Stats counts, so that it is cheap no matter how many
	// messages wait.
	MaxCount = 10_000
)

// A Filter selects messages. Empty fields match all.
type Filter struct {
	IDs                        []ID
	Topic, Key                 string
	State                      State
	CreatedFrom, CreatedBefore time.Time // appended
	BeforeSeq                  int64     // with a smaller Seq: pass the last Seq of a page to get the next page
}

// A RequeueRequest has the options of Requeue.
type RequeueRequest struct {
	// If Force is false, Requeue skips messages appended longer than OlderThan ago; 0 means any
	// age.
	OlderThan time.Duration
	Force     bool
	Note      string
	Limit     int
	After     int64 // only messages after this row; 0 means all
}

// Requeued says what Requeue has done.
type Requeued struct {
	N, TooOld int
	After     int64 // for the next request; 0 if there are no more
}

// A Record is a message with its state, for operators.
type Record struct {
	Message
	Seq           int64
	State         State
	Attempts      int
	NextAttemptAt time.Time
	CreatedAt     time.Time
	// FailingSince is when the first failed attempt since the message was appended or requeued
	// began. It is zero if none has failed. It is never later than the beginning of the latest
	// attempt, so that an instant noted while the clock was ahead is corrected. Result.MostLate
	// describes when it moves.
	FailingSince time.Time
	FinishedAt   time.Time // zero if the message is pending
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
