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

// An observer receives the hosts after each read. It reports what no process can write about
// itself: an event when a host is gone, and a log line about hosts of another environment.
//
// It also decides when this host reads without a Snapshot. All hosts together do so about once per
// heartbeat interval. So some host always has recent data, although no host reads the whole
// registry frequently.
type observer struct {
	config    Config
	pending   *pending
	faults    *faults
	admission *admission

	mu     sync.Mutex // used by the goroutine of Run and by readers
	alive  int        // number of hosts; 0 if unknown
	gone   map[dlock.Holder]bool
	others []string // environments of live hosts
}

const (
	// minSharing is the smallest number of hosts assumed to share the reads. A read replaces a
	// heartbeat, and a heartbeat may fail, so two reads must be more than two intervals apart.
	minSharing = 3
	// maxSharing is the largest number of hosts assumed to share the reads. A host learns only by
	// reading that other hosts are gone, so in a larger fleet each host reads more often than
	// necessary.
	maxSharing = 500
)

// intervals returns after how many heartbeat intervals this host reads the registry again: a random
// number, at least two, and on average the number of hosts. The randomness makes some hosts read
// early when all have started together.
func (o *observer) intervals() int { return 2 + rand.IntN(o.maxIntervals()-1) }

// maxIntervals is the largest result of intervals.
func (o *observer) maxIntervals() int { return 2*min(max(minSharing, o.hosts()), maxSharing) - 2 }

// hosts returns the number of live hosts, at least 1.
func (o *observer) hosts() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(1, o.alive)
}

// environments returns the environments of other live hosts that differ from this host's
// environment.
func (o *observer) environments() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.others)
}

// observe evaluates the hosts of a read.
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
		if len(others) > 0 && !o.admission.asking.Load() { // otherwise this process is refused
			o.faults.warn("cluster: other hosts on this registry are of another environment: give each environment a "+
				"table or prefix of its own",
				"environment", o.config.Environment, "others", strings.Join(others, ", "))
		}
	}
}

// goneEvent returns the same event on every host, so that the registry contains it once. Its ID
// includes the time from the host's start to its last heartbeat, which is the same for all readers.
func goneEvent(h *Host) Event {
	lived := h.SeenAt.Sub(h.StartedAt).Round(time.Second)
	return Event{ID: idOf(string(EventHostGone), h.Holder.String(), strconv.FormatInt(int64(lived), 10)),
		Kind: EventHostGone, Holder: h.Holder, Text: "silent for two TTLs of " + h.TTL.String()}
}
