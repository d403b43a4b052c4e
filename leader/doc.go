// Package leader elects leaders: it runs a function on exactly one host of a fleet, or on N.
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
// Each host that calls [Run] stands by until the store grants it the role, then calls the function,
// and stands by again when the function has returned. Programs that need [Elector.Status] or
// [Elector.Healthy] call [New] and [Elector.Run] instead, which do the same in two steps.
//
// # The life of a term
//
// A term is a lease of one slot of the lock "leader:<name>". The session renews it. Its fence grows
// with every term of the slot: store the fence with everything that the leader writes, and reject a
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
// until then this process does not call the function again. A host that drains releases the role as
// soon as the function has returned, and another host leads within a RetryInterval. After a host
// was killed, another one leads within a TTL plus a RetryInterval.
//
// If the function returns, fails or panics, its host gives up the role and backs off for at least
// one RetryInterval, in which every other host tries once. After several failures in a row it backs
// off for longer each time, up to MaxBackOff.
//
// # Several leaders
//
// With Role.Max, up to that many hosts lead at the same time. Each has a [Term.Slot] of its own,
// from 0 to Max - 1, which can serve as the number of its shard. While fewer hosts than Max take
// part, some slots have no leader. A host takes at most one slot for each call of Run.
//
// # What is not promised
//
// There is not always a leader: there is none between the end of one term and the start of the
// next, and none once the store has not answered for longer than a lease lasts. A host never
// becomes the leader because the store fails (timers have StoreDownRunLocal for that; roles have no
// such policy).
//
// Two functions may run at the same time: a process that was stopped (SIGSTOP, a suspended machine)
// may wake while another host leads. [Term.Valid] is then false immediately, and the context ends
// within a second of waking. A function that ignores its context keeps running, too. Guard what
// must never be done twice with [Term.Fence].
//
// Hosts do not take turns: a host that has led may be elected again.
package leader
