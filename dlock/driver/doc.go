// Package driver is the contract between dlock and a store of leases. It is for people who write or
// wrap a store. If you want a mutex or a semaphore, use package dlock.
//
// Package dlock does the hard part of holding a lease: heartbeats, trust windows, retries, lost
// replies. A store is therefore only three atomic steps, without goroutines and retries:
//
//	method       of [Store]      asked by dlock.Session                          on the server
//	─────────────────────────────────────────────────────────────────────────────────────────────
//	TryAcquire   one request     once; once more, with the same token, if no     one atomic step
//	                             answer comes within half of StoreTimeout
//	Extend       many grants     every third of a TTL                            atomic per grant
//	Release      many grants     once; again in the background if no answer      atomic per grant
//	                             comes, until a TTL has passed
//
// # How to write a store
//
// Keep for each name:
//
//   - for each slot, the token, the holder, the fence, and four instants of the lease: granted,
//     renewed, end, released
//   - for the latest tick, its instant, the number of its starts, its schedule, and the host that
//     claimed it
//   - the number of slots that the latest grant declared
//   - the highest fence. A new fence is at least one more than the last one and at least the
//     server's clock in microseconds, so that fences grow even if the data are lost
//
// Keep this data for at least 40 days after the last use. A mutex is a separate name with one slot:
// the semaphore of the same name is another lock. A server whose atomic step cannot read the
// server's clock cannot be used for a store. Then:
//
//  1. Call [Request.Validate] first, so that no harmful name or number reaches the server.
//  2. Execute the ten steps of [Store], in order, in one atomic step of the server: a script, a
//     transaction, a mutex. All instants come from the server's clock. Caller and store exchange
//     only durations, so a host with a wrong clock harms no other host.
//  3. Return one of three answers: a [Grant]; a *[NotAcquiredError], which is an answer and not a
//     failure; or any other error, which means "unknown". If the server answered but needs repair,
//     wrap [ErrSetup] or [ErrFault].
//  4. In Extend and Release, find a lease by its token. Answer [GrantLost] if the token no longer
//     has the slot, or if the lease has ended, even if the slot is still free.
//  5. Return when the context ends. Turn off the client library's retries and timeouts, or limit
//     them to the deadline.
//  6. Add the server's other features, one interface at a time: see [Capabilities]. If a request
//     needs something that the store cannot do, such as ticks or shared limits, return an error
//     that matches [ErrFault].
//
// Package memlock is the shortest store and the model for the others. Its steps are in
// internal/leasestate. They have the numbers and names from here, as do the scripts of redislock
// and the statements of sqllock. It implements all optional interfaces except those for stores with
// servers.
//
// # How to test a store
//
// Package dlocktest tests a store against the contract. dlocktest.Run needs a function that opens
// the store in an empty namespace of the server, and the list of the features that the store
// claims. It checks exclusion under load and against a model, tokens and lost replies, expiry and
// clocks, ticks and delays, overrides, listing, and that each call is one round trip. It cannot
// check what happens when a server dies, fails over or loses its data. Write tests that kill a
// server, and describe the results in the package documentation.
//
// # What a store need not do
//
// A store does not renew leases, queue requests or notify hosts, and no call waits for a lease to
// become free. A store need not be fair. It need not keep its data when its server loses them. But
// if it may have lost leases that are held, it must refuse requests ([ReasonQuarantine]) until all
// of these leases have ended. It cannot stop a holder whose lease has ended: fences serve that
// purpose. It may return no fences (0), and it may lack every optional interface. A caller that
// needs a missing interface returns an error that names it.
package driver
