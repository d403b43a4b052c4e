// Package timertest runs the timers and leaders of several hosts on a real store, in real time, and
// checks the invariants I1 to I13 (proof/faults.md) as the handlers see them. Packages timer and
// leader test the same invariants in virtual time. Here a store shows that it keeps its part of
// them. The package is for this module's tests. A store's test file needs one call:
//
//	func TestTimers(t *testing.T) {
//		t.Parallel()
//		timertest.Run(t, timertest.Harness{
//			New: func(t testing.TB) timertest.Store {
//				prefix := rand.Text() // a fresh, empty part of the server
//				return timertest.Store{Open: func(t testing.TB) dlock.DistributedLock {
//					store := mystore.New(server, mystore.Options{Prefix: prefix})
//					t.Cleanup(func() { store.Close() })
//					return store
//				}}
//			},
//		})
//	}
//
// The subtests are parallel, so they continue after Run has returned: close shared resources in
// t.Cleanup, not with defer. About ten of them wait most of the time, so let sixteen run at once
// (-parallel 16), as servertest.Main does. The package's TestMain must check for leaked goroutines.
//
// A busy machine makes the suite slower but does not make it fail. Waits have generous bounds, and
// where a promise is about time, the time in which this process did not run is added. Limits and
// fences are exact.
//
// Stopped does the same with overrides that change while a host in another process is paused
// (SIGSTOP). The test binary becomes that host by calling Child.
//
// The package does not test the store alone (see dlock/dlocktest), or a server that is killed or
// loses its data. The store must have fences, and take tick and slot in one step.
package timertest
