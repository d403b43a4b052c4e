// Package dlocktest tests stores and code that uses them.
//
// [Run] is the conformance suite. A store that passes it keeps every promise of [driver.Store]. The
// store's test file needs only one call:
//
//	func TestConformance(t *testing.T) {
//		dlocktest.Run(t, dlocktest.Harness{
//			Features: dlocktest.Features{Fence: true, AtomicTick: true, Holders: true},
//			New: func(t testing.TB) dlocktest.Namespace {
//				prefix := rand.Text() // a fresh, empty corner of the server
//				return dlocktest.Namespace{
//					Open: func() driver.Store {
//						store := mystore.New(server, mystore.Options{Prefix: prefix})
//						t.Cleanup(func() { store.Close() })
//						return store
//					},
//				}
//			},
//		})
//	}
//
// [Faulty] wraps a store and makes its calls fail on demand: replies get lost, requests arrive
// late, the store hangs. Both work inside a testing/synctest bubble.
//
// What it does not promise: that a store survives the loss of its server or of its network. Only a
// test that kills a real server shows that.
package dlocktest
