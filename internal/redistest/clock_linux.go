package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/servertest"
)

// faketime is where distributions have the library.
var faketime = []string{
	"/usr/lib/*/faketime/libfaketime.so.1",
	"/usr/lib64/faketime/libfaketime.so.1",
	"/usr/lib/faketime/libfaketime.so.1",
	"/usr/local/lib/faketime/libfaketime.so.1",
}

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
	library, missing := "", errors.New("libfaketime not found")
	for _, pattern := range faketime {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			library, missing = found[0], nil
		}
	}
	servertest.Require(t, missing, "install libfaketime (apt-get install libfaketime)")
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
