// Package clustertest tests stores of the registry.
//
// [Run] is the conformance suite: a store that passes it does what [cluster.Store] says. Call it
// once from the store's own tests:
//
//	func TestConformance(t *testing.T) {
//		clustertest.Run(t, clustertest.Harness{
//			New: func(t testing.TB) clustertest.Registries {
//				return clustertest.Registries{
//					Store: mystore.New(server, mystore.Options{Prefix: rand.Text()}),
//					Other: mystore.New(server, mystore.Options{Prefix: rand.Text()}),
//				}
//			},
//		})
//	}
//
// The suite cannot check that a store measures time by its server's clock, because that clock and
// this process's clock agree during the tests. It also does not check that a store survives the
// loss of its server.
package clustertest
