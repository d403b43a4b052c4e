package cluster

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// An observer gets the hosts after each read. It reports what no process can write about itself: as
// an event that a host is gone, in the log that one is of another environment.
//
// It also decides when this host reads on its own. All hosts together do so about once per
// heartbeat interval: so some host always has recent data, and not every host reads the whole
// registry all the time.
type observer struct {
	config    Config
	pending   *pending
	faults    *faults
	admission *admission

	mu     sync.Mutex // of the goroutine of Run, and of those that read
	alive  int        // hosts; 0: not known
	gone   map[dlock.Holder]bool
	others []string // environments of live hosts
}

const (
	// minSharing is the smallest number of hosts that are assumed to share the reads. A read takes
	// the place of a heartbeat, so there must be more than two intervals between two reads: a
	// heartbeat may fail.
	minSharing = 3
	// maxSharing is the largest number of hosts that are assumed to share the reads. A host learns
	// only from a read that the others are gone, so in a larger fleet each reads more often than it
	// would have to.
	maxSharing = 500
)

// intervals returns after how many heartbeat intervals this host reads the registry again: a random
// number, at least two, and on average the number of hosts. It is random so that, if hosts start
// together, some read early.
func (o *observer) intervals() int { return 2 + rand.IntN(o.maxIntervals()-1) }

// maxIntervals is the largest result of intervals.
func (o *observer) maxIntervals() int { return 2*min(max(minSharing, o.hosts()), maxSharing) - 2 }

// hosts returns how many hosts are alive, at least 1.
func (o *observer) hosts() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(1, o.alive)
}

// environments returns the environments of other live hosts that differ from this host's.
func (o *observer) environments() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.others)
}

// observe gets the hosts that were read.
func (o *observer) observe(hosts []Host) {
	var alive int
	gone := map[dlock.Holder]bool{}
	var others []string
	for i := range hosts {
		h := &hosts[i]
		switch {
		case h.State.Live():
			alive++
		case h.State == HostGone:
			gone[h.Holder] = !h.Left
		}
	}
	for _, h := range o.config.others(hosts) {
		others = append(others, h.Environment)
	}
	slices.Sort(others)
	others = slices.Compact(others)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alive = alive
	for i := range hosts {
		if h := &hosts[i]; gone[h.Holder] && !o.gone[h.Holder] {
			o.pending.addEvent(goneEvent(h), h.SeenAt.Add(2*h.TTL))
		}
	}
	o.gone = gone
	if !slices.Equal(others, o.others) {
		o.others = others
		if len(others) > 0 && !o.admission.asking.Load() { // else this process is refused
			o.faults.warn("cluster: other hosts on this registry are of another environment: give each environment a "+
				"table or prefix of its own",
				"environment", o.config.Environment, "others", strings.Join(others, ", "))
		}
	}
}

// goneEvent returns the same event on every host, so that it is in the registry once. Its ID
// contains the time from the host's start to its last heartbeat, which the store knows.
func goneEvent(h *Host) Event {
	lived := h.SeenAt.Sub(h.StartedAt).Round(time.Second)
	return Event{ID: idOf(string(EventHostGone), h.Holder.String(), strconv.FormatInt(int64(lived), 10)),
		Kind: EventHostGone, Holder: h.Holder, Text: "silent for two TTLs of " + h.TTL.String()}
}
