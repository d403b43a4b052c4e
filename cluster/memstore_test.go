package cluster_test

import (
	"testing"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/clustertest"
)

func TestMemoryStoreConformance(t *testing.T) {
	clustertest.Run(t, clustertest.Harness{
		Virtual: true,
		New: func(testing.TB) clustertest.Registries {
			return clustertest.Registries{Store: cluster.NewMemoryStore(), Other: cluster.NewMemoryStore()}
		},
	})
}
