// Package dlock keeps leases: locks that end by themselves when their holder stops renewing them.
//
// A store (redislock, memlock, or your own) implements the three small atomic steps of
// [DistributedLock]. Everything that is hard about holding a lease stands here once, above all
// stores: one heartbeat for the whole process, the trust window, the loss of a lease as a context
// cause, release on a detached context, and the clean-up after a reply that never came.
//
//	session, err := dlock.NewSession(store, dlock.SessionOptions{})
//	...
//	lease, err := session.Semaphore("resize-images", 3).TryAcquire(ctx)
//	if held, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
//		return nil // somebody else is at it: held.Holder, since held.Since
//	}
//	if err != nil {
//		return err // the store did not answer: unknown, not "no"
//	}
//	defer lease.Release(ctx)
//	return work(lease.Context()) // ends when the lease is lost
//
// # The life of a lease
//
//	           TryAcquire            Extend answered "ok": the window moves on
//	  (free) ─────────────▶ held ◀──────────────┐
//	                         │ └────────────────┘
//	     Release             │       the window closed, or the store answered "lost"
//	  ◀──────────────────────┤
//	                         └──────▶ lost     Valid() is false, Context() ends, cause ErrLost
//
//	trusted until = the moment before the request was sent + TTL − margin
//
// The margin is a tenth of the TTL, at most one second. The window is measured on the local
// monotonic clock and counts time during which the machine was suspended. A timer closes it, not
// the heartbeat, so a store that hangs cannot keep it open. Counting from the reply instead would
// be a bug that shows only when replies are slow. (The formula is that of River's leader election
// and of Redlock.)
//
// # What is not promised
//
// A lease cannot stop your code. It tells it: [Lease.Valid] turns false and [Lease.Context] ends
// before the store can grant the slot to another holder, provided that the process is running. A
// process that was paused (SIGSTOP, a long garbage collection, a suspended VM) may find, when it
// runs again, that somebody else holds its slot; Valid is false at once, the context ends within a
// second. What must never be done twice belongs behind a check of the [Fence] at the resource
// itself.
//
// Two clocks that run at different speeds (not: that show different times) by more than the margin
// break the window. So does a store that loses its data while it keeps running.
package dlock
