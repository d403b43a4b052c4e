package redislock

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/internal/rediskit"
)

// SetHostClock replaces the host's clock that Audit reads.
func (s *Store) SetHostClock(now func() time.Time) { s.hostClock = now }

// MaxInFlight exports maxInFlight.
const MaxInFlight = maxInFlight

// ScriptItems exports scriptItems.
const ScriptItems = scriptItems

// MaxIdleTime is how long a connection may be idle before it is discarded.
const MaxIdleTime = rediskit.MaxIdleTime

// OwnPool opens a pool in the same way as New.
var OwnPool = rediskit.OwnPool

// Waiting returns how many calls wait to be sent.
func (s *Store) Waiting() int {
	s.batcher.mu.Lock()
	defer s.batcher.mu.Unlock()
	return len(s.batcher.waiting)
}

// Note returns the key that records when the server began.
func (s *Store) Note() string { return s.serverKey() }

// Key returns the key of a mutex.
func (s *Store) Key(name string) string { return s.keys(name, true).base }

// Client returns the client that the store uses for its calls.
func (s *Store) Client() redis.UniversalClient { return s.client }

// ErrTooLate is the error of a call that ended too long after the sentinels were asked.
var ErrTooLate = errTooLate

// TrustMaster makes the last answer of the sentinels fresh again.
func (s *Store) TrustMaster() {
	r := *s.masters.reign.Load()
	r.asked = time.Now()
	s.masters.reign.Store(&r)
}

// AgeMaster makes the last answer of the sentinels older.
func (s *Store) AgeMaster(by time.Duration) {
	r := *s.masters.reign.Load()
	r.asked = r.asked.Add(-by)
	s.masters.reign.Store(&r)
}

// AskedSentinels reports whether a call has asked the sentinels since AskSentinels.
func (s *Store) AskedSentinels() bool { return !s.masters.reign.Load().asked.IsZero() }

// AskSentinels makes the next call ask the sentinels.
func (s *Store) AskSentinels() {
	r := *s.masters.reign.Load()
	r.asked = time.Time{}
	s.masters.reign.Store(&r)
}
