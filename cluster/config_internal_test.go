package cluster

import (
	"testing"

	"github.com/tickslot/tickslot/internal/testkit"
)

// The defaults are those stated in the comments of the fields.
//
// Fails when a default is changed only in the code.
func TestDefaultsAreDocumented(t *testing.T) {
	t.Parallel()
	c := Config{}.withDefaults()
	testkit.CheckDefaults(t, ".", map[string]any{
		"Config.TTL": c.TTL, "Config.StoreTimeout": c.StoreTimeout, "Config.SnapshotAge": c.SnapshotAge,
		"Retention.Hosts": c.Retention.Hosts, "Retention.Leases": c.Retention.Leases,
		"Retention.Events": c.Retention.Events, "Retention.Runs": c.Retention.Runs,
	})
}
