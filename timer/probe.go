package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tickslot/tickslot/dlock"
)

const (
	// hostsLock is a semaphore of which every scheduler that runs holds a slot. So its leases are
	// the list of hosts, renewed by the same heartbeat as all others, and a host that dies is off
	// the list within a TTL.
	hostsLock = "tickslot:hosts"
	// probeLock is taken and released by the host that holds that slot of hostsLock: it tells
	// whether the store still grants, which a renewal does not.
	probeLock = "tickslot:probe:%d"
	// manyHosts are counted every hostsEvery, because each count reads them all; fewer with every
	// probe.
	manyHosts  = 100
	hostsEvery = time.Minute
	// startGrace is how long a host that starts waits for the store at most, before its ticks
	// begin: its first connections may take longer than a call may, and that is no outage.
	startGrace = 5 * time.Second
)

// A prober asks the store for this host, in the background: about once per TTL while the store is
// well, to find out when it is not although nothing is due; after pauses that grow while it is
// down. Its fields belong to its goroutine.
type prober struct {
	s       *Scheduler
	host    *dlock.Lease // our slot of hostsLock
	pause   *backoff.ExponentialBackOff
	counted time.Time
	counts  int        // since the start, or since the store last failed
	first   chan error // gets, once, that the store serves (nil) or that it is not set up right, whichever it says first
}

func newProber(s *Scheduler) *prober {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = s.config.StoreTimeout / 4
	pause.MaxInterval = s.config.TTL / 3 // so that a store which is back is found within a TTL
	pause.Reset()
	return &prober{s: s, pause: pause, first: make(chan error, 1)}
}

// startProbing starts the prober. What it returns ends it, and that returns what gives its slot of
// hostsLock back; and tells of the store's first answer.
func (s *Scheduler) startProbing() (stop func() (leave func()), first <-chan error) {
	if s.session == nil {
		answered := make(chan error)
		close(answered)
		return func() func() { return func() {} }, answered
	}
	p, until, done := newProber(s), make(chan struct{}), make(chan struct{})
	first = p.first
	go func() {
		defer close(done)
		p.run(until)
	}()
	return func() func() {
		close(until)
		<-done // an acquire and a release, or one call that reads overrides, at most; each bounded by StoreTimeout
		return func() {
			if p.host != nil {
				_ = p.host.Release(s.base) // what the store does not answer, ends with its TTL
			}
		}
	}, first
}

// greet waits for the store's first answer, for a while. It returns an error if that is that it is
// not set up right.
func (s *Scheduler) greet(ctx context.Context, first <-chan error) error {
	grace := time.NewTimer(min(s.config.TTL, startGrace))
	defer grace.Stop()
	var err error
	select {
	case err = <-first:
	case <-grace.C:
	case <-ctx.Done():
	}
	s.lock()
	defer s.unlock()
	s.greeting = false
	if err != nil {
		return fmt.Errorf("timer: nothing was started, because the store (%s) can serve no timer: %w", s.store.label, err)
	}
	return nil
}

// run probes until the channel is closed. The host's slot is kept: it is released when the host has
// drained.
func (p *prober) run(until <-chan struct{}) {
	timer := time.NewTimer(p.s.config.TTL)
	defer timer.Stop()
	for {
		p.probe(until)
		timer.Reset(p.wait())
		select {
		case <-until:
			return
		case <-timer.C:
		case <-p.s.prodded:
		}
	}
}

// prod has the prober look at once. Called with mu held.
func (s *Scheduler) prod() {
	select {
	case s.prodded <- struct{}{}:
	default:
	}
}

