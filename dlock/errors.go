package dlock

import (
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock/driver"
)

var (
	// ErrNotAcquired is matched by every *NotAcquiredError.
	ErrNotAcquired = driver.ErrNotAcquired
	// ErrLost is matched by every *LostError: the lease ended before it was released.
	ErrLost = errors.New("lease lost")
	// ErrReleased is the cause of a lease's context after Release.
	ErrReleased = errors.New("lease released")
	// ErrFault is matched by an error of a store that answered, but found a value that it cannot
	// use at a key of this name. The store itself works. As with ErrSetup, do not run without the
	// store.
	ErrFault = driver.ErrFault
	// ErrSetup is matched by an error of a store that answered, but can serve no name until it is
	// repaired: a table or a right is missing, or its scripts may not call a command that they
	// need. Unlike an outage it does not pass: do not run without the store.
	ErrSetup = driver.ErrSetup
	// ErrClosed is returned by a Session after Close, and matched by the errors of a store that is
	// used after its Close: of locks, of a registry, of durable runs and of an outbox.
	ErrClosed = driver.ErrClosed
)

// A StoreError says that the store failed or did not answer in time. Unless Err matches ErrSetup or
// ErrFault, it is unknown whether the store carried out the request.
type StoreError struct {
	Op   StoreOp // StoreOpAcquire or StoreOpRelease
	Name string
	Err  error
}

func (s *StoreError) Error() string {
	if errors.Is(s.Err, ErrFault) || errors.Is(s.Err, ErrSetup) {
		return fmt.Sprintf("%s: %s: %v", s.Name, s.Op, s.Err)
	}
	return fmt.Sprintf("%s: %s: the store failed: %v", s.Name, s.Op, s.Err)
}

func (s *StoreError) Unwrap() error { return s.Err }

// A StoreOp is a method of a DistributedLock.
type StoreOp string

const (
	StoreOpAcquire StoreOp = "acquire" // TryAcquire
	StoreOpExtend  StoreOp = "extend"  // Extend: the heartbeat calls it
	StoreOpRelease StoreOp = "release" // Release
)

// A LostError says how a lease was lost.
type LostError struct {
	Name string
	Slot int
	// Silent: the trust window closed because the store did not answer the heartbeat. Maybe nobody
	// has taken the lease. If false, the store said that the lease had ended, or this process was
	// paused until after its end.
	Silent bool
	// RevokedBy is who revoked the lease, and why; nil if nobody did.
	RevokedBy *driver.Cause
	// Err is the error of the last heartbeat, if it failed.
	Err error
}

func (l *LostError) Error() string {
	if l.RevokedBy != nil {
		return fmt.Sprintf("%s: slot %d: lease lost: revoked %s", l.Name, l.Slot, l.RevokedBy)
	}
	if l.Silent {
		return fmt.Sprintf("%s: slot %d: lease lost: the store did not answer the heartbeat in time: %v",
			l.Name, l.Slot, l.Err)
	}
	return fmt.Sprintf("%s: slot %d: lease lost: it ended before it was renewed", l.Name, l.Slot)
}

// Is makes errors.Is(err, ErrLost) true.
func (l *LostError) Is(target error) bool { return target == ErrLost }

func (l *LostError) Unwrap() error { return l.Err }
