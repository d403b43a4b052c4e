package durable

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// FakeSleep lets a test put the machine to sleep: each call of the function that it returns adds to
// the time slept. Call it outside the bubble. It replaces a variable of the package, so the test
// must not be parallel; it calls Setenv to make sure of that.
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

// Defaults returns the configs of the zero values with all defaults.
func Defaults() (Config, HandlerOptions) {
	return Config{}.withDefaults(), HandlerOptions{}.withDefaults()
}

// Defaults of settings that tests calculate with.
const (
	DefaultTTL            = defaultTTL
	DefaultPollInterval   = defaultPollInterval
	DefaultMaxElapsedTime = defaultMaxElapsedTime
	DefaultMaxWait        = defaultMaxWait
)
