// Package leader elects leaders: a function that runs on exactly one host of a fleet, or on N.
//
//	session, err := dlock.NewSession(store, dlock.SessionOptions{})
//	...
//	return leader.Run(ctx, session, leader.Role{
//		Name: "relay",
//		Run: func(ctx context.Context, term *leader.Term) error {
//			return relay(ctx) // until ctx ends: because of a drain, or because the term is over
//		},
//	})
//
// Each host that calls [Run] stands by until the store grants it the role, calls the function, and
// stands by again when the function has returned. [New] and [Elector.Run] do the same in two steps,
// for programs that need [Elector.Status] or [Elector.Healthy].
//
// # The life of a term
//
// A term is a lease of a slot of the lock "leader:<name>", which the session renews. Its fence
// grows with every term of the slot: store it with everything that the leader writes, and reject a
// write with a lower fence.
//
//	            acquired                   the function returns
//	standing by ───────▶ leading ─────────────────────────────────▶ released, backs off
//	    ▲                   │ ctx ends ─▶ the function's context ends ─▶ it returns ─▶ released
//	    │                   │ the lease is lost ─▶ the function's context ends ─▶ it returns
//	    └───────────────────┴─────────────────────────────────────────────┘
//
// The function's context ends, with a cause that matches [dlock.ErrLost], before the store can
// grant the role to another host. The role is released only after the function has returned, and
// this process never calls the function a second time before that. A host that drains releases the
// role as soon as the function has returned, and another host leads within a RetryInterval. After a
// host was killed, another one leads within a TTL and a RetryInterval.
//
// A function that returns, fails or panics gives up the role, and its host backs off for at least
// one RetryInterval, in which every host that stands by gets a try. After failures in a row it
// backs off for longer each time, up to MaxBackOff.
//
// # Several leaders
//
// With Role.Max, up to that many hosts lead at once. Each has a [Term.Slot] of its own, from 0 to
// Max - 1, which can be the number of the shard that it works on. While fewer hosts than Max take
// part, some slots have no leader. A host takes at most one slot for each call of Run.
//
// # What is not promised
//
// There is not always a leader: there is none between the end of one term and the start of the
// next, and none while the store does not answer for longer than a lease lasts. A host never
// becomes the leader because the store fails (timers have StoreDownRunLocal for that, roles have
// nothing like it).
//
// Two functions may run at once: a process that was stopped (SIGSTOP, a suspended machine) may wake
// while another host leads. [Term.Valid] is then false at once, and the context ends within a
// second of the waking. A function that ignores its context goes on, too. Guard what must never be
// done twice with [Term.Fence].
//
// Hosts do not take turns: a host that has led may be elected again.
package leader
