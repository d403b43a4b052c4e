// Package redistest runs private Redis servers for this module's tests, like package servertest.
//
// The core (Start, StartCluster, StartSentinel, NewCountingProxy) needs no *testing.T, so programs
// can use it too. The functions in testing.go are for tests, and skip them if redis-server is not
// installed.
package redistest
