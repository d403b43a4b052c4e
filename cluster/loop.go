package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/internal/retention"
)

const (
	// wakeGap is how soon after a write the next one may come because there is news, or the next
	// batch of a sweep, unless the beat is shorter.
	wakeGap = time.Second
	// sweepBatch is how many rows of each sort are swept at once.
	sweepBatch = 1_000
	// hastyRetries is how often a write that failed is tried again before the next beat.
	hastyRetries = 2
	// hastyHosts bounds how long a host whose sweep failed waits for its next turn: until then it
	// says that the registry fails. Of a thousand hosts the turn comes once a day.
	hastyHosts = 10
)

// A loop is what the goroutine of Run does: on each beat one call. That is a stamp with all there
// is to write, or if there is nothing, and the last one went well, now and then a look at the fleet
// or a sweep. News is written sooner, at most once per wakeGap. A host that always has news looks
// and sweeps a beat late, between two stamps.
type loop struct {
	registry *Registry
	beat     time.Duration
	gap      time.Duration // wakeGap, or the beat if that is shorter
	sweeper  retention.Sweeper

	// Of the goroutine of Run.
	wrote    bool // the last turn was a write, and went well
	failures int  // of writes, in a row
	lookAt   time.Time
	looks    int
	sweepAt  time.Time
}

func newLoop(r *Registry) *loop {
	l := &loop{registry: r, beat: r.options.TTL / 3}
	l.gap = min(wakeGap, l.beat)
	l.sweeper = retention.Sweeper{
		Interval: 3 * r.options.TTL,
		Pause:    l.gap,
		Batch:    sweepBatch,
		Delete: func(ctx context.Context, limit int) (int, error) {
			return call(ctx, r.faults, opSweep, func(ctx context.Context) (int, error) {
				return r.options.Store.Sweep(ctx, l.retention(), limit)
			})
		},
	}
	return l
}

// start writes the first stamp, and looks whether other environments are there. Of two hosts that
// start at once each has written before it looks, so at least one sees the other.
func (l *loop) start(ctx context.Context) error {
	r := l.registry
	defer func() { // by how many hosts were seen
		l.sweepAt = time.Now().Add(l.sweeper.Next(r.lookout.count()))
		l.planLook(true)
	}()
	l.write(ctx)
	if !l.wrote || ctx.Err() != nil {
		return nil // the registry is down: that stops nobody
	}
	r.reader.refresh(context.WithoutCancel(ctx), 0, false)
	if registered, _ := r.reader.parts(); registered.err != nil || registered.at.IsZero() {
		return nil
	}
	if others := r.lookout.environments(); len(others) > 0 {
		return r.environmentError(others)
	}
	return nil
}

// planLook plans the next look after one at hosts, or at leases. A sweep that is due before it
// comes at once if hosts were read just now: see retention.
func (l *loop) planLook(hosts bool) {
	now := time.Now()
	l.lookAt = now.Add(time.Duration(l.registry.lookout.beats()) * l.beat)
	if hosts && l.sweepAt.Before(l.lookAt) {
		l.sweepAt = now
	}
}

// run takes turns until ctx ends.
func (l *loop) run(ctx context.Context) {
	r := l.registry
	next := time.Now().Add(l.wait(false))
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.notes.wake:
			soon := r.writer.lastWrite().Add(l.gap)
			if l.failures == 0 && soon.Before(next) {
				next = soon
				timer.Reset(time.Until(next))
			}
			continue
		case <-timer.C:
		}
		next = time.Now().Add(l.turn(ctx))
		timer.Reset(time.Until(next))
	}
}

// turn makes one call, and returns when to take the next turn.
func (l *loop) turn(ctx context.Context) time.Duration {
	r := l.registry
	now := time.Now()
	l.notLater(now)
	recent := now.Sub(r.writer.lastWrite()) < l.beat*3/2
	news := r.notes.waiting(r.listing.unsupported())
	more := l.sweeper.More()
	var late time.Duration
	if news {
		late = l.beat // news comes first, but a host that always has some sweeps and looks, too
	}
	sweep := !now.Before(l.sweepAt) && (more || !now.Before(l.sweepAt.Add(late)))
	lookAgain := !sweep && !news && r.faults.errorOf(opRead) != nil
	switch {
	case !recent || l.failures > 0 || !l.wrote && (news || !more):
	case l.wrote && (lookAgain || !now.Before(l.lookAt.Add(late))):
		l.wrote = false
		l.look(ctx)
		return l.afterOther(news)
	case sweep:
		l.wrote = false
		wait := l.sweep(ctx)
		if l.sweeper.More() {
			return wait
		}
		return l.afterOther(news)
	}
	wait := l.write(ctx)
	if more && l.wrote {
		wait = min(wait, max(l.gap, time.Until(l.sweepAt)))
	}
	return wait
}

