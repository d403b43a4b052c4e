package leader

import (
	"testing"

	"github.com/tickslot/tickslot/internal/testkit"
)

// The defaults are those that the comments of the fields state.
//
// Fails when one is changed in the code only.
func TestDefaultsAreDocumented(t *testing.T) {
	t.Parallel()
	r := Role{}.withDefaults()
	testkit.CheckDefaults(t, ".", map[string]any{
		"Role.Max": r.Max, "Role.RetryInterval": r.RetryInterval, "Role.StopTimeout": r.StopTimeout,
	})
}
