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
// stands by again when that has returned. [New] and [Elector.Run] do the same in two steps, for
// those who want [Elector.Status] and [Elector.Healthy].
//
// # The life of a term
//
// A term is a lease of a slot of the lock "leader:<name>", which the session renews. Its fence
// grows with every term of the slot: write it with what the leader writes, and refuse lower ones.
//
//	            acquired                   the function returns
//	standing by ───────▶ leading ─────────────────────────────────▶ released, stands back
//	    ▲                   │ ctx ends ─▶ the function's context ends ─▶ it returns ─▶ released
//	    │                   │ the lease is lost ─▶ the function's context ends ─▶ it returns
//	    └───────────────────┴─────────────────────────────────────────────┘
//
// The function's context ends, with a cause that matches [dlock.ErrLost], before the store can
// grant the role to another host. The role is released only after the function has returned, and
// this process never calls the function a second time before that. A host that drains releases at
// once, so that another one leads within a RetryInterval; one that was killed, within a TTL and a
// RetryInterval.
//
// A function that returns, fails or panics gives up the role, and its host stands back for at least
// one RetryInterval, in which every host that stands by gets a try. After failures in a row it
// stands back for longer each time, up to MaxBackOff.
//
// # Several leaders
//
// With Role.Max, up to that many hosts lead at once. Each has another [Term.Slot], from 0 to Max -
// 1, which can be the number of the shard that it works on. While fewer hosts than Max take part,
// some slots have nobody. A host takes at most one slot for each call of Run.
//
// # What is not promised
//
// That there is a leader at every instant: there is none while a term passes on, and none while the
// store does not answer for longer than a lease lasts. A store that fails is never a reason to lead
// (timers have StoreDownRunLocal for that, roles have nothing like it).
//
// That two functions never run at once: a process that was stopped (SIGSTOP, a suspended machine)
// may wake while another leads. [Term.Valid] is false at once, and the context ends within a second
// of its waking. A function that ignores its context goes on, too. Guard what must never be done
// twice with [Term.Fence].
//
// That hosts take turns: who has led may lead again.
package leader
