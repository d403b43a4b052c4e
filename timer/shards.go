package timer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// A store may be several servers, as a Redis Cluster is, of which each has some of the names
// (dlock.Sharder). What one of them does costs the timers that live on it: each server has a
// breaker of its own, and the store as a whole is down when none of them answers.

// shardOf tells on which server a name lives; "": the store is one.
func (w *storeWatch) shardOf(name string) (shard string) {
	if w.caps.Sharder == nil {
		return ""
	}
	defer func() { _ = recover() }() // a store that panics is one
	return w.caps.Sharder.Shard(name)
}

// breakerOf returns the breaker between a name and the store. Called with mu held.
func (s *Scheduler) breakerOf(name string) *breaker { return s.breakerAt(s.store.shardOf(name)) }

func (s *Scheduler) breakerAt(shard string) *breaker {
	if shard == "" {
		return &s.breaker
	}
	b := s.servers[shard]
	if b == nil {
		if s.servers == nil {
			s.servers = make(map[string]*breaker)
		}
		b = new(breaker)
		s.servers[shard] = b
	}
	return b
}

// before is the breaker between a timer and the store. Called with mu held.
func (s *Scheduler) before(e *entry) *breaker {
	if s.store.caps.Sharder == nil {
		return &s.breaker
	}
	return s.breakerOf(e.lockName)
}

// sawServer takes in whether a server answered, and reports whether that tells of the whole store.
// Called with mu held.
func (w *storeWatch) sawServer(shard string, failure error, renewal bool) (ofAll bool) {
	s := w.scheduler
	b := s.breakerAt(shard)
	c := b.saw(failure, renewal)
	if c.mended = c.answered && !b.open && !c.closed && s.without > 0; c.mended {
		c.tell = b.mayTell(&b.told, time.Now())
		b.telling = false
	}
	switch {
	case !c.tell:
	case c.setup:
		s.log.later(slog.LevelWarn, "timer: a server of the store is not set up right: until somebody mends it, timers that live on it skip their ticks, whatever their OnStoreDown",
			"store", w.label, "server", shard, "err", failure)
	case c.opened:
		s.log.later(slog.LevelWarn, "timer: a server of the store fails or does not answer; timers that live on it go on as their OnStoreDown says",
			"store", w.label, "server", shard, "err", failure)
	case c.closed:
		s.log.later(slog.LevelInfo, "timer: a server of the store answers again", "store", w.label, "server", shard, "after", c.lasted.Round(time.Millisecond), "runs_without_it", s.without)
	case c.mended:
		s.log.later(slog.LevelWarn, "timer: a server of the store did not answer for a moment, and runs started without it", "store", w.label, "server", shard, "runs_without_it", s.without)
	}
	if c.answered && !b.open || c.closed {
		s.storeIsBack(shard)
		if len(s.serversDown()) == 0 {
			s.without = 0
		}
	}
	if failure == nil {
		return true
	}
	asked := 0
	for _, b := range s.servers {
		if time.Since(b.heard) > 2*s.config.TTL { // it may no longer be one of them
			continue
		}
		if b.well() {
			return false
		}
		asked++
	}
	if asked > 1 || w.elsewhere(shard, 0) == "" {
		return true
	}
	s.prod() // the prober asks another
	return false
}

// elsewhere returns a name for a probe of another server than that; "": there is none.
func (w *storeWatch) elsewhere(shard string, slot int) string {
	return w.probeName(slot, func(other string) bool { return other != shard })
}

// probeName returns a name for a probe, of a server for which there is a use; "": there is none.
func (w *storeWatch) probeName(slot int, use func(shard string) bool) string {
	for i := range 1000 { // the hash of a name decides where it lives
		name := fmt.Sprintf(probeLock+":%d", slot, i)
		if shard := w.shardOf(name); shard != "" && use(shard) {
			return name
		}
	}
	return ""
}

// serversDown lists the servers that failed several times in a row. Called with mu held.
func (s *Scheduler) serversDown() []string {
	var down []string
	for _, shard := range slices.Sorted(maps.Keys(s.servers)) {
		if s.servers[shard].open {
			down = append(down, shard)
		}
	}
	return down
}

// troubled lists the servers that failed when they were last asked, and those that have not
// answered often enough since. Called with mu held.
func (s *Scheduler) troubled() []string {
	var list []string
	for shard, b := range s.servers {
		if b.err != nil || b.open {
			list = append(list, shard)
		}
	}
	return list
}

// slot is the number that makes the names of this host's probes its own.
func (p *prober) slot() int {
	if p.host == nil {
		return 0
	}
	return p.host.Slot()
}

// askTroubled asks the servers that failed, side by side: no tick asks a server whose breaker is
// open, and perhaps no timer that is ever due lives there.
func (p *prober) askTroubled(until <-chan struct{}) {
	s := p.s
	s.lock()
	troubled := s.troubled()
	s.unlock()
	var asking sync.WaitGroup
	for _, shard := range troubled {
		name := s.store.probeName(p.slot(), func(other string) bool { return other == shard })
		if name == "" {
			s.lock()
			if time.Since(s.servers[shard].heard) > 2*s.config.TTL { // it has left the store
				delete(s.servers, shard)
			}
			s.unlock()
			continue
		}
		asking.Go(func() {
			for range mends {
				select {
				case <-until:
					return
				default:
				}
				if p.askFor(name) != nil {
					return
				}
			}
		})
	}
	asking.Wait()
}

// askFor takes and releases a lock, and notes how the store was. It returns an error if it did not
// grant.
func (p *prober) askFor(name string) error {
	lease, err := p.s.session.Mutex(name).TryAcquire(p.s.base)
	p.s.lock()
	_ = p.s.store.heard(name, err)
	p.s.unlock()
	if lease != nil {
		_ = lease.Release(p.s.base) // what it does not answer, the session settles
	}
	return err
}

// askElsewhere asks another server than the one that has failed for a name: the store is down only
// if none answers, and nothing else may be due.
func (p *prober) askElsewhere(until <-chan struct{}, name string) {
	select {
	case <-until:
		return
	default:
	}
	shard := p.s.store.shardOf(name)
	if shard == "" {
		return
	}
	if name = p.s.store.elsewhere(shard, p.slot()); name != "" {
		_ = p.askFor(name)
	}
}