func (p *prober) probe(until <-chan struct{}) {
	name, err := p.ask()
	s := p.s
	s.lock()
	if s.greeting && reasonOf(err) == ReasonStoreSetup {
		s.unlock()
		p.tellFirst(err) // Run returns it, so that nobody need log it
		return
	}
	s.probed = true
	s.endPauses()
	_ = s.store.heard(name, err)
	s.foundWrong(err)
	if why := reasonOf(err); err != nil && (why == ReasonStoreDown || why == ReasonStoreSetup) {
		s.unlock()
		p.askElsewhere(until, name)
		s.lock()
	}
	well := s.breaker.well()
	if s.breaker.err != nil {
		p.counts = 0
	}
	many := s.hosts > manyHosts
	s.unlock()
	if !well {
		return
	}
	p.tellFirst(nil)
	p.askTroubled(until)
	s.rejoin(until)
	s.learnOverrides(until)
	select {
	case <-until:
	default:
		// The first count comes while others are still on their way.
		if !many || p.counts < 2 || time.Since(p.counted) >= hostsEvery {
			p.count()
		}
	}
}

func (p *prober) tellFirst(err error) {
	select {
	case p.first <- err:
	default: // it is told already
	}
}

// foundWrong notes what the store finds wrong with the hosts' own locks: no timer suffers, but the
// hosts are not counted, and it may be the first sign of more. Called with mu held.
func (s *Scheduler) foundWrong(err error) {
	_, failed := errors.AsType[*dlock.StoreError](err)
	switch {
	case !failed:
		s.ownFault = nil
	case reasonOf(err) == ReasonStoreFault:
		if s.ownFault == nil {
			s.log.later(slog.LevelWarn, "timer: the store found something wrong with what hosts keep there for themselves; timers go on", "store", s.store.label, "err", err)
		}
		s.ownFault = err
	}
}

// ask takes this host's slot of hostsLock, or, once it has that, takes and releases a lock of its
// own.
func (p *prober) ask() (name string, err error) {
	session := p.s.session
	if p.host == nil || !p.host.Valid() {
		host, err := session.Semaphore(hostsLock, dlock.MaxSlots).TryAcquire(p.s.base)
		if err != nil {
			return hostsLock, err
		}
		p.host = host
		p.s.lock()
		p.s.hearUpdate(host.Info().Version)
		p.s.unlock()
		return hostsLock, nil
	}
	name = fmt.Sprintf(probeLock, p.host.Slot())
	lease, err := session.Mutex(name).TryAcquire(p.s.base)
	if err != nil {
		return name, err
	}
	_ = lease.Release(p.s.base) // what it does not answer, the session settles
	return name, nil
}

// count counts the hosts that hold a slot of hostsLock.
func (p *prober) count() {
	s := p.s
	lister := s.store.caps.Lister
	if lister == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.base, s.config.StoreTimeout)
	defer cancel()
	var held []dlock.LeaseInfo
	err := guard(func() (err error) { held, err = lister.List(ctx, hostsLock, dlock.MaxSlots); return err })
	if err != nil {
		return // nothing depends on it; the next acquire tells how the store is
	}
	s.lock()
	defer s.unlock()
	hosts := max(1, len(held))
	if p.counts == 0 { // who is back first finds himself alone
		hosts = max(hosts, s.hosts)
	}
	s.hosts = hosts
	p.counted = time.Now()
	p.counts++
}

// wait returns how long to wait for the next probe, with jitter: hosts that lost the store together
// must not come back together.
func (p *prober) wait() time.Duration {
	s := p.s
	s.lock()
	defer s.unlock()
	switch b := &s.breaker; {
	case b.err != nil:
		return p.pause.NextBackOff()
	case b.open: // it answers: a few more answers, and ticks may ask again
		return p.pause.InitialInterval/2 + rand.N(p.pause.InitialInterval)
	case s.degraded > 0 || len(s.troubled()) > 0: // they found no slot, or a server of several failed: ask again, as often as a heartbeat does
		return s.config.TTL/3 - rand.N(s.config.TTL/12)
	default:
		if time.Since(b.since) >= quiet { // a store that comes and goes is asked less and less often
			p.pause.Reset()
		}
		return s.config.TTL - rand.N(s.config.TTL/4)
	}
}
