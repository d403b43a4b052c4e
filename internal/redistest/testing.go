package redistest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
)

const (
	// requireEnv set to 1 makes a missing redis-server a failure.
	requireEnv = "TICKSLOT_REQUIRE_SERVERS"
	// skipsEnv names a file that collects the tests skipped for want of one.
	skipsEnv = "TICKSLOT_SKIPS"
)

// Find returns nil if redis-server is in PATH.
func Find() error {
	if _, err := exec.LookPath(binary); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	return nil
}

// Require skips the test if there is no redis-server, and puts it on record in
// the file named by TICKSLOT_SKIPS. With TICKSLOT_REQUIRE_SERVERS=1 it fails
// the test instead.
func Require(t testing.TB) {
	t.Helper()
	err := Find()
	if err == nil {
		return
	}
	if os.Getenv(requireEnv) == "1" {
		t.Fatalf("%v\n%s=1 wants it: install Redis 7 or newer "+
			"(apt-get install redis-server, brew install redis, or https://redis.io/docs/install)",
			err, requireEnv)
	}
	if path := os.Getenv(skipsEnv); path != "" {
		if err := appendLine(path, t.Name()+": "+binary+" not found"); err != nil {
			t.Errorf("record the skip: %v", err)
		}
	}
	t.Skip(err)
}

// appendLine writes the line in one call: the test binaries of several packages
// share the file.
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

// New is Start for a test: the server ends with the test, and its output is
// logged if the test failed.
func New(t testing.TB, opts ...Options) *Server {
	t.Helper()
	Require(t)
	s, err := Start(only(opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.Addr(), s.Log())
		}
		s.Close()
	})
	return s
}

// NewCluster is StartCluster for a test.
func NewCluster(t testing.TB, n int, opts ...Options) *Cluster {
	t.Helper()
	return NewClusterWithReplicas(t, n, 0, opts...)
}

// NewClusterWithReplicas is StartClusterWithReplicas for a test.
func NewClusterWithReplicas(t testing.TB, masters, replicasPer int, opts ...Options) *Cluster {
	t.Helper()
	Require(t)
	c, err := StartClusterWithReplicas(masters, replicasPer, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range c.Nodes {
				t.Logf("log of %s:\n%s", n.Addr(), n.Log())
			}
		}
		c.Close()
	})
	return c
}

// NewSentinel is StartSentinel for a test.
func NewSentinel(t testing.TB, opts ...Options) *Sentinel {
	t.Helper()
	Require(t)
	s, err := StartSentinel(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Log())
		}
		s.Close()
	})
	return s
}

// NewProxyFor is NewProxy for a test.
func NewProxyFor(t testing.TB, target string) *Proxy {
	t.Helper()
	return proxyFor(t, target, NewProxy)
}

// NewCountingProxyFor is NewCountingProxy for a test.
func NewCountingProxyFor(t testing.TB, target string) *Proxy {
	t.Helper()
	return proxyFor(t, target, NewCountingProxy)
}

func proxyFor(t testing.TB, target string, start func(string) (*Proxy, error)) *Proxy {
	t.Helper()
	Require(t)
	p, err := start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

var shared struct {
	sync.Mutex
	server *Server
}

// Shared returns the test binary's one plain server, for tests that keep to a
// key prefix of their own and leave the server as it is. The binary's TestMain
// has to call Main.
func Shared(t testing.TB) *Server {
	t.Helper()
	Require(t)
	// Deferred, so that a failed test or a panic does not lock out the others.
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil && shared.server.Pid() == 0 {
		// It crashed, which is no reason for all the other tests to fail.
		t.Logf("shared server died:\n%s", shared.server.Log())
		shared.server.Close()
		shared.server = nil
	}
	if shared.server == nil {
		s, err := Start(Options{})
		if err != nil {
			t.Fatal(err)
		}
		shared.server = s
	}
	return shared.server
}

func closeShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.Close()
		shared.server = nil
	}
}

// Main runs the tests, ends the shared server, and exits. It is all that a
// TestMain needs. If the tests have passed, the checks run last, when nothing
// of this package is running any more: goroutine leaks can be looked for there.
//
// It lets sixteen parallel tests run at once instead of one per processor, unless -parallel says otherwise: tests of
// leases wait most of the time.
func Main(m *testing.M, checks ...func() error) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "16"); err != nil {
			panic(err) // the testing package has no such flag any more
		}
	}
	code := m.Run()
	closeShared()
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
