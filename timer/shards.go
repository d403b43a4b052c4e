package timer

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// A store may be several servers, as a Redis Cluster is, of which each has some of the names (dlock.Sharder). What one of them does costs the timers
// that live on it: each server has a breaker of its own, and the store as a whole is down when none of them answers.

// shardOf tells on which server a name lives; "": the store is one.
func (w *watchedStore) shardOf(name string) (shard string) {
	if w.sharder == nil {
		return ""
	}
	defer func() { _ = recover() }() // a store that panics is one
	return w.sharder.Shard(name)
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
	if s.store.sharder == nil {
		return &s.breaker
	}
	return s.breakerOf(e.moreTold().lockName)
}

// mayTry reports whether one tick or run may find out if a server is back whose breaker is open: one at a time, and after a pause. The store as a whole
// has its prober for that. Called with mu held.
func (s *Scheduler) mayTry(b *breaker) bool {
	if b == &s.breaker || b.trying || time.Now().Before(b.again) {
		return false
	}
	b.trying = true
	return true
}

// sawServer takes in whether a server answered, and reports whether that tells of the whole store. Called with mu held.
func (w *watchedStore) sawServer(shard string, failure error, renewal bool) (ofAll bool) {
	s := w.scheduler
	b := s.breakerAt(shard)
	c := b.saw(failure, renewal)
	if failure != nil {
		b.again = time.Now().Add(s.config.TTL/3 - rand.N(s.config.TTL/12))
	}
	switch {
	case !c.tell:
	case c.setup:
		s.say(slog.LevelWarn, "timer: a server of the store is not set up right: until somebody mends it, timers that live on it skip their ticks, whatever their OnStoreDown",
			"store", w.label, "server", shard, "err", failure)
	case c.opened:
		s.say(slog.LevelWarn, "timer: a server of the store fails or does not answer; timers that live on it go on as their OnStoreDown says",
			"store", w.label, "server", shard, "err", failure)
	case c.closed:
		s.say(slog.LevelInfo, "timer: a server of the store answers again", "store", w.label, "server", shard, "after", c.lasted.Round(time.Millisecond), "runs_without_it", s.without)
	}
	if c.answered && !b.open || c.closed {
		s.storeIsBack(shard)
		s.without = 0
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
func (w *watchedStore) elsewhere(shard string, slot int) string {
	for i := range 100 { // which of them is where, its hash decides
		name := fmt.Sprintf(probeLock+":%d", slot, i)
		if other := w.shardOf(name); other != shard && other != "" {
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

// askElsewhere asks another server than the one that has failed for a name: the store is down only if none answers, and nothing
// else may be due.
func (p *prober) askElsewhere(until <-chan struct{}, name string) {
	select {
	case <-until:
		return
	default:
	}
	store, slot := p.s.store, 0
	if p.host != nil {
		slot = p.host.Slot()
	}
	shard := store.shardOf(name)
	if shard == "" {
		return
	}
	if name = store.elsewhere(shard, slot); name == "" {
		return
	}
	lease, err := p.s.session.Mutex(name).TryAcquire(p.s.base)
	p.s.lock()
	_ = store.heard(name, err)
	p.s.unlock()
	if lease != nil {
		_ = lease.Release(p.s.base)
	}
}
