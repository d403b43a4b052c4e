// Package servertest runs servers for this module's tests. Each is a child process on a free port,
// with its files in a temporary folder, and is stopped by its pid. The servers themselves are in
// redistest and sqltest.
//
// It does not promise to clean up when a test binary is killed. On Linux the servers die with it,
// elsewhere they keep running. The temporary folders stay in either case.
//
// The core (Start, NewProxy) needs no *testing.T, so programs can use it too. The functions in
// testing.go register cleanups, log the server's output when a test fails, and skip tests if the
// server is not installed.
package servertest
