package durable

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// FakeSleep simulates sleep of the machine: each call of the returned function adds to the time
// slept. Call FakeSleep outside the bubble. It replaces a variable of the package, so the test must
// not be parallel. FakeSleep calls Setenv, which panics in a parallel test.
func FakeSleep(t *testing.T) func(time.Duration) {
	t.Setenv("DURABLE_TEST_SLEEP", "fake")
	var slept atomic.Int64
	was := suspended
	suspended = func() time.Duration { return time.Duration(slept.Load()) }
	t.Cleanup(func() { suspended = was })
	return func(d time.Duration) { slept.Add(int64(d)) }
}

// NewStore returns a Store for tests.
func NewStore(s store.Store) *Store { return &Store{store: s} }

// Defaults returns a zero Config and HandlerOptions with all defaults filled in.
func Defaults() (Config, HandlerOptions) {
	return Config{}.withDefaults(), HandlerOptions{}.withDefaults()
}

// Defaults that tests use in calculations.
const (
	DefaultTTL            = defaultTTL
	DefaultPollInterval   = defaultPollInterval
	DefaultMaxElapsedTime = defaultMaxElapsedTime
	DefaultMaxWait        = defaultMaxWait
)
