// Package lockmetrics counts what locks do, for Prometheus: who got them and who did not, how long
// callers waited and held them, renewals, and leases that were lost or expired. It is for sessions
// of dlock without timers; a timer.Scheduler has metrics of its own (docs/metrics.md has both).
//
//	m := lockmetrics.New(lockmetrics.Options{})
//	registry.MustRegister(m)
//	session, err := dlock.NewSession(store, dlock.SessionOptions{Hooks: m.Hooks(dlock.Hooks{})})
//
// What it does not promise: that a lease is counted immediately, or at all. Leases are counted by
// hooks that run a little later. dlock drops some of their events if more than 10,000 wait
// (dlock.Session.DroppedEvents), and events after Session.Close are not counted. Nor does it know
// what other processes hold.
package lockmetrics
