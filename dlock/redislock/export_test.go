package redislock

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/internal/rediskit"
)

// SetHostClock makes Audit take another clock for this host's.
func (s *Store) SetHostClock(now func() time.Time) { s.hostClock = now }

// MaxInFlight is how many round trips may be in flight.
const MaxInFlight = maxInFlight

// ScriptItems is how many leases one run of a script handles.
const ScriptItems = scriptItems

// MaxIdleTime is how long a connection may be idle before it is discarded.
const MaxIdleTime = rediskit.MaxIdleTime

// OwnPool opens a pool as New does.
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

// Client returns the client that the store makes its calls with.
func (s *Store) Client() redis.UniversalClient { return s.client }

// ErrTooLate is in the error of a call that ended too long after the sentinels were asked.
var ErrTooLate = errTooLate

// TrustMaster makes the last answer of the sentinels fresh.
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
