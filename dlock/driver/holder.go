package driver

import "fmt"

// A Holder shows operators who has a lease. It has no effect on locking: two processes with the
// same Holder are two holders, because a lease belongs to a token.
type Holder struct {
	Host string // host name
	PID  int    // process ID on that host
	ID   string // random, so that two containers with one hostname and pid 1 can be told apart
}

// String returns host/pid/id.
func (h Holder) String() string {
	if h == (Holder{}) {
		return "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", h.Host, h.PID, h.ID)
}
