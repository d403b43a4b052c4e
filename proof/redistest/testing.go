package redistest

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/tickslot/tickslot/proof/servertest"
)

// Require skips the test if there is no redis-server in PATH, nor one that servertest.Chosen
// chooses, see servertest.Require.
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

// Shared returns the test binary's one plain server, for tests that keep to a
// key prefix of their own and leave the server as it is. The binary's TestMain
// has to call servertest.Main.
func Shared(t testing.TB) *Server {
	t.Helper()
	Require(t)
	return shared.Get(t, func() (*Server, error) { return Start(Options{}) })
}
