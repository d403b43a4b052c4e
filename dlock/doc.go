// Package dlock holds leases on a shared store: locks that expire unless their holder renews them.
//
// A process makes one [Session] on a store (memlock, redislock, sqllock, or any other
// [DistributedLock]) and takes a [Mutex] or a slot of a [Semaphore] through it:
//
//	session, err := dlock.NewSession(store, dlock.SessionOptions{})
//	...
//	lease, err := session.Mutex("migrate").TryAcquire(ctx)
//	if held, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
//		return nil // somebody else has it: held.Holder, for held.HeldFor
//	}
//	if err != nil {
//		return err // the store did not answer: unknown, not "no"
//	}
//	defer lease.Release(ctx)
//	return work(lease.Context()) // cancelled when the lease is lost
//
// The Session renews its leases until they are released, and reports one that it loses.
//
// # The life of a lease
//
//	           TryAcquire            Extend answered "ok": the trust window starts again
//	  (free) ─────────────▶ held ◀──────────────┐
//	                         │ └────────────────┘
//	     Release             │       the trust window closed, or the store answered "lost"
//	  ◀──────────────────────┤
//	                         └──────▶ lost     Valid() is false; Context() ends, cause ErrLost
//
//	trust window: from the moment before the request was sent, for TTL − margin
//
// The margin is a tenth of the TTL, at most one second. The window is measured on the local
// monotonic clock, and time during which the machine was suspended counts. It is closed by a timer
// of its own, not by the heartbeat, so a store that hangs cannot keep it open. It does not start at
// the reply: a slow reply would then keep it open after the store has let the lease expire.
// (River's leader election and Redlock use the same formula.)
//
// # What is not promised
//
// A lease cannot stop your code; it can only report its loss. [Lease.Valid] turns false and
// [Lease.Context] is cancelled before the store can grant the lock to another holder, provided that
// your process is running. A process that was paused (SIGSTOP, a long garbage collection, a
// suspended VM) may find when it runs again that another process holds its lock. Valid is then
// false immediately, and the context is cancelled within a second. Guard what must never be done
// twice at the resource itself, with the [Fence] of the lease.
//
// Two things break the trust window: clocks that run at different speeds by more than the margin
// (clocks that only show different times do no harm), and a store that loses its data while it
// keeps running.
//
// # Several locks at once
//
// [Semaphore.With] takes a slot of each of several semaphores in one atomic step, or takes none. So
// two processes cannot deadlock, each holding a slot that the other waits for. One Lease holds all
// of these slots, and is lost as soon as any of them is.
//
// # Hooks
//
// [Hooks] report calls to the store, and leases that were acquired, lost and released, for metrics
// and alarms. A slow one delays no lease, apart from Hooks.Called.
//
// # For schedulers and stores
//
// Hosts that share a schedule also have to agree on who runs a [driver.Tick]; the store decides it
// in the round trip that takes the slot ([Semaphore.TryAcquireTick]). Package timer is built on it.
// Package dlock/driver has the contract of a store, for those who write one, and the overrides that
// operators set at run time ([driver.Controller]).
package dlock
