// Package fleet defines the conventions that the hosts of a fleet share with the programs that
// control it: the names under which the store keeps the data of a timer, the IDs of runs, and the
// queue of triggers.
package fleet

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
)

// HostsLock is a semaphore in which every running scheduler holds a slot. Its leases are the list
// of hosts. The shared heartbeat renews them, so a host that dies leaves the list within a TTL. The
// answers to these renewals tell hosts that overrides or triggers have changed.
const HostsLock = "tickslot:hosts"

// TimerLock returns the name of the lock that has the slots of a timer.
func TimerLock(timer string) string { return "timer:" + timer }

// IsTimer reports whether a lock belongs to a timer.
func IsTimer(lock string) bool { return strings.HasPrefix(lock, "timer:") }

// RunID returns the ID of a run that began with a slot in the store.
func RunID(slot int, fence dlock.Fence) string {
	return strconv.Itoa(slot) + "-" + strconv.FormatInt(int64(fence), 10)
}

// ParseRunID returns the slot and the fence with which a run began. ok is false if the run began
// without a slot in the store.
func ParseRunID(id string) (slot int, fence dlock.Fence, ok bool) {
	first, second, _ := strings.Cut(id, "-")
	slot, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0, false
	}
	n, err := strconv.ParseInt(second, 10, 64)
	return slot, dlock.Fence(n), err == nil && n > 0
}

// Inspect calls Controller.Inspect. It returns an error if the store panics or returns a different
// number of states.
func Inspect(ctx context.Context, ctl driver.Controller, names []string) (list []driver.ControlState, err error) {
	err = guard.Call("store", func() (err error) { list, err = ctl.Inspect(ctx, names...); return err })
	if err == nil && len(list) != len(names) {
		err = fmt.Errorf("%d answers for %d names", len(list), len(names))
	}
	return list, err
}
