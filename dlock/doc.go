// Package dlock holds leases on a shared store: locks that expire unless their holder renews them.
//
// A process makes one [Session] on a store (memlock, redislock, sqllock, or any other
// [DistributedLock]) and takes a [Mutex] or a slot of a [Semaphore] through it:
//
//	session, err := dlock.NewSession(store, dlock.SessionOptions{})
//	...
//	lease, err := session.Mutex("migrate").TryAcquire(ctx)
//	if held, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
//		return nil // another process has it: held.Holder, for held.HeldFor
//	}
//	if err != nil {
//		return err // the store did not answer: unknown, not "no"
//	}
//	defer lease.Release(ctx)
//	return work(lease.Context()) // cancelled when the lease is lost
//
// The Session renews its leases until they are released, and reports the loss of a lease.
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
// The margin is a tenth of the TTL, at most one second. The local monotonic clock measures the
// window, and time during which the machine was suspended counts. A separate timer closes the
// window, not the heartbeat, so a store that hangs cannot keep it open. The window does not start
// at the reply: a slow reply could then keep it open after the lease has expired in the store.
// (River's leader election and Redlock use the same formula.)
//
// # What is not promised
//
// A lease cannot stop your code; it can only report its loss. [Lease.Valid] turns false and
// [Lease.Context] is cancelled before the store can grant the lock to another holder, provided that
// your process is running. If your process was paused (SIGSTOP, a long garbage collection, a
// suspended VM), another process may hold its lock when it runs again. Valid is then false
// immediately, and the context is cancelled within a second. If something must never be done twice,
// guard the resource itself with the [Fence] of the lease.
//
// Two things break the trust window: clocks whose speeds differ by more than the margin allows, and
// a store that loses its data while it keeps running. Clocks that show different times do no harm.
//
// # Several locks at once
//
// [Semaphore.With] takes a slot of each of several semaphores in one atomic step, or none at all.
// So two processes cannot deadlock by each holding a slot that the other waits for. One Lease holds
// all of these slots and is lost as soon as one of them is.
//
// # Hooks
//
// [Hooks] report calls to the store and leases that are acquired, lost or released, for metrics and
// alerts. A slow hook delays no lease, except Hooks.Called.
//
// # For schedulers and stores
//
// Hosts that share a schedule must also agree on who runs a [driver.Tick]. The store decides this
// in the round trip that takes the slot ([Semaphore.TryAcquireTick]). Package timer uses it.
// Package dlock/driver defines the contract for authors of a store, and the overrides that
// operators set at run time ([driver.Controller]).
package dlock
