package timer

import (
	"testing"

	"github.com/tickslot/tickslot/internal/testkit"
)

// The defaults are the values that the comments of the fields state.
//
// Fails when a default is changed only in the code.
func TestDefaultsAreDocumented(t *testing.T) {
	t.Parallel()
	c, one := Config{}.withDefaults(), Timer{}.withDefaults()
	testkit.CheckDefaults(t, ".", map[string]any{
		"Config.MaxRuns": c.MaxRuns, "Config.MaxWait": c.MaxWait, "Config.TTL": c.TTL,
		"Config.StoreTimeout": c.StoreTimeout, "Config.PreStopDelay": c.PreStopDelay,
		"Config.DrainTimeout": c.DrainTimeout, "Timer.MaxConcurrency": one.MaxConcurrency,
		"Timer.MaxRunTime": one.MaxRunTime, "Timer.AlarmAfter": one.AlarmAfter,
		"CatchUp.Window": one.CatchUp.Window, "Retry.MaxAttempts": one.Retry.MaxAttempts,
		"Retry.FirstWait": one.Retry.FirstWait, "Retry.MaxWait": one.Retry.MaxWait,
	})
}
