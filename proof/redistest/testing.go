package redistest

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/tickslot/tickslot/proof/servertest"
)

// Require skips the test if redis-server is neither in PATH nor selected by servertest.Chosen. See
// servertest.Require.
func Require(t testing.TB) {
	t.Helper()
	var missing error
	if _, err := exec.LookPath(binary()); err != nil {
		missing = fmt.Errorf("%s not found", binary())
	}
	servertest.Require(t, missing, "install Redis 7 or newer "+
		"(apt-get install redis-server, brew install redis, or https://redis.io/docs/install)")
}

// New is Start for a test.
func New(t testing.TB, opts ...Options) *Server {
	t.Helper()
	Require(t)
	s, err := Start(only(opts))
	return servertest.Own(t, s, err)
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
	return servertest.Own(t, c, err)
}

// NewSentinel is StartSentinel for a test.
func NewSentinel(t testing.TB, opts ...SentinelOptions) *Sentinel {
	t.Helper()
	Require(t)
	s, err := StartSentinel(opts...)
	return servertest.Own(t, s, err)
}

// NewCountingProxyFor is NewCountingProxy for a test.
func NewCountingProxyFor(t testing.TB, target string) *CountingProxy {
	t.Helper()
	p, err := NewCountingProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

var shared servertest.Shared[*Server]

// Shared returns the test binary's one plain server, for tests that use their own key prefix and do
// not disturb the server. The binary's TestMain must call servertest.Main.
func Shared(t testing.TB) *Server {
	t.Helper()
	Require(t)
	return shared.Get(t, func() (*Server, error) { return Start(Options{}) })
}
