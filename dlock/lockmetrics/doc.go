// Package lockmetrics exports Prometheus metrics of locks: attempts and their results, how long
// callers wait, how long leases are held, renewals, and leases that are lost or expired. It is for
// sessions of dlock without timers. A timer.Scheduler has its own metrics. docs/metrics.md lists
// both.
//
//	m := lockmetrics.New(lockmetrics.Options{})
//	registry.MustRegister(m)
//	session, err := dlock.NewSession(store, dlock.SessionOptions{Hooks: m.Hooks(dlock.Hooks{})})
//
// What it does not promise: that a lease is counted immediately, or at all. Hooks count the leases
// a little later. If more than 10,000 events wait, dlock drops some of them
// (dlock.Session.DroppedEvents). Events after Session.Close are not counted. The package knows
// nothing about the leases of other processes.
package lockmetrics
