// Package timertest runs the timers of several hosts on a real store, in real time, and checks the invariants I1 to I12 of the
// design as the handlers see them. The same invariants are tested in virtual time in package timer; here it is shown that
// a store keeps its part of them. One call in the store's own test file is all it takes:
//
//	func TestTimers(t *testing.T) {
//		t.Parallel()
//		timertest.Run(t, timertest.Harness{
//			New: func(t testing.TB) timertest.Store {
//				prefix := rand.Text() // a fresh, empty corner of the server
//				return timertest.Store{Open: func(t testing.TB) dlock.DistributedLock {
//					store := mystore.New(server, mystore.Options{Prefix: prefix})
//					t.Cleanup(func() { store.Close() })
//					return store
//				}}
//			},
//		})
//	}
//
// The subtests are parallel, so they go on after Run has returned: what they share is closed in a t.Cleanup, not with defer.
// About ten of them wait for most of their time; let sixteen run at once (-parallel 16), as servertest.Main does. No
// goroutine may be left in the end: the TestMain of the package has to look.
//
// A machine that is busy makes the suite slower and does not make it fail: what takes time is waited for, with a bound, and
// where a promise is about time, what this process stood still for is granted. Limits and fences are exact.
//
// Stopped does the same with overrides that change while a host is a process of its own that is stopped (SIGSTOP): the test binary becomes that
// host by calling Child.
//
// What it does not test: the store by itself, which is dlock/dlocktest's; a server that is killed or loses its data. The store
// must give fences and take tick and slot in one step.
package timertest
