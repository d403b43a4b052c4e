package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/internal/retention"
)

const (
	// minWriteGap is the shortest time between two writes when something new waits to be written,
	// and between two batches of a delete, unless heartbeats are more frequent than that.
	minWriteGap = time.Second
	// deleteBatch is how many rows of each sort one call deletes.
	deleteBatch = 1_000
	// quickRetries is how often a write that failed is tried again before the next heartbeat.
	quickRetries = 2
	// retrySharing bounds how long a host waits after a delete that failed: no longer than if this
	// many hosts shared the deletes. In a fleet of a thousand each host deletes once a day, and
	// until then it would report that the registry fails.
	retrySharing = 10
)

// A loop is the goroutine of Run, which makes one call in each interval. The call is a heartbeat,
// together with everything that waits to be written. If nothing waits, and the last write
// succeeded, the call is now and then a read of hosts or leases, or a delete of old rows, instead.
// New rows are written sooner, at most once per gap. A host that always has something to write
// reads and deletes an interval late, between two writes.
type loop struct {
	registry *Registry
	interval time.Duration // between heartbeats
	gap      time.Duration // minWriteGap, or the interval if that is shorter
	sweeper  retention.Sweeper

	// Used by the goroutine of Run only.
	wrote      bool // the last call was a write, and succeeded
	failures   int  // of writes, in a row
	nextRead   time.Time
	reads      int
	nextDelete time.Time
}

func newLoop(r *Registry) *loop {
	l := &loop{registry: r, interval: r.config.TTL / 3}
	l.gap = min(minWriteGap, l.interval)
	l.sweeper = retention.Sweeper{
		Interval: 3 * r.config.TTL,
		Pause:    l.gap,
		Batch:    deleteBatch,
		Delete: func(ctx context.Context, limit int) (int, error) {
			return call(ctx, r.faults, opSweep, func(ctx context.Context) (int, error) {
				return r.config.Store.Sweep(ctx, l.retention(), limit)
			})
		},
	}
	return l
}

// start finds out whether this process is refused, writes the first heartbeat, and reads the hosts.
func (l *loop) start(ctx context.Context) {
	r := l.registry
	defer func() { // when it is known how many hosts there are
		l.nextDelete = time.Now().Add(l.sweeper.Next(r.observer.hosts()))
		l.planRead(true)
	}()
	r.admission.ask()
	if l.wrote = !r.writer.lastWrite().IsZero(); !l.wrote {
		l.write(ctx)
	}
	if !l.wrote || ctx.Err() != nil {
		return
	}
	r.admission.ask() // if there was no answer
	if hosts, _ := r.reader.parts(); hosts.at.IsZero() {
		r.reader.refresh(context.WithoutCancel(ctx), 0, false)
	}
}

// run makes calls until ctx ends.
func (l *loop) run(ctx context.Context) {
	r := l.registry
	next := time.Now().Add(l.wait(false))
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.pending.wake:
			soon := r.writer.lastWrite().Add(l.gap)
			if l.failures == 0 && soon.Before(next) {
				next = soon
				timer.Reset(time.Until(next))
			}
			continue
		case <-timer.C:
		}
		next = time.Now().Add(l.step(ctx))
		timer.Reset(time.Until(next))
	}
}

// step makes one call, and returns how long to wait before the next one.
func (l *loop) step(ctx context.Context) time.Duration {
	r := l.registry
	now := time.Now()
	l.bringForward(now)
	heartbeatDue := now.Sub(r.writer.lastWrite()) >= l.interval*3/2
	waiting := r.pending.waiting(r.listing.unsupported())
	moreToDelete := l.sweeper.More()
	var late time.Duration
	if waiting {
		late = l.interval // writes come first, but a host that always has something to write reads and deletes, too
	}
	deleteDue := !now.Before(l.nextDelete) && (moreToDelete || !now.Before(l.nextDelete.Add(late)))
	readDue := !now.Before(l.nextRead.Add(late)) || !deleteDue && !waiting && r.faults.errorOf(opRead) != nil
	switch {
	case heartbeatDue || l.failures > 0 || !l.wrote && (waiting || !moreToDelete):
	case l.wrote && readDue:
		l.wrote = false
		l.read(ctx)
		return l.waitAfterOther(waiting)
	case deleteDue:
		l.wrote = false
		wait := l.deleteOld(ctx)
		if l.sweeper.More() {
			return wait
		}
		return l.waitAfterOther(waiting)
	}
	wait := l.write(ctx)
	if moreToDelete && l.wrote {
		wait = min(wait, max(l.gap, time.Until(l.nextDelete)))
	}
	if l.wrote {
		r.admission.ask() // if there was no answer
	}
	return wait
}

