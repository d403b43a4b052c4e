package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/mask"
)

// NoLimit turns a limit off: Retry.MaxElapsedTime, MaxCrashes, a retention or a threshold. (0
// stands for the default.)
const NoLimit = -1

// Defaults of a RelayConfig.
const (
	DefaultTTL           = dlock.DefaultTTL // RelayConfig.TTL
	DefaultRetryInterval = time.Second      // RelayConfig.RetryInterval
	DefaultMaxDeliveries = 8                // RelayConfig.MaxDeliveries
	DefaultMaxCrashes    = 5                // RelayConfig.MaxCrashes

	defaultMaxElapsedTime      = 54 * day         // Retry.MaxElapsedTime, 9/10 of defaultInboxRetention
	defaultFirstWait           = time.Second      // Retry.FirstWait, or MaxWait if that is shorter
	defaultMaxWait             = time.Hour        // Retry.MaxWait, or FirstWait if that is longer
	defaultBatchSize           = 32               // RelayConfig.BatchSize
	defaultDeliverTimeout      = 30 * time.Second // RelayConfig.DeliverTimeout
	defaultIdleDelay           = 30 * time.Second // RelayConfig.IdleDelay
	defaultPollInterval        = time.Second      // RelayConfig.PollInterval, or IdleDelay if that is shorter
	defaultCallTimeout         = 5 * time.Second  // RelayConfig.CallTimeout
	defaultDrainTimeout        = 30 * time.Second // RelayConfig.DrainTimeout
	defaultSweepInterval       = time.Minute      // RelayConfig.SweepInterval
	defaultDispatchedRetention = 30 * day         // Retention.Dispatched
	defaultInboxRetention      = 60 * day         // RelayConfig.InboxRetention and RequeueOptions.InboxRetention
)

const (
	day     = 24 * time.Hour
	maxWait = 24 * time.Hour

	maxShards       = 64
	maxAttempts     = 1_000
	maxCrashes      = 1_000
	maxBatchSize    = 1_000
	maxDeliveries   = 1_000
	minPollInterval = 10 * time.Millisecond

	// minTTL allows for a renewal every TTL/3 whose call to the store takes DefaultStoreTimeout.
	minTTL = 3 * dlock.DefaultStoreTimeout
	// minRetryInterval and maxRetryInterval are the bounds of package leader.
	minRetryInterval = 10 * time.Millisecond
	maxRetryInterval = time.Hour
)

