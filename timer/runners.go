package timer

import (
	"errors"
	"time"
)

// Runners shows the loops of a Scheduler, so that it is a cluster.Runner: itself with its phase,
// the prober with what it last found of the store, and the heartbeat of its leases. It reads memory
// only.
func (s *Scheduler) Runners(show func(kind, name, state string, changedAt time.Time, err error)) {
	var since time.Time
	if n := s.registry.since.Load(); n != 0 {
		since = time.Unix(0, n)
	}
	show("scheduler", "", string(s.registry.current()), since, nil)
	if s.store == nil {
		return
	}
	state, store := "store_down", s.store.status()
	var err error
	switch {
	case store.ChangedAt.IsZero():
		state = "waiting" // for the first call
	case store.Up:
		state = "store_up"
	case store.Err != "":
		err = errors.New(store.Err)
	}
	show("prober", store.Name, state, store.ChangedAt, err)
	s.session.Runners(show)
}

// RegisteredTimers shows the timers of a Scheduler with their MaxConcurrency (NoLimit: none), in no
// particular order, for a cluster.Registry. It reads memory only.
func (s *Scheduler) RegisteredTimers(show func(name string, maxConcurrency int)) {
	for _, set := range s.registry.registered() {
		show(set.timer.Name, shown(set.limit()))
	}
}
