// Package demo is shared by the examples quickstart and stores. Three hosts run two timers on one
// store. Halfway, one host is cut off while it holds a slot. A recorder around the handlers checks
// that no limit is exceeded.
//
// Read timers.go and host.go first: they are what you would write in your own service. hosts.go
// runs several hosts in this process and cuts one off. The rest serves the demonstration: wire.go
// is the connection that can be cut, recorder.go checks, picture.go and report.go print.
package demo