// RelayConfig has the settings of a relay. Sinks or DefaultSink is required; 0 stands for the
// default of every other field. NewRelay returns all faults of the settings at once.
type RelayConfig struct {
	// Name identifies this relay to operators, in logs and attempts. Two relays with the same name
	// do no harm. At most 200 bytes of text without control characters. Default: host name, process
	// id and a random part.
	Name string

	// Holder identifies this process in the locks of the shards. Set it to Registry.Holder of
	// package cluster, so that the registry shows the shards under this host. Default: host name,
	// process id and a random part.
	Holder dlock.Holder

	// Decorate wraps the locks of the shards. With Registry.Decorate of package cluster, the fleet
	// sees which host delivers: each shard appears as a lease leader:outbox:…. Default nil: the
	// locks are not wrapped.
	Decorate func(dlock.DistributedLock) dlock.DistributedLock

	// Sinks maps topics of 1 to 200 bytes to their sinks. If there is no DefaultSink, a message
	// whose topic is not in Sinks waits for a relay that has a sink for it (UnknownTopic can change
	// that). While it waits, the message uses no attempts, holds back the later messages of its
	// key, and fails a health check. Required without DefaultSink.
	Sinks map[string]Sink

	// DefaultSink gets the messages of all topics that are not in Sinks. Default nil: none.
	DefaultSink Sink

	// UnknownTopic says what happens to a message without a sink. Default UnknownTopicWait.
	UnknownTopic UnknownTopicPolicy

	// Shards is the number of parts into which messages are divided by key. Each shard is delivered
	// by one relay at a time. The relay that starts last sets the number for all relays. A relay
	// delivers a key under a new number only when every relay has stopped delivering under the old
	// one. 1 to 64. Default 0: the number that is already set, or 1 if none is.
	Shards int

	// TTL is how long the shards of a dead host stay with it. Relays renew the leases of their
	// shards every TTL/3. 3 s to 24 h. Default 15 s.
	TTL time.Duration

	// RetryInterval is how often a host tries to lead a shard that it does not lead. 10 ms to 1 h.
	// Default 1 s.
	RetryInterval time.Duration

	// Retry decides how often and when a message is delivered again. Default: the default of each
	// of its fields.
	Retry Retry

	// MaxCrashes is how many relays in a row may die during the delivery of a message, without a
	// result in between. Then the message is dead, because it may be killing the relays. A relay
	// that is cut off during a delivery counts as one that has died.
	//
	// Once a relay has died, its successor records which deliveries it begins. The next death is
	// blamed on all messages that were being delivered, so at least two deaths are needed. From
	// then on, these messages are delivered one at a time.
	//
	// 2 to 1,000; NoLimit: any number. Default 5.
	MaxCrashes int

	// OnDead says what happens to the later messages of a key when one of its messages is dead.
	// Default DeadContinue.
	OnDead DeadPolicy

	// BatchSize is the maximum number of messages that one call to the database returns. A call
	// also stops after 4 MiB of payloads. After a call that has exceeded CallTimeout, the next call
	// requests half as many messages. So large payloads on a slow link take longer but arrive. 1 to
	// 1,000. Default 32.
	BatchSize int

	// MaxDeliveries is how many messages of one topic, with different keys, a shard delivers at the
	// same time. Each topic has its own places, so that a receiver that hangs does not take the
	// places of other topics. All topics of a shard together have at most 2,000 places. 1 to 1,000.
	// Default 8.
	MaxDeliveries int

	// DeliverTimeout is how long a delivery may take. Then its context ends, and the delivery has
	// failed. A sink that has not returned 5 s later keeps its place, one of MaxDeliveries, until
	// it returns. More than 0. Default 30 s.
	DeliverTimeout time.Duration

	// IdleDelay is how often a relay polls for messages while the database notifies it of new ones,
	// as Postgres does. Each pause is up to 20 % shorter or longer, at random. At least
	// PollInterval. Default 30 s.
	IdleDelay time.Duration

	// PollInterval is how often a relay polls for messages while the database cannot notify it: on
	// other databases, behind a PgBouncer in transaction mode, and while the listening connection
	// is broken. After it has found a message, the relay polls again after 10 ms, and then after
	// pauses that double up to PollInterval. 10 ms to IdleDelay. Default 1 s, or IdleDelay if that
	// is shorter.
	PollInterval time.Duration

	// Retention is how long rows are kept. Default: the default of each of its fields.
	Retention Retention

	// InboxRetention is how long receivers remember the messages that they have processed. It must
	// be longer than Retry.MaxElapsedTime, and Requeue refuses older messages. If a receiver's
	// inbox is in this database, the relay also deletes the inbox's records after this time.
	// Default 60 days.
	InboxRetention time.Duration

	// SweepInterval is how often, on average, the relay that leads the first shard deletes rows
	// that are older than Retention allows. More than 0. Default 1 min.
	SweepInterval time.Duration

	// CallTimeout bounds every call to the database. More than 0. Default 5 s.
	CallTimeout time.Duration

	// DrainTimeout is how long Run, after its context has ended, waits for deliveries in progress
	// before it ends their contexts. Default 30 s.
	DrainTimeout time.Duration

	// Health has the thresholds of Relay.Checks. A host with a failing check is degraded. Default:
	// the default of each of its fields.
	Health Thresholds

	// Unready has the thresholds of Relay.Ready. A host whose Ready fails gets no more requests.
	// Ready fails on all hosts of the fleet at about the same time. So set a threshold only if
	// rejecting all requests is better than serving them while messages are not delivered. Default:
	// never.
	Unready Thresholds

	// Logger gets the events that an operator should see: failed attempts (at Warn) and dead
	// messages (at Error), up to ten lines per minute and topic, and outages of the database. At
	// Debug, it also gets each delivered message. If it panics, the line is lost. Default
	// slog.Default().
	Logger *slog.Logger

	// Hooks report what happens on this relay. They are called on a separate goroutine. Default:
	// none.
	Hooks Hooks

	// Registerer is where NewRelay registers the relay's metrics, whose names begin with
	// tickslot_outbox_. They are unregistered when Run returns. Default nil: no metrics.
	Registerer prometheus.Registerer
}

