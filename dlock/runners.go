package dlock

import "time"

// Runners reports the state of the heartbeat, so that a Session is a cluster.Runner. The state is
// "renewing", even if there is nothing to renew; "failing", with the last error; or "closed".
// Runners only reads memory.
func (s *Session) Runners(show func(kind, name, state string, changedAt time.Time, err error)) {
	s.mu.Lock()
	state, now := "renewing", renewalState{}
	for h := range s.allHeartbeats {
		if h.failing && !now.failing || h.failing == now.failing && h.changedAt.After(now.changedAt) {
			now = h.renewalState
		}
	}
	switch {
	case s.closed:
		state = "closed"
	case now.failing:
		state = "failing"
	}
	s.mu.Unlock()
	show("heartbeat", "", state, now.changedAt, now.err)
}