// afterOther returns when to take the next turn after one that wrote nothing.
func (l *loop) afterOther(news bool) time.Duration {
	if news {
		return l.gap
	}
	return l.wait(false)
}

// notLater has looks and sweeps not come later than they would if they were planned now: the fleet
// may have shrunk since, from a thousand hosts to one.
func (l *loop) notLater(now time.Time) {
	hosts := l.registry.lookout
	if look := now.Add(time.Duration(hosts.mostBeats()) * l.beat); look.Before(l.lookAt) {
		l.lookAt = look
	}
	if sweep := now.Add(l.sweeper.Longest(hosts.count())); sweep.Before(l.sweepAt) {
		l.sweepAt = sweep
	}
}

// look reads hosts and leases in turns. If a viewer has read them a moment ago, that will do.
func (l *loop) look(ctx context.Context) {
	r := l.registry
	l.looks++
	// Not bound to ctx: the call would be left behind when Run returns.
	ctx = context.WithoutCancel(ctx)
	hosts := l.looks%2 != 0 || r.listing.unsupported() || r.faults.errorOf(opRead) != nil
	if hosts {
		r.reader.refresh(ctx, l.beat/2, false)
	} else {
		r.reader.refreshLeases(ctx, l.beat)
	}
	l.planLook(hosts)
}

// sweep deletes a batch, and returns when the next one is due, which is not before the next look.
func (l *loop) sweep(ctx context.Context) time.Duration {
	hosts := l.registry.lookout.count()
	err := l.sweeper.Once(ctx)
	if err != nil { // counted and logged by faults
		hosts = min(hosts, hastyHosts)
	}
	wait := l.sweeper.Next(hosts)
	l.sweepAt = time.Now().Add(wait)
	if err == nil && !l.sweeper.More() && l.sweepAt.Before(l.lookAt) {
		l.sweepAt = l.lookAt
	}
	return wait
}

// retention returns how long rows are to be kept: those of hosts for at least three times as long
// as it is ago that hosts were read. A host is gone after two TTLs, and its row is kept for three
// or more. So a host whose row is deleted was gone already when hosts were read, and its event is
// noted.
func (l *loop) retention() Retention {
	r := l.registry.options.Retention
	r.Hosts = max(r.Hosts, 3*l.seenAgo(time.Now()))
	return r
}

// neverRead stands for how long ago hosts were read if they were not read yet.
const neverRead = 10 * 365 * 24 * time.Hour

// seenAgo returns how long ago hosts were read, at most, when the store gets a call that is made
// now.
func (l *loop) seenAgo(now time.Time) time.Duration {
	hosts, _ := l.registry.reader.parts()
	return min(now.Sub(hosts.at), neverRead) + l.registry.options.StoreTimeout
}

// write writes a batch, and returns when to take the next turn.
func (l *loop) write(ctx context.Context) time.Duration {
	r := l.registry
	if r.listing.unknown() && r.notes.anyListed() {
		r.listing.probe(ctx, r.faults) // so that leases are recorded from the start if they have to be
	}
	backlog, err := r.writer.write(ctx, false)
	l.wrote = err == nil
	if err != nil {
		l.failures++
	} else {
		l.failures = 0
	}
	return l.wait(backlog)
}

// wait returns when to take the next turn. It is jittered, so that hosts that start together, or
// lost the store together, do not call it together.
func (l *loop) wait(backlog bool) time.Duration {
	switch {
	case l.failures > 0 && l.failures <= hastyRetries:
		return l.beat*3/10 + rand.N(l.beat*3/20)
	case l.failures == 0 && backlog:
		return l.gap
	default:
		return l.beat*9/10 + rand.N(l.beat/10)
	}
}

// leave writes what is left, and that this process has left.
func (l *loop) leave(ctx context.Context) {
	r := l.registry
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.StoreTimeout)
	defer cancel()
	for {
		backlog, err := r.writer.write(ctx, true)
		if err != nil || !backlog {
			return
		}
	}
}
