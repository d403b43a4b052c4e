package commands

import "time"

// SetCallTimeout sets how long a command may ask a store.
func SetCallTimeout(d time.Duration) { callTimeout = d }
