package timer

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// A store may consist of several servers, such as a Redis Cluster, each with some of the names
// (driver.Sharder). A server that fails must affect only the timers whose names it has. Therefore
// each server has its own breaker. The store as a whole is down only if none of the servers
// answers.

// shardNames maps names to servers.
type shardNames struct {
	sharder driver.Sharder // nil if the store is a single server
}

// of returns the server that has a name, or "" if the store is a single server.
func (s shardNames) of(name string) (shard string) {
	if s.sharder == nil {
		return ""
	}
	defer func() { _ = recover() }() // a store that panics is treated as a single server
	return s.sharder.Shard(name)
}

// elsewhere returns a name with which to probe a server other than shard, or "" if there is none.
func (s shardNames) elsewhere(shard string, slot int) string {
	return s.probe(slot, func(other string) bool { return other != shard })
}

// probe returns a name with which to probe a server for which use returns true, or "" if there is
// none.
func (s shardNames) probe(slot int, use func(shard string) bool) string {
	for i := range 1000 { // the hash of a name determines its server
		name := fmt.Sprintf(probeLock+":%d", slot, i)
		if shard := s.of(name); shard != "" && use(shard) {
			return name
		}
	}
	return ""
}

// breakers are the breaker of the whole store and the breakers of its servers. They have no mutex:
// the storeWatch's mutex guards them.
type breakers struct {
	whole   breaker
	servers map[string]*breaker // by the name from driver.Sharder
}

// at returns the breaker of a server, or the breaker of the whole store if shard is "".
func (b *breakers) at(shard string) *breaker {
	if shard == "" {
		return &b.whole
	}
	server := b.servers[shard]
	if server == nil {
		if b.servers == nil {
			b.servers = make(map[string]*breaker)
		}
		server = new(breaker)
		b.servers[shard] = server
	}
	return server
}

// down lists the servers whose breakers are open.
func (b *breakers) down() []string {
	var down []string
	for _, shard := range slices.Sorted(maps.Keys(b.servers)) {
		if b.servers[shard].Open() {
			down = append(down, shard)
		}
	}
	return down
}

// failing lists the servers whose last call failed, and the servers that have not answered often
// enough since a failure.
func (b *breakers) failing() []string {
	var list []string
	for shard, server := range b.servers {
		if server.err != nil || server.Open() {
			list = append(list, shard)
		}
	}
	return list
}

// ofAll reports whether a call to one of several servers also counts for the whole store. It does
// if the server answered, or if no other server is known to work. The caller holds mu.
func (s *storeWatch) ofAll(r result) bool {
	if r.failure == nil {
		return true
	}
	called := 0
	for _, b := range s.breakers.servers {
		if time.Since(b.heardAt) > 2*s.ttl { // the server may have left the store
			continue
		}
		if b.well() {
			return false
		}
		called++
	}
	if called > 1 || r.alone {
		return true
	}
	s.wakeProber() // the prober calls another server
	return false
}

// slot returns this host's slot of fleet.HostsLock, which makes the names of its probes unique.
func (p *prober) slot() int {
	if p.host == nil {
		return 0
	}
	return p.host.Slot()
}

// probeFailing probes the failed servers concurrently. Ticks do not call a server whose breaker is
// open, and perhaps no timer on it is due.
func (p *prober) probeFailing(until <-chan struct{}) {
	w := p.watch
	w.mu.Lock()
	failing := w.breakers.failing()
	w.mu.Unlock()
	var probes sync.WaitGroup
	for _, shard := range failing {
		name := w.names.probe(p.slot(), func(other string) bool { return other == shard })
		if name == "" {
			w.mu.Lock()
			if time.Since(w.breakers.servers[shard].heardAt) > 2*w.ttl { // the server has left the store
				delete(w.breakers.servers, shard)
			}
			w.mu.Unlock()
			continue
		}
		probes.Go(func() {
			for range closeAfter {
				select {
				case <-until:
					return
				default:
				}
				if p.probeName(name) != nil {
					return
				}
			}
		})
	}
	probes.Wait()
}

// probeName acquires and releases a lock, and records whether the store answered. It returns an
// error if the store did not grant the lock.
func (p *prober) probeName(name string) error {
	lease, err := p.session.Mutex(name).TryAcquire(p.watch.base)
	_ = p.watch.recordAcquire(name, err)
	p.watch.log.flush()
	if lease != nil {
		_ = lease.Release(p.watch.base) // if the store does not answer, the session repeats the release
	}
	return err
}

// probeElsewhere probes a server other than the one that failed for a name. The store is down only
// if no server answers, and perhaps no tick is due that would call another server.
func (p *prober) probeElsewhere(until <-chan struct{}, name string) {
	select {
	case <-until:
		return
	default:
	}
	shard := p.watch.names.of(name)
	if shard == "" {
		return
	}
	if name = p.watch.names.elsewhere(shard, p.slot()); name != "" {
		_ = p.probeName(name)
	}
}
