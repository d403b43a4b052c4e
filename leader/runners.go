package leader

import "time"

// Runners shows what Status says, so that an Elector is a cluster.Runner. It reads memory only.
func (e *Elector) Runners(show func(kind, name, state string, changedAt time.Time, err error)) {
	s := e.Status()
	show("leader", s.Role, string(s.State), s.ChangedAt, s.Err)
}