// A Retry decides how often and when a message is delivered again after a failure.
type Retry struct {
	// MaxElapsedTime is how long a message is tried before it is dead, counted from the start of
	// its first failed attempt. The last attempt begins when this time is over. A Requeue restarts
	// the time. Without Force, it ends no later than InboxRetention after the message was appended.
	//
	// It must be shorter than InboxRetention. Then a receiver that processed the first attempt, but
	// whose answer was lost, still knows the message when the last attempt comes.
	//
	// It is measured by the database's clock. If a message was due for longer than a tenth of this
	// time, or for more than a day, before it was tried, that delay does not count: no relay was
	// running, or the clock was set forward. If the clock was ahead and is set back, the time
	// restarts. So setting the clock makes no message dead early, and an outage of all relays of a
	// day or more delays a message's death by as much.
	//
	// At least 1 ms. NoLimit: until an operator intervenes, or until MaxAttempts are used up; then
	// receivers must remember messages forever. Default 54 days, 9/10 of InboxRetention.
	MaxElapsedTime time.Duration

	// MaxAttempts is the maximum number of attempts before a message is dead. Attempts before a
	// Requeue do not count. 1 to 1,000; with 1 there is no retry. Default 0: any number.
	MaxAttempts int

	// FirstWait is the wait before the second attempt. Each further wait is twice as long as the
	// previous one, up to MaxWait. Each wait is shortened at random by up to half. More than 0.
	// Default 1 s, or MaxWait if that is shorter.
	FirstWait time.Duration

	// MaxWait is the longest wait, and the longest time that a message waits after an outage of its
	// receiver. With 1 h, a failing message has about 12 attempts in the first hour and 32 per day
	// afterwards. With 5 min, it has about 380 per day. If messages of a key fail, only the first
	// of them is tried. At least FirstWait, at most 24 h, which also bounds the waits that
	// RetryAfter requests. Default 1 h, or FirstWait if that is longer.
	MaxWait time.Duration
}

// Retention is how long rows are kept. NoLimit keeps them forever.
type Retention struct {
	// Dispatched is how long a message is kept after it was dispatched. Default 30 days.
	Dispatched time.Duration
	// Dead is how long a dead message is kept. Default 0: forever.
	Dead time.Duration
}

// Thresholds say when the checks of a relay, or its Ready, fail. In RelayConfig.Health, 0 means the
// default of the field. In RelayConfig.Unready, 0 means never. NoLimit means never.
type Thresholds struct {
	// DueAge is how long a message may be due. A message is due if it has a sink and nothing holds
	// it back. If a message is due for longer, no relay delivers, or the relays are too slow.
	// Default 1 min.
	DueAge time.Duration
	// PendingAge is how long a message may be pending after it was appended or requeued, including
	// its waits for attempts. If a message is pending for longer, a receiver fails. Default 1 h.
	PendingAge time.Duration
	// Dead is how many messages may be dead. Default 0: any number.
	Dead int64
}

// UnknownTopicPolicy says what happens to a message whose topic has no sink.
type UnknownTopicPolicy uint8

const (
	// UnknownTopicWait lets the message wait. In a rolling deploy, the hosts that have the sink may
	// still be starting.
	UnknownTopicWait UnknownTopicPolicy = iota
	// UnknownTopicDead makes the message dead immediately, with the outcome permanent.
	UnknownTopicDead
)

// DeadPolicy says what happens to the later messages of a key when one is dead.
type DeadPolicy uint8

const (
	// DeadContinue delivers the later messages without it.
	DeadContinue DeadPolicy = iota
	// DeadStop makes the later messages wait until the dead message is requeued or deleted.
	DeadStop
)

func (r RelayConfig) withDefaults() RelayConfig {
	if r.Name == "" {
		r.Name = dlock.NewHolder().String()
	}
	orDefault(&r.TTL, DefaultTTL)
	orDefault(&r.RetryInterval, DefaultRetryInterval)
	if r.Retry.FirstWait == 0 && r.Retry.MaxWait > 0 {
		r.Retry.FirstWait = min(defaultFirstWait, r.Retry.MaxWait)
	}
	orDefault(&r.Retry.FirstWait, defaultFirstWait)
	orDefault(&r.Retry.MaxWait, max(defaultMaxWait, r.Retry.FirstWait))
	orDefault(&r.MaxCrashes, DefaultMaxCrashes)
	orDefault(&r.BatchSize, defaultBatchSize)
	orDefault(&r.MaxDeliveries, DefaultMaxDeliveries)
	orDefault(&r.DeliverTimeout, defaultDeliverTimeout)
	orDefault(&r.IdleDelay, defaultIdleDelay)
	orDefault(&r.PollInterval, min(defaultPollInterval, r.IdleDelay))
	orDefault(&r.Retention.Dispatched, defaultDispatchedRetention)
	orDefault(&r.InboxRetention, defaultInboxRetention)
	orDefault(&r.Retry.MaxElapsedTime, r.InboxRetention/10*9)
	orDefault(&r.SweepInterval, defaultSweepInterval)
	orDefault(&r.CallTimeout, defaultCallTimeout)
	orDefault(&r.DrainTimeout, defaultDrainTimeout)
	orDefault(&r.Health.DueAge, time.Minute)
	orDefault(&r.Health.PendingAge, time.Hour)
	r.Logger = mask.Logger(r.Logger)
	return r
}

func orDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// check returns every fault of a config whose defaults are filled in.
func (r RelayConfig) check() error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("outbox: RelayConfig.%s: "+format, append([]any{field}, args...)...))
	}
	between := func(field string, n, least, most int) {
		if n < least || n > most {
			fault(field, "%d: use %d to %d", n, least, most)
		}
	}
	positive := func(field string, d time.Duration) {
		if d <= 0 {
			fault(field, "%v: use a positive duration", d)
		}
	}
	checkText(r.Name, "Name", fault)
	if len(r.Sinks) == 0 && r.DefaultSink == nil {
		fault("Sinks", "there is none: nothing could be delivered")
	}
	for topic, sink := range r.Sinks {
		if topic == "" {
			fault("Sinks", "a topic is empty")
		}
		checkText(topic, "Sinks", fault)
		if sink == nil {
			fault("Sinks", "the sink of topic %.60q is nil", topic)
		}
		if err := validated(sink); err != nil {
			fault("Sinks", "the sink of topic %.60q: %w", topic, err)
		}
	}
	if err := validated(r.DefaultSink); err != nil {
		fault("DefaultSink", "%w", err)
	}
	between("Shards", r.Shards, 0, maxShards)
	between("Retry.MaxAttempts", r.Retry.MaxAttempts, 0, maxAttempts)
	if r.MaxCrashes != NoLimit {
		between("MaxCrashes", r.MaxCrashes, 2, maxCrashes)
	}
	between("BatchSize", r.BatchSize, 1, maxBatchSize)
	between("MaxDeliveries", r.MaxDeliveries, 1, maxDeliveries)
	if w := r.Retry; w.FirstWait <= 0 || w.MaxWait < w.FirstWait || w.MaxWait > maxWait {
		fault("Retry", "FirstWait %v, MaxWait %v: use 0 < FirstWait <= MaxWait <= %v", w.FirstWait, w.MaxWait,
			maxWait)
	}
	within := func(field string, d, least, most time.Duration) {
		if d < least || d > most {
			fault(field, "%v: use %v to %v", d, least, most)
		}
	}
	within("TTL", r.TTL, minTTL, driver.MaxTTL)
	within("RetryInterval", r.RetryInterval, minRetryInterval, maxRetryInterval)
	positive("DeliverTimeout", r.DeliverTimeout)
	positive("CallTimeout", r.CallTimeout)
	positive("SweepInterval", r.SweepInterval)
	positive("InboxRetention", r.InboxRetention)
	if r.PollInterval < minPollInterval || r.PollInterval > r.IdleDelay {
		fault("PollInterval", "%v: use %v to IdleDelay, which is %v", r.PollInterval, minPollInterval, r.IdleDelay)
	}
	if r.DrainTimeout < 0 {
		fault("DrainTimeout", "%v is negative", r.DrainTimeout)
	}
	switch tried := r.Retry.MaxElapsedTime; {
	case tried == NoLimit:
	case tried < time.Millisecond:
		fault("Retry.MaxElapsedTime", "%v: use a millisecond or more, or NoLimit", tried)
	case tried >= r.InboxRetention:
		fault("InboxRetention", "%v: a message is tried for %v (Retry.MaxElapsedTime), and a receiver that has "+
			"forgotten it by then would apply it twice: keep records for longer, or retry for less",
			r.InboxRetention, tried)
	}
	if r.UnknownTopic > UnknownTopicDead {
		fault("UnknownTopic", "%d: use UnknownTopicWait or UnknownTopicDead", r.UnknownTopic)
	}
	if r.OnDead > DeadStop {
		fault("OnDead", "%d: use DeadContinue or DeadStop", r.OnDead)
	}
	return errors.Join(errs...)
}
