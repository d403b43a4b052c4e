package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/servertest"
)

// A Clock is the wall clock of one server, which can be set while that runs.
type Clock struct {
	t    testing.TB
	file string
}

// NewWithClock is New for a server whose wall clock can be set by libfaketime. Monotonic clocks are
// not changed.
func NewWithClock(t testing.TB, opts Options) (*Server, *Clock) {
	t.Helper()
	Require(t)
	library := servertest.RequireFaketime(t)
	c := &Clock{t, filepath.Join(t.TempDir(), "clock")}
	c.Set(0)
	opts.Env = append(opts.Env,
		// libfaketime calls the allocator, and jemalloc asks for the time, so the server uses the C
		// library's allocator.
		"LD_PRELOAD="+library+" libc.so.6",
		"FAKETIME_TIMESTAMP_FILE="+c.file,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	)
	return New(t, opts), c
}

// Set sets the clock ahead of the right time, or behind it, from now on.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	next := c.file + ".next" // the server keeps reading the file, and must not find it empty
	err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", ahead.Seconds()), 0o600)
	if err == nil {
		err = os.Rename(next, c.file)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
