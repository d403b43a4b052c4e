package crowd

import "time"

// margin is how much longer than its bound something may take if the machine is not late. It covers
// the work after the timer fires.
const margin = 500 * time.Millisecond

// inTime reports whether something ended within its bound. The machine's lateness is not the
// store's fault, because nothing could run then. Nothing else is added for a busy machine;
// otherwise, a call that waits for a dead connection would pass.
func inTime(took, bound, late time.Duration) bool { return took <= bound+margin+late }
