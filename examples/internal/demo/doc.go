// Package demo is the stage of the examples quickstart and stores: three hosts run two timers on
// one store, half-way one host is cut off while it holds a slot, and everything is checked by the
// handlers themselves.
//
// In the order in which to read it: timers.go is what you would write, host.go is a process of
// yours, fleet.go is what happens to them. The rest is stage machinery: wire.go cuts a host off,
// recorder.go checks, picture.go and report.go print.
package demo
