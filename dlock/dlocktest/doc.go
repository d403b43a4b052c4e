// Package dlocktest tests stores, and code that is built on them.
//
// [Run] is the conformance suite: a store that passes it keeps every promise of
// [driver.Store]. One call in the store's own test file is all it takes:
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
