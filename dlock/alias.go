package dlock

import (
	"crypto/rand"
	"os"
	"strings"

	"github.com/tickslot/tickslot/dlock/driver"
)

// This file re-exports the types of package driver that users of dlock need.

// A DistributedLock is a store of leases: memlock, redislock, sqllock or your own. Pass it to
// [NewSession]. Package driver defines the contract of a store.
type DistributedLock = driver.Store

// A Holder shows operators who has a lease.
type Holder = driver.Holder

// NewHolder returns a Holder for this process. Each call returns a different ID.
func NewHolder() Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Holder{Host: host, PID: os.Getpid(), ID: strings.ToLower(rand.Text()[:8])}
}

// A Fence grows with every grant of a slot. A resource can remember the highest fence that it has
// seen and refuse a holder that has lost its lease.
type Fence = driver.Fence

// A SemaphoreSpec is the name of a semaphore and its number of slots: see [Semaphore.With].
type SemaphoreSpec = driver.SemaphoreSpec

// A NotAcquiredError says that the store refused a request, and why. It is an answer, not a
// failure: the store works.
type NotAcquiredError = driver.NotAcquiredError

// A Reason says why the store refused a request.
type Reason = driver.Reason

// These reasons apply to a Mutex and a Semaphore. Package driver also has the reasons for ticks.
const (
	ReasonFull       = driver.ReasonFull       // every slot is held
	ReasonPaused     = driver.ReasonPaused     // an operator paused the name
	ReasonQuarantine = driver.ReasonQuarantine // the store restarted and may have lost leases that are still held
	ReasonLimitFull  = driver.ReasonLimitFull  // a semaphore of Semaphore.With has no free slot or is paused
	ReasonLimitRate  = driver.ReasonLimitRate  // a semaphore of Semaphore.With has used up its rate
)
