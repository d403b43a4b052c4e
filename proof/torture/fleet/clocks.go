//go:build linux && amd64

package main

import (
	"errors"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// clocksStep is the fault that sets the clocks of all hosts and of the store by the same amount,
// and back, as if they were on one machine or followed one wrong server.
const clocksStep = "clocks_step_together"

// together is how long these clocks are wrong: long enough for claims, runs and leases.
const together = 4 * time.Second

// steps are the amounts, forward or back. They are whole seconds, like those of wallClock.
var steps = []time.Duration{2 * time.Second, 10 * time.Minute, 2 * time.Hour}

// stepClocks sets the clocks and resets them. After a step ahead, leases end early for the store,
// and after a step back, ticks of that time may start again (proof/faults.md); both are excused.
// All timers must run again afterwards, and all other promises must hold. A store that loses its
// data does not know the fences from when its clock was ahead.
func (t *tormentor) stepClocks(by time.Duration) error {
	s, ok := t.store.(*redisStore)
	if !ok {
		return errors.New("only the clock of one Redis can be set")
	}
	t.hurt.Lock()
	defer t.hurt.Unlock()
	err := t.step(s, by, by)
	time.Sleep(together)
	err = errors.Join(err, t.step(s, -by, 0))
	t.mu.Lock()
	t.lastly, t.jumped = nemesis.Mono(), time.Now()
	t.mu.Unlock()
	return err
}

// step sets all clocks to ahead of the correct time.
func (t *tormentor) step(s *redisStore, by, ahead time.Duration) error {
	from := nemesis.Mono()
	t.clocks.Lock()
	defer t.clocks.Unlock()
	t.ahead = ahead
	err := s.clock.Step(ahead)
	for _, m := range t.members {
		m.proc.Tell("jump %v", by)
	}
	t.log.Write(torture.Line{Kind: torture.Fault, Fault: torture.Stepped, Target: "lease", By: int64(by), First: from,
		Last: nemesis.Mono()})
	return err
}
