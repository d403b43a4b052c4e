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

// A lookout is told of the rows whenever somebody has read them, and notes what no process writes
// of itself: that a host is gone, and that one is of another environment.
//
// It also says when this host is to look by itself, which all hosts together do about once per
// beat: so there is always one that knows, and nobody reads the whole registry once per beat and
// host.
type lookout struct {
	options Options
	notes   *notes
	faults  *faults

	mu     sync.Mutex // of the goroutine of Run, and of those that read
	hosts  int        // that are alive; 0: not known
	gone   map[dlock.Holder]bool
	others []string // environments of live hosts
}

// lookEvery is how many beats pass at least between two looks of a host. Of these beats it makes a
// look instead of a stamp, so it must be more than two: a stamp may fail.
const lookEvery = 3

// mostSharing is how many hosts share the looks at most. A host cannot know that the others are
// gone before it looks, so in a larger fleet each looks more often than it would have to, about
// every 500 beats.
const mostSharing = 500

// beats returns after how many beats this host is to look again: on average as many as there are
// hosts, at least two. It may be very few, because after a start of all hosts at once somebody has
// to look before all have waited for most of their turn.
func (l *lookout) beats() int { return 2 + rand.IntN(l.mostBeats()-1) }

// mostBeats is the most that beats returns.
func (l *lookout) mostBeats() int { return 2*min(max(lookEvery, l.count()), mostSharing) - 2 }

// count returns how many hosts are alive, at least 1.
func (l *lookout) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, l.hosts)
}

// environments returns those of other live hosts that are not this one's.
func (l *lookout) environments() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.others)
}

// see is told of the hosts as they were at an instant.
func (l *lookout) see(hosts []Host, at time.Time) {
	var live int
	gone := map[dlock.Holder]bool{}
	var others []string
	for i := range hosts {
		h := &hosts[i]
		if h.State == HostGone {
			gone[h.Holder] = !h.Left
			continue
		}
		live++
		if h.Holder != l.options.Holder && h.Environment != "" && l.options.Environment != "" &&
			h.Environment != l.options.Environment && !slices.Contains(others, h.Environment) {
			others = append(others, h.Environment)
		}
	}
	slices.Sort(others)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts = live
	for i := range hosts {
		if h := &hosts[i]; gone[h.Holder] && !l.gone[h.Holder] {
			l.notes.event(goneEvent(h), h.SeenAt.Add(2*h.TTL))
		}
	}
	l.gone = gone
	if !slices.Equal(others, l.others) {
		l.others = others
		if len(others) > 0 {
			l.faults.warn("cluster: other hosts on this registry are of another environment: give each environment a "+
				"table or prefix of its own",
				"environment", l.options.Environment, "others", strings.Join(others, ", "))
		}
	}
}

// goneEvent is the same whoever notices: of one silence there is one. The time from a start to the
// last stamp is known to the store, so that all who ask read the same.
func goneEvent(h *Host) Event {
	lived := h.SeenAt.Sub(h.StartedAt).Round(time.Second)
	return Event{ID: idOf(string(EventHostGone), h.Holder.String(), strconv.FormatInt(int64(lived), 10)),
		Kind: EventHostGone, Holder: h.Holder, Text: "silent for two TTLs of " + h.TTL.String()}
}
