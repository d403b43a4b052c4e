package dlock

import (
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock/driver"
)

var (
	// ErrNotAcquired matches every *NotAcquiredError.
	ErrNotAcquired = driver.ErrNotAcquired
	// ErrLost matches every *LostError: the lease ended before it was released.
	ErrLost = errors.New("lease lost")
	// ErrReleased is the cause of a lease's context after Release.
	ErrReleased = errors.New("lease released")
	// ErrFault matches the error of a store that answered but found a value that it cannot use at a
	// key of this name. The store itself works. As with ErrSetup, do not run without the store.
	ErrFault = driver.ErrFault
	// ErrSetup matches the error of a store that answered but cannot serve any name until it is
	// repaired. For example, a table or permission is missing, or a script may not call a command.
	// Unlike an outage, this state does not pass, so do not run without the store.
	ErrSetup = driver.ErrSetup
	// ErrClosed is the error of a Session after Close. It also matches the errors of stores that
	// are used after their Close: the stores of locks, of a registry, of durable runs and of an
	// outbox.
	ErrClosed = driver.ErrClosed
)

// A StoreError says that the store failed or did not answer in time. The store may or may not have
// executed the request, unless Err matches ErrSetup or ErrFault.
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
	StoreOpExtend  StoreOp = "extend"  // Extend, called by the heartbeat
	StoreOpRelease StoreOp = "release" // Release
)

// A LostError says how a lease was lost.
type LostError struct {
	Name string
	Slot int
	// Silent means that the trust window closed because the store did not answer the heartbeat. The
	// lock may still be free. If Silent is false, the store reported the end of the lease, or this
	// process was paused until after it.
	Silent bool
	// RevokedBy says who revoked the lease and why. It is nil if nobody did.
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
