package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/loop"
)

// stallAfter returns how long a call to the database may take before Live fails.
func stallAfter(c RelayConfig) time.Duration { return loop.StallAfter(c.CallTimeout) }

// Live returns an error if a call to the database ignores its context or a loop has stalled. Then
// only a restart of the process helps. Live does not fail because the database is down.
func (r *Relay) Live() error {
	return cmp.Or(loop.Stalled(r.config.CallTimeout, r.sampler.Loop), r.calls.Hanging(stallAfter(r.config)))
}

// Started returns an error until Run has begun and one call to the database has ended, successfully
// or not. So a database that is down does not keep a process from starting.
func (r *Relay) Started() error { return r.life.Started("database", r.calls.WasCalled()) }

// Ready returns an error if Run is not running, if its context has ended, or if a threshold of
// RelayConfig.Unready is exceeded. A database that is down does not make a relay unready, because
// all relays would become unready at the same time.
func (r *Relay) Ready() error {
	if err := r.life.Ready(); err != nil {
		return err
	}
	most := r.config.Unready
	return errors.Join(r.dueIsYoung(most), r.pendingIsYoung(most), r.fewDead(most))
}

// Checks returns checks by name, so that a Relay is a health.Source. A relay with a failing check
// is degraded, but can serve. The name of a check describes the healthy state. Its error says what
// is wrong and what to do. Checks read only memory. The checks of messages, receivers and topics
// use data that this relay reads from the database about every 15 s, and pass if that data is more
// than a minute old. Every host checks the whole outbox, whether or not it delivers, so other hosts
// notice a relay that has stalled. Checks fail for these reasons:
//
//   - database-answers: three calls in a row have failed and none has succeeded since, or calls of
//     one kind have failed for longer than three times CallTimeout
//   - messages-on-time: a message has been due for longer than Thresholds.DueAge, because no relay
//     delivers or the relays are too slow
//   - receivers-accept: a message has been pending for longer than Thresholds.PendingAge, because a
//     receiver fails. The error says, for each topic, how many messages fail, since when, and why
//   - few-dead-messages: more messages are dead than Thresholds.Dead allows
//   - topics-have-sinks: messages wait for a topic for which this relay has no sink
//   - rows-unlocked: results of deliveries cannot be written, because another session of the
//     database keeps the rows locked, or because the database refuses the results
//   - sinks-return: calls of this relay to a sink do not return although their contexts have ended.
//     They keep the places of their topic, and only a restart of the process frees these
func (r *Relay) Checks() map[string]func() error {
	return map[string]func() error{
		"database-answers": lifecycle.Advised(r.calls.Working, "messages wait until it answers: check the database "+
			"and the network"),
		"messages-on-time": lifecycle.Advised(func() error { return r.dueIsYoung(r.config.Health) },
			"check that a relay runs, that the database answers it, and how long its receivers take"),
		"receivers-accept": lifecycle.Advised(func() error { return r.pendingIsYoung(r.config.Health) },
			"fix the receiver: messages are then retried automatically"),
		"few-dead-messages": lifecycle.Advised(func() error { return r.fewDead(r.config.Health) },
			"\"tickslot dead ls\" has their errors, and \"tickslot requeue outbox\" delivers them again"),
		"topics-have-sinks": lifecycle.Advised(r.topicsKnown, "give the relay a sink for them, or correct the topic "+
			"where it is appended"),
		"rows-unlocked": r.marker.unlocked,
		"sinks-return": lifecycle.Advised(func() error { return sinksReturn(r) }, "let the sink return when its "+
			"context ends"),
	}
}

func (r *Relay) dueIsYoung(most Thresholds) error {
	stats, fresh := r.sampler.Latest()
	if fresh && most.DueAge > 0 && stats.OldestDue > most.DueAge {
		if err := r.calls.Working(); err != nil {
			return fmt.Errorf("a message has been due for %v: %w", stats.OldestDue.Round(time.Second), err)
		}
		return fmt.Errorf("a message has been due for %v, and %d are pending: no relay delivers, or they are too slow",
			stats.OldestDue.Round(time.Second), stats.Pending)
	}
	return nil
}

func (r *Relay) pendingIsYoung(most Thresholds) error {
	stats, fresh := r.sampler.Latest()
	if !fresh || most.PendingAge <= 0 {
		return nil
	}
	var topics []string
	for _, f := range stats.failing {
		if f.For > most.PendingAge {
			topics = append(topics, f.String())
		}
	}
	switch {
	case len(topics) > 0:
		return errors.New(strings.Join(topics, "; "))
	case stats.OldestPending > most.PendingAge:
		return fmt.Errorf("a message has been pending for %v: its receiver fails, or its topic has no sink",
			stats.OldestPending.Round(time.Second))
	}
	return nil
}

func (r *Relay) fewDead(most Thresholds) error {
	stats, fresh := r.sampler.Latest()
	if fresh && most.Dead > 0 && stats.Dead > most.Dead {
		return fmt.Errorf("%d messages are dead, more than %d", stats.Dead, most.Dead)
	}
	return nil
}

func (r *Relay) topicsKnown() error {
	stats, fresh := r.sampler.Latest()
	if !fresh || len(stats.Unknown) == 0 {
		return nil
	}
	var names []string
	for _, topic := range slices.Sorted(maps.Keys(stats.Unknown)) {
		names = append(names, fmt.Sprintf("%q: %d", topic, stats.Unknown[topic]))
	}
	return fmt.Errorf("messages wait for topics without a sink: %s", strings.Join(names, ", "))
}

func sinksReturn(r *Relay) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var stuck []string
	for _, topic := range slices.Sorted(maps.Keys(r.stuckIn)) {
		stuck = append(stuck, fmt.Sprintf("%q: %d", topic, r.stuckIn[topic]))
	}
	if len(stuck) == 0 {
		return nil
	}
	return fmt.Errorf("sinks ignore the end of their contexts, and each such call keeps one of the %d places "+
		"of its topic until it returns or the process is restarted (%s)", r.config.MaxDeliveries,
		strings.Join(stuck, ", "))
}

// Runners shows the Relay and the shards that it delivers, so that the Relay is a cluster.Runner.
// It reads only memory.
func (r *Relay) Runners(show func(kind, name, state string, changedAt time.Time, err error)) {
	phase, changedAt := r.life.Current()
	r.mu.Lock()
	shards := slices.Sorted(maps.Keys(r.shards))
	r.mu.Unlock()
	state := string(phase)
	switch {
	case phase == lifecycle.Running && len(shards) > 0:
		state = "delivering shards " + strings.Trim(fmt.Sprint(shards), "[]")
	case phase == lifecycle.Running:
		state = "standing by"
	}
	err := errors.Join(r.calls.FailureOf(opDue).Err, r.calls.FailureOf(opMark).Err)
	show("outbox", r.config.Name, state, changedAt, err)
}
