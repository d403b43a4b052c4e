//go:build linux && amd64

package main

import (
	"errors"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// clocksStep is the fault in which the clocks of all hosts and of the store are set by so much, and
// back: they are on one machine, or follow one wrong server.
const clocksStep = "clocks_step_together"

// together is for how long these clocks are wrong: long enough for claims, runs and leases.
const together = 4 * time.Second

// steps are by how much, forward or back. They are whole seconds, as those of a host's clock are.
var steps = []time.Duration{2 * time.Second, 10 * time.Minute, 2 * time.Hour}

// stepClocks has the clocks step on and back again. When they are set on, leases end early for the
// store, and when they are set back, ticks of that time may start again (proof/faults.md): that
// is excused. What is demanded is that all timers run again afterwards, and all else that is
// demanded always; but a store that loses its data knows no fence of when its clock was ahead.
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

// step sets all clocks on, or back, so that they are so far ahead.
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
