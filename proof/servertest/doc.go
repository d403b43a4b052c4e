// Package servertest runs servers for tests: each one is a child process on a free port, with its
// files in a temporary folder, and is ended by its pid. It contains no particular server; redistest
// and sqltest do. It is no API: for our own tests.
//
// It does not promise that nothing is left behind when a test binary is killed:
// on Linux the servers die with it, elsewhere they go on, and the temporary
// folders stay in either case.
//
// The core (Start, NewProxy) needs no *testing.T, so that programs can use it
// too. The layer in testing.go registers cleanups, logs the server's output when
// a test fails, and skips tests on machines that lack the server.
package servertest
