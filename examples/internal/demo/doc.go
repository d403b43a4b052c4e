// Package demo is shared by the examples quickstart and stores: three hosts run two timers on one
// store, half-way one host is cut off while it holds a slot, and the handlers themselves check
// everything.
//
// Read the files in this order: timers.go is what you would write, host.go is one of your
// processes, hosts.go is what happens to them. The rest is scaffolding: wire.go cuts a host off,
// recorder.go checks, picture.go and report.go print.
package demo
