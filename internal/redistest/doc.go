// Package redistest runs private Redis servers for tests: each one is a child
// process on a free port, with its files in a temporary folder, and is ended by
// its pid.
//
// The core (Start, StartCluster, StartSentinel, NewProxy) needs no *testing.T,
// so that programs can use it too. The layer in testing.go registers cleanups,
// logs the server's output when a test fails, and skips tests on machines that
// have no redis-server.
package redistest
