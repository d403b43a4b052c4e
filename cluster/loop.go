package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/internal/retention"
)

const (
	// minWriteGap is the minimum interval between two writes of new rows and between two batches of
	// a delete, unless heartbeats are more frequent.
	minWriteGap = time.Second
	// deleteBatch is the maximum number of rows of each sort that one call deletes.
	deleteBatch = 1_000
	// quickRetries is how often a failed write is repeated before the next heartbeat.
	quickRetries = 2
	// retrySharing limits the wait after a failed delete: the host waits no longer than if this
	// many hosts shared the deletes. In a fleet of a thousand, each host deletes once a day, and
	// would otherwise report a failing registry for that long.
	retrySharing = 10
)

// A loop is the goroutine of Run. It makes one call per interval: a heartbeat together with
// everything that waits to be written. If nothing waits and the last write succeeded, the call is
// occasionally a read of hosts or leases, or a delete of old rows. New rows are written sooner, at
// most once per gap. A host that always has something to write reads and deletes one interval late,
// between two writes.
type loop struct {
	registry *Registry
	interval time.Duration // between heartbeats
	gap      time.Duration // minWriteGap, or the interval if that is shorter
	sweeper  retention.Sweeper

	// Used only by the goroutine of Run.
	wrote      bool // the last call was a successful write
	failures   int  // consecutive failed writes
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

// start checks whether this process is refused, writes the first heartbeat, and reads the hosts.
func (l *loop) start(ctx context.Context) {
	r := l.registry
	defer func() { // once the number of hosts is known
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
	r.admission.ask() // if the store has not answered yet
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

// step makes one call and returns how long to wait before the next one.
func (l *loop) step(ctx context.Context) time.Duration {
	r := l.registry
	now := time.Now()
	l.bringForward(now)
	heartbeatDue := now.Sub(r.writer.lastWrite()) >= l.interval*3/2
	waiting := r.pending.waiting(r.listing.unsupported())
	moreToDelete := l.sweeper.More()
	var late time.Duration
	if waiting {
		late = l.interval // writes come first; a host that always has something to write reads and deletes this late
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
		r.admission.ask() // if the store has not answered yet
	}
	return wait
}

// waitAfterOther returns how long to wait after a read or a delete.
func (l *loop) waitAfterOther(waiting bool) time.Duration {
	if waiting {
		return l.gap
	}
	return l.wait(false)
}

// bringForward moves the next read and delete to the latest time that planning them now would
// allow. Since they were planned, a fleet of a thousand hosts may have shrunk to one.
func (l *loop) bringForward(now time.Time) {
	fleet := l.registry.observer
	if latest := now.Add(time.Duration(fleet.maxIntervals()) * l.interval); latest.Before(l.nextRead) {
		l.nextRead = latest
	}
	if latest := now.Add(l.sweeper.Longest(fleet.hosts())); latest.Before(l.nextDelete) {
		l.nextDelete = latest
	}
}

// read alternates between hosts and leases. It makes no call if a Snapshot has just read them.
func (l *loop) read(ctx context.Context) {
	r := l.registry
	l.reads++
	// Detached from ctx, because the call would otherwise continue after Run returns.
	ctx = context.WithoutCancel(ctx)
	hosts := l.reads%2 != 0 || r.listing.unsupported() || r.faults.errorOf(opRead) != nil
	if hosts {
		r.reader.refresh(ctx, l.interval/2, false)
	} else {
		r.reader.refreshLeases(ctx, l.interval)
	}
	l.planRead(hosts)
}

// planRead plans the next read after a read of hosts or leases. If hosts were just read, a delete
// that is due before the next read is moved to now: see retention.
func (l *loop) planRead(hosts bool) {
	now := time.Now()
	l.nextRead = now.Add(time.Duration(l.registry.observer.intervals()) * l.interval)
	if hosts && l.nextDelete.Before(l.nextRead) {
		l.nextDelete = now
	}
}

// deleteOld deletes a batch of old rows and returns how long to wait before the next batch. After
// the last batch, the next delete does not precede the next read.
func (l *loop) deleteOld(ctx context.Context) time.Duration {
	hosts := l.registry.observer.hosts()
	err := l.sweeper.Once(ctx)
	if err != nil { // faults counts and logs it
		hosts = min(hosts, retrySharing)
	}
	wait := l.sweeper.Next(hosts)
	l.nextDelete = time.Now().Add(wait)
	if err == nil && !l.sweeper.More() && l.nextDelete.Before(l.nextRead) {
		l.nextDelete = l.nextRead
	}
	return wait
}

// retention returns how long rows are kept. Rows of hosts are kept for at least three times the
// time since this host last read them. A host is gone after two TTLs, and its row is kept for three
// or more. So this host has seen it gone and recorded the event before the row is deleted.
func (l *loop) retention() Retention {
	r := l.registry.config.Retention
	r.Hosts = max(r.Hosts, 3*l.sinceHostsRead(time.Now()))
	return r
}

// neverRead is the result of sinceHostsRead before the first read of hosts.
const neverRead = 10 * 365 * 24 * time.Hour

// sinceHostsRead returns an upper bound for the age of the last read of hosts at the time at which
// the store receives a call made now.
func (l *loop) sinceHostsRead(now time.Time) time.Duration {
	hosts, _ := l.registry.reader.parts()
	return min(now.Sub(hosts.at), neverRead) + l.registry.config.StoreTimeout
}

// write writes a batch and returns how long to wait before the next call.
func (l *loop) write(ctx context.Context) time.Duration {
	r := l.registry
	if r.listing.unknown() && r.pending.anyListed() {
		r.listing.probe(ctx, r.faults) // so that leases are recorded from the start if necessary
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

// wait returns how long to wait before the next call. Jitter spreads the calls of hosts that
// started together or lost the store together.
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

// leave writes all waiting rows and records that this process has left.
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
