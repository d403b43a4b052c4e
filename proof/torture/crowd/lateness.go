package crowd

import "time"

// margin is how much longer than its bound something may take on a machine that is not late: for
// what comes after the timer that ends it.
const margin = 500 * time.Millisecond

// inTime reports whether something that has to end within a bound did. The machine's lateness
// meanwhile is no fault of the store's: whatever has to end then could not run. Nothing else is
// added for a busy machine, or a call that waits for a dead connection would pass.
func inTime(took, bound, late time.Duration) bool { return took <= bound+margin+late }
