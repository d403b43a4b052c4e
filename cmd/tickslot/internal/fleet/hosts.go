package fleet

import (
	"strings"

	"github.com/tickslot/tickslot/cluster"
)

// HostStopped is the state of a process that has stopped cleanly.
const HostStopped = "stopped"

// HostState returns the state of a process in a word.
func HostState(h cluster.Host) string {
	if h.Left && h.State != cluster.HostRefused {
		return HostStopped
	}
	return string(h.State)
}

// HostFault returns the first error of its loops; "": none has one.
func HostFault(h cluster.Host) string {
	for _, r := range h.Runners {
		if r.Err != "" {
			return strings.TrimSpace(r.Kind+" "+r.Name) + ": " + r.Err
		}
	}
	return ""
}
