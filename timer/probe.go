package timer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

const (
	// probeLock is the name of the lock that a host acquires and releases to probe the store. The
	// number is the host's slot of fleet.HostsLock. A grant proves that the store still grants
	// leases, which a renewal does not prove.
	probeLock = "tickslot:probe:%d"
	// Each count reads all hosts. Hosts are counted with every probe, but only every hostsEvery if
	// there are more than manyHosts.
	manyHosts  = 100
	hostsEvery = time.Minute
	// startGrace is how long Run waits for the store before the first tick. The first connections
	// may take longer than StoreTimeout, which is not an outage.
	startGrace = 5 * time.Second
)

// A prober calls the store in the background. While the store answers, it calls about once per TTL,
// so that this host notices an outage even if nothing is due. While the store does not answer, it
// calls after growing pauses. Its fields belong to its goroutine.
type prober struct {
	watch     *storeWatch
	session   *dlock.Session
	host      *dlock.Lease // this host's slot of fleet.HostsLock
	pause     *backoff.ExponentialBackOff
	countedAt time.Time
	counts    int // counts made since the start, or since the store last failed
	// reacquire acquires slots for runs that have none. Run sets it, so that the prober does not
	// depend on the acquirer.
	reacquire func(until <-chan struct{})
	triggers  *triggers
	// first receives the store's first answer: nil, or an error if the store is not set up
	// correctly.
	first chan error
}

func newProber(w *storeWatch, session *dlock.Session) *prober {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = w.timeout / 4
	pause.MaxInterval = w.ttl / 3 // so that the prober notices a recovered store within a TTL
	pause.Reset()
	return &prober{watch: w, session: session, pause: pause, first: make(chan error, 1)}
}

// start starts the prober. stop stops it and returns leave, which releases the host's slot of
// fleet.HostsLock.
func (p *prober) start() (stop func() (leave func())) {
	until, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		p.run(until)
	}()
	return func() func() {
		close(until)
		<-done // waits for at most an acquire and a release, or one read of overrides; StoreTimeout bounds each
		return func() {
			if p.host != nil {
				_ = p.host.Release(p.watch.base) // if the store does not answer, the slot expires after its TTL
			}
		}
	}
}

// awaitFirstAnswer waits up to startGrace for the store's first answer. It returns an error if the
// store is not set up correctly.
func (p *prober) awaitFirstAnswer(ctx context.Context) error {
	w := p.watch
	grace := time.NewTimer(min(w.ttl, startGrace))
	defer grace.Stop()
	var err error
	select {
	case err = <-p.first:
	case <-grace.C:
	case <-ctx.Done():
	}
	w.mu.Lock()
	w.awaitingFirst = false
	w.mu.Unlock()
	if err != nil {
		return fmt.Errorf("timer: nothing was started: the store (%s) is not usable: %w", w.label, err)
	}
	return nil
}

// run probes until the channel is closed. It keeps the host's slot, which is released after the
// host has drained.
func (p *prober) run(until <-chan struct{}) {
	timer := time.NewTimer(p.watch.ttl)
	defer timer.Stop()
	for {
		p.probe(until)
		timer.Reset(p.wait())
		select {
		case <-until:
			return
		case <-timer.C:
		case <-p.watch.wake:
		}
	}
}

func (p *prober) probe(until <-chan struct{}) {
	name, err := p.acquire()
	w := p.watch
	defer w.log.flush()
	if p.notSetUpAtFirst(err) {
		p.reportFirst(err) // Run returns the error, so it is not logged
		return
	}
	w.overrides.endPauses()
	_ = w.recordAcquire(name, err)
	if why := reasonOf(err); err != nil && (why == ReasonStoreDown || why == ReasonStoreSetup) {
		w.log.flush()
		p.probeElsewhere(until, name)
	}
	w.mu.Lock()
	well := w.breakers.whole.well()
	if w.breakers.whole.err != nil {
		p.counts = 0
	}
	many := w.hosts > manyHosts
	w.mu.Unlock()
	w.log.flush()
	if !well {
		return
	}
	p.reportFirst(nil)
	p.probeFailing(until)
	p.reacquire(until)
	p.readOverrides(until)
	p.triggers.carryOut()
	select {
	case <-until:
	default:
		// During the first count, other hosts may still be starting.
		if !many || p.counts < 2 || time.Since(p.countedAt) >= hostsEvery {
			p.count()
		}
	}
}

// notSetUpAtFirst reports whether the store's first answer is that it is not set up correctly.
// Otherwise it records that the store was called, and any fault of the hosts' own locks.
func (p *prober) notSetUpAtFirst(err error) bool {
	w := p.watch
	why := reasonOf(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.awaitingFirst && why == ReasonStoreSetup {
		return true
	}
	w.wasCalled = true
	w.noteOwnFault(why, err)
	return false
}

func (p *prober) reportFirst(err error) {
	select {
	case p.first <- err:
	default: // Run has already received an answer
	}
}

// acquire acquires this host's slot of fleet.HostsLock. If the host already has that slot, acquire
// instead acquires and releases a lock of its own.
func (p *prober) acquire() (name string, err error) {
	if p.host == nil || !p.host.Valid() {
		host, err := p.session.Semaphore(fleet.HostsLock, driver.MaxSlots).TryAcquire(p.watch.base)
		if err != nil {
			return fleet.HostsLock, err
		}
		p.host = host
		p.watch.overrides.noteVersion(host.Info().Version)
		return fleet.HostsLock, nil
	}
	name = fmt.Sprintf(probeLock, p.host.Slot())
	lease, err := p.session.Mutex(name).TryAcquire(p.watch.base)
	if err != nil {
		return name, err
	}
	_ = lease.Release(p.watch.base) // if the store does not answer, the session repeats the release
	return name, nil
}

// count counts the hosts that hold a slot of fleet.HostsLock.
func (p *prober) count() {
	w := p.watch
	lister := w.caps.Lister
	if lister == nil {
		return
	}
	ctx, cancel := context.WithTimeout(w.base, w.timeout)
	defer cancel()
	var held []driver.LeaseInfo
	err := guard.Call("store", func() (err error) {
		held, err = lister.List(ctx, fleet.HostsLock, driver.MaxSlots)
		return err
	})
	if err != nil {
		return // the count is not essential; the next acquire shows whether the store answers
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	hosts := max(1, len(held))
	if p.counts == 0 { // after an outage, the first host to return sees only itself
		hosts = max(hosts, w.hosts)
	}
	w.hosts = hosts
	p.countedAt = time.Now()
	p.counts++
}

// wait returns how long to wait for the next probe, with jitter. Otherwise all hosts that lost the
// store at the same time would probe it at the same time.
func (p *prober) wait() time.Duration {
	w := p.watch
	often := w.views.degradedRuns() > 0 || p.triggers.any()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch b := &w.breakers.whole; {
	case b.err != nil:
		return p.pause.NextBackOff()
	case b.Open(): // the store answers, and a few more answers close the breaker
		return p.pause.InitialInterval/2 + rand.N(p.pause.InitialInterval)
	case often || len(w.breakers.failing()) > 0:
		// Some runs have found no slot, one of several servers has failed, or triggers wait. Probe
		// as often as a heartbeat.
		return w.ttl/3 - rand.N(w.ttl/12)
	default:
		if time.Since(b.changedAt) >= logInterval { // while the store fails now and then, the pauses keep growing
			p.pause.Reset()
		}
		return w.ttl - rand.N(w.ttl/4)
	}
}
