package leader

import "time"

// Runners shows the state that Status returns. It makes an Elector a cluster.Runner. It reads
// memory only.
func (e *Elector) Runners(show func(kind, name, state string, changedAt time.Time, err error)) {
	s := e.Status()
	show("leader", s.Role, string(s.State), s.ChangedAt, s.Err)
}
