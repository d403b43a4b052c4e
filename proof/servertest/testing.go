package servertest

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
)

const (
	// requireEnv set to 1 makes a missing server a failure.
	requireEnv = "TICKSLOT_REQUIRE_SERVERS"
	// skipsEnv names a file that lists the tests skipped because of a missing server.
	skipsEnv = "TICKSLOT_SKIPS"
)

// Require skips the test if missing is not nil, and records it in the file named by TICKSLOT_SKIPS.
// With TICKSLOT_REQUIRE_SERVERS=1, it fails the test instead, and says how to install the missing
// program.
func Require(t testing.TB, missing error, how string) {
	t.Helper()
	if missing == nil {
		return
	}
	if os.Getenv(requireEnv) == "1" {
		t.Fatalf("%v\n%s=1 wants it: %s", missing, requireEnv, how)
	}
	if path := os.Getenv(skipsEnv); path != "" {
		if err := appendLine(path, fmt.Sprintf("%s: %v", t.Name(), missing)); err != nil {
			t.Errorf("record the skip: %v", err)
		}
	}
	t.Skip(missing)
}

// appendLine writes the line in one call, because the test binaries of several packages share the
// file.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// A Running is one server, or several that belong together.
type Running interface {
	Log() string
	Close()
}

// Own binds a started server to the test: the server stops with the test, and its output is logged
// if the test failed. An error fails the test.
func Own[S Running](t testing.TB, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", s.Log())
		}
		s.Close()
	})
	return s
}

// NewProxyFor is NewProxy for a test.
func NewProxyFor(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A Shared holds one server per test binary. Initially it has none. The binary's TestMain must call
// Main.
type Shared[S interface {
	Running
	Pid() int
}] struct {
	mu      sync.Mutex
	started bool
	server  S
}

// Get returns the server, and starts it if necessary.
func (s *Shared[S]) Get(t testing.TB, start func() (S, error)) S {
	t.Helper()
	// Deferred, so that a failed test or a panic does not block others.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started && s.server.Pid() == 0 {
		// A crashed server must not fail all other tests.
		t.Logf("shared server died:\n%s", s.server.Log())
		s.server.Close()
		s.started = false
	}
	if !s.started {
		server, err := start()
		if err != nil {
			t.Fatal(err)
		}
		s.server, s.started = server, true
		atEnd.Lock()
		defer atEnd.Unlock()
		atEnd.close = append(atEnd.close, server.Close)
	}
	return s.server
}

// atEnd lists what Main closes.
var atEnd struct {
	sync.Mutex
	close []func()
}

// Main runs the tests, stops the shared servers, and exits. A TestMain needs nothing else. If the
// tests have passed, the checks run last, when nothing of this package is running any more, so they
// can look for leaked goroutines.
//
// It lets sixteen parallel tests run at once instead of one per CPU, unless -parallel is set,
// because tests of leases wait most of the time.
func Main(m *testing.M, checks ...func() error) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "16"); err != nil {
			panic(err) // the testing package no longer has this flag
		}
	}
	code := m.Run()
	atEnd.Lock()
	for _, end := range atEnd.close {
		end()
	}
	atEnd.Unlock()
	if code == 0 {
		for _, check := range checks {
			if err := check(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	os.Exit(code)
}
