// Package clustertest tests stores of the registry.
//
// [Run] is the conformance suite: a store that passes it does what [cluster.Store] says. One call
// in the store's own test file is all it takes:
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
// It does not check that a store measures time by its server's clock and not by this process's,
// because the two agree here, nor that it survives the loss of its server.
package clustertest
