package fleet

import (
	"strings"

	"github.com/tickslot/tickslot/cluster"
)

// HostStopped is the state of a process that has stopped cleanly.
const HostStopped = "stopped"

// HostState returns the state of a process as a word.
func HostState(h cluster.Host) string {
	if h.Left && h.State != cluster.HostRefused {
		return HostStopped
	}
	return string(h.State)
}

// HostFault returns the first error of the host's loops, or "" if there is none.
func HostFault(h cluster.Host) string {
	for _, r := range h.Runners {
		if r.Err != "" {
			return strings.TrimSpace(r.Kind+" "+r.Name) + ": " + r.Err
		}
	}
	return ""
}