// waitAfterOther returns how long to wait after a call that wrote nothing.
func (l *loop) waitAfterOther(waiting bool) time.Duration {
	if waiting {
		return l.gap
	}
	return l.wait(false)
}

// bringForward makes the next read and delete no later than if they were planned now: a fleet of a
// thousand hosts may have shrunk to one since they were planned.
func (l *loop) bringForward(now time.Time) {
	fleet := l.registry.observer
	if latest := now.Add(time.Duration(fleet.maxIntervals()) * l.interval); latest.Before(l.nextRead) {
		l.nextRead = latest
	}
	if latest := now.Add(l.sweeper.Longest(fleet.hosts())); latest.Before(l.nextDelete) {
		l.nextDelete = latest
	}
}

// read reads hosts and leases in turns, unless a Snapshot has just read them.
func (l *loop) read(ctx context.Context) {
	r := l.registry
	l.reads++
	// Not bound to ctx: the call would continue after Run returns.
	ctx = context.WithoutCancel(ctx)
	hosts := l.reads%2 != 0 || r.listing.unsupported() || r.faults.errorOf(opRead) != nil
	if hosts {
		r.reader.refresh(ctx, l.interval/2, false)
	} else {
		r.reader.refreshLeases(ctx, l.interval)
	}
	l.planRead(hosts)
}

// planRead plans the next read after one of hosts, or of leases. If hosts were just read, a delete
// that is due before the next read comes immediately: see retention.
func (l *loop) planRead(hosts bool) {
	now := time.Now()
	l.nextRead = now.Add(time.Duration(l.registry.observer.intervals()) * l.interval)
	if hosts && l.nextDelete.Before(l.nextRead) {
		l.nextDelete = now
	}
}

// deleteOld deletes a batch of old rows, and returns how long to wait before the next one. After
// the last batch the next delete is planned for no earlier than the next read.
func (l *loop) deleteOld(ctx context.Context) time.Duration {
	hosts := l.registry.observer.hosts()
	err := l.sweeper.Once(ctx)
	if err != nil { // counted and logged by faults
		hosts = min(hosts, retrySharing)
	}
	wait := l.sweeper.Next(hosts)
	l.nextDelete = time.Now().Add(wait)
	if err == nil && !l.sweeper.More() && l.nextDelete.Before(l.nextRead) {
		l.nextDelete = l.nextRead
	}
	return wait
}

// retention returns how long rows are kept: rows of hosts for at least three times as long as this
// host has not read them. A host is gone after two TTLs, and its row is kept for three or more. So
// this host saw it gone, and noted its event, before its row is deleted.
func (l *loop) retention() Retention {
	r := l.registry.config.Retention
	r.Hosts = max(r.Hosts, 3*l.sinceHostsRead(time.Now()))
	return r
}

// neverRead is the result of sinceHostsRead if hosts were not read yet.
const neverRead = 10 * 365 * 24 * time.Hour

// sinceHostsRead returns at most how long ago hosts were read, when the store gets a call that is
// made now.
func (l *loop) sinceHostsRead(now time.Time) time.Duration {
	hosts, _ := l.registry.reader.parts()
	return min(now.Sub(hosts.at), neverRead) + l.registry.config.StoreTimeout
}

// write writes a batch, and returns how long to wait before the next call.
func (l *loop) write(ctx context.Context) time.Duration {
	r := l.registry
	if r.listing.unknown() && r.pending.anyListed() {
		r.listing.probe(ctx, r.faults) // so that leases are recorded from the start if they have to be
	}
	more, err := r.writer.write(ctx, false)
	l.wrote = err == nil
	if err != nil {
		l.failures++
	} else {
		l.failures = 0
	}
	return l.wait(more)
}

// wait returns how long to wait before the next call. It is jittered, so that hosts that start
// together, or lost the store together, do not call it together.
func (l *loop) wait(more bool) time.Duration {
	switch {
	case l.failures > 0 && l.failures <= quickRetries:
		return l.interval*3/10 + rand.N(l.interval*3/20)
	case l.failures == 0 && more:
		return l.gap
	default:
		return l.interval*9/10 + rand.N(l.interval/10)
	}
}

// leave writes what still waits, and that this process has left.
func (l *loop) leave(ctx context.Context) {
	r := l.registry
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.StoreTimeout)
	defer cancel()
	for {
		more, err := r.writer.write(ctx, true)
		if err != nil || !more {
			return
		}
	}
}
