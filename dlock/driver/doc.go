// Package driver is the contract of a store of leases, for people who write or wrap one. If you
// want a mutex or a semaphore, use package dlock.
//
// The hard part of holding a lease is in package dlock: heartbeats, trust windows, requests that
// are repeated, replies that are lost. So a store is three atomic steps, without goroutines and
// without retries:
//
//	method       of [Store]      asked by dlock.Session                          on the server
//	─────────────────────────────────────────────────────────────────────────────────────────────
//	TryAcquire   one request     once; once more, with the same token, if no     one atomic step
//	                             answer comes within half of StoreTimeout
//	Extend       many grants     every third of a TTL                            atomic per grant
//	Release      many grants     once; again in the background if no answer      atomic per grant
//	                             comes, until a TTL has passed
//
// # To write one
//
// Keep, for each name:
//
//   - for each slot the token, the holder, the fence, and four instants of the lease: granted,
//     renewed, end, released
//   - for the latest tick its instant, how often it was started, its schedule, and who claimed it
//   - the number of slots that the latest grant declared
//   - the highest fence. A new fence is one more than the last, and at least the server's clock in
//     microseconds, so that it grows although the data are lost
//
// Keep this for at least 40 days after the last use. A
// mutex is a name of its own with one slot, so that the semaphore of the same name is another lock.
// A server whose atomic step cannot read a clock of its own cannot be a store. Then:
//
//  1. Call [Request.Validate] first, so that no harmful name or number reaches the server.
//  2. Do the ten steps of [Store], in their order, in one atomic step of the server: a script, a
//     transaction, a mutex. All instants are those of the server's clock. Only durations
//     pass between caller and store, so a host whose clock is wrong harms nobody.
//  3. Answer one of three things. A [Grant]; a *[NotAcquiredError], which is an answer and no
//     failure; or any other error, which means "unknown". Wrap [ErrSetup] or [ErrFault] if the
//     server answered, and found a fault that does not pass until it is repaired.
//  4. Find a lease by its token in Extend and Release. Answer [GrantLost] if the token no
//     longer has the slot, and also if the lease has ended but nobody else has taken the slot.
//  5. End each call with its context: switch off retries and time-outs of the client library, or
//     bound them by the deadline.
//  6. Add what more the server can do, one interface at a time: see [Capabilities]. If a request
//     needs what the store cannot do, such as ticks or shared limits, refuse it with an error that
//     matches [ErrFault].
//
// Package memlock is the shortest store, and the model for the others. Its steps are in
// internal/leasestate: each has the number and the name that it has here, as in the scripts of
// redislock and the statements of sqllock. It has all optional interfaces but those of stores with
// servers.
//
// # To check one
//
// Package dlocktest runs a store through the contract: dlocktest.Run needs a function that opens it
// in an empty corner of the server, and the list of what the store claims to be able to do. It
// checks exclusion under load and against a model, tokens and lost replies, expiry and clocks,
// ticks and delays, overrides, listing, and that each call is one round trip. It cannot check a
// server that dies, fails over or loses its data: write tests that kill one, and say in the doc of
// the package what happens then.
//
// # What is not asked of a store
//
// It does not renew, wait, queue or notify: no call waits for a lease to become free. It need not
// be fair. It need not keep its data when its server loses them; but if it may have lost leases
// that are held, it must refuse ([ReasonQuarantine]) until all of them have ended. It cannot stop a
// holder whose lease has ended: that is what fences are for. It may give no fences (0), and may
// lack every optional interface: a caller that needs one returns an error that names it.
package driver
