package dlock

import (
	"crypto/rand"
	"os"
	"strings"

	"github.com/tickslot/tickslot/dlock/driver"
)

// This file declares what a store and its users share, from package driver.

// A DistributedLock is a store of leases, which [NewSession] takes: memlock, redislock, sqllock or
// your own. Package driver has the contract that it must keep.
type DistributedLock = driver.Store

// A Holder shows operators who has a lease.
type Holder = driver.Holder

// NewHolder returns a Holder for this process. Each call returns another ID.
func NewHolder() Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Holder{Host: host, PID: os.Getpid(), ID: strings.ToLower(rand.Text()[:8])}
}

// A Fence grows with every grant of a slot. A resource that remembers the highest fence it has seen
// can refuse a holder that has lost its lease.
type Fence = driver.Fence

// A SemaphoreSpec names a semaphore, and says how many slots it has: see [Semaphore.With].
type SemaphoreSpec = driver.SemaphoreSpec

// A NotAcquiredError says that the store refused, and why. It is an answer, not a failure: the
// store works.
type NotAcquiredError = driver.NotAcquiredError

// A Reason is why the store refused.
type Reason = driver.Reason

// The reasons of a Mutex and a Semaphore. Package driver also has those of ticks.
const (
	ReasonFull       = driver.ReasonFull       // every slot is held
	ReasonPaused     = driver.ReasonPaused     // an operator paused the name
	ReasonQuarantine = driver.ReasonQuarantine // the store restarted, and may have forgotten leases that are still held
	ReasonLimitFull  = driver.ReasonLimitFull  // a semaphore of Semaphore.With has no free slot, or is paused
	ReasonLimitRate  = driver.ReasonLimitRate  // a semaphore of Semaphore.With has used up its rate
)
