package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tickslot/tickslot/proof/servertest"
)

// A Clock is the wall clock of one running server. A test can set it.
type Clock struct {
	t    testing.TB // nil outside of tests
	file string
}

// NewWithClock is New for a server whose wall clock libfaketime can set. Its monotonic clock does
// not change.
func NewWithClock(t testing.TB, opts Options) (*Server, *Clock) {
	t.Helper()
	Require(t)
	library := servertest.RequireFaketime(t)
	c := &Clock{t, filepath.Join(t.TempDir(), "clock")}
	c.Set(0)
	opts.Env = append(opts.Env, c.env(library)...)
	return New(t, opts), c
}

// StartWithClock is Start for such a server. The directory has its clock file.
func StartWithClock(dir string, opts Options) (*Server, *Clock, error) {
	library, err := servertest.Faketime()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: install it (apt-get install libfaketime)", err)
	}
	c := &Clock{file: filepath.Join(dir, "clock")}
	if err := c.Step(0); err != nil {
		return nil, nil, err
	}
	opts.Env = append(opts.Env, c.env(library)...)
	s, err := Start(opts)
	return s, c, err
}

func (c *Clock) env(library string) []string {
	return []string{
		// libfaketime calls the allocator, and jemalloc reads the time, so the server uses the C
		// library's allocator.
		"LD_PRELOAD=" + library + " libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

// Set sets the clock ahead of the correct time, or behind it if negative.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	if err := c.Step(ahead); err != nil {
		c.t.Fatal(err)
	}
}

// Step is Set for use outside of tests.
func (c *Clock) Step(ahead time.Duration) error {
	next := c.file + ".next" // the server keeps reading the file and must not find it empty
	err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", ahead.Seconds()), 0o600)
	if err != nil {
		return err
	}
	return os.Rename(next, c.file)
}
