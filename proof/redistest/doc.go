// Package redistest runs private Redis servers for tests, in the manner of package servertest. It
// is no API: for our own tests.
//
// The core (Start, StartCluster, StartSentinel, NewCountingProxy) needs no
// *testing.T, so that programs can use it too. The layer in testing.go is for
// tests, and skips them on machines that have no redis-server.
package redistest
