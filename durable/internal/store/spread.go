package store

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// UnseenAfter is the time since its last registration after which a worker counts as gone.
const UnseenAfter = 3*time.Minute + 30*time.Second

const (
	// MaxPeers is the maximum number of workers that are kept for a handler. If there are more, the
	// limit is shared as if there were MaxPeers.
	MaxPeers = 64
	// peerWidth is the length of a peer as text: 16 characters each for key, Seen and Asked.
	peerWidth = 48
)

// Peers are the workers that share the limit of a handler, by WorkerKey. On Postgres, SQL
// statements do the work of these methods on the text that String returns.
type Peers map[string]Peer

// A Peer is a worker. Seen is when it last registered. Asked is when it last claimed while it had
// room left and runs were due. Both are in µs of the database's clock. 0 means never, or that the
// worker has had no room left since.
type Peer struct{ Seen, Asked int64 }

// WorkerKey returns a short key that is derived from a worker's name.
func WorkerKey(worker string) string {
	sum := sha256.Sum256([]byte(worker))
	return fmt.Sprintf("%x", sum[:8])
}

// ParsePeers parses the text that String returns.
func ParsePeers(text string) Peers {
	peers := Peers{}
	for ; len(text) >= peerWidth; text = text[peerWidth:] {
		seen, _ := strconv.ParseInt(text[16:32], 10, 64)
		asked, _ := strconv.ParseInt(text[32:48], 10, 64)
		peers[text[:16]] = Peer{seen, asked}
	}
	return peers
}

func (p Peers) String() string {
	var b strings.Builder
	for key, peer := range p {
		fmt.Fprintf(&b, "%s%016d%016d", key, peer.Seen, peer.Asked)
	}
	return b.String()
}

// within reports whether at is less than micros before now. An instant more than MaxAhead after now
// does not count, because it was noted while the clock was ahead.
func within(at, now, micros int64) bool { return at > now-micros && at <= now+MaxAhead.Microseconds() }

// Share returns how many of limit runs a worker may have. The worker shares them with the workers
// that have asked within twice the patience. If waits is false, no run has been due for the
// patience, and the worker also shares them with workers that are only registered.
func (p Peers) Share(limit int, key string, waits bool, now int64, patience time.Duration) int {
	if patience == 0 || limit < 2 {
		return limit
	}
	n := 1
	for other, peer := range p {
		if other != key && (within(peer.Asked, now, 2*patience.Microseconds()) ||
			!waits && within(peer.Seen, now, UnseenAfter.Microseconds())) {
			n++
		}
	}
	return (limit + n - 1) / n
}

// Ask records that a worker has claimed, whether it is full, and whether there were due runs. It
// returns false if the peers have not changed.
func (p Peers) Ask(key string, full, work bool, now int64, patience time.Duration) bool {
	peer := p[key]
	switch {
	case patience == 0:
		return false
	case full && within(peer.Asked, now, 2*patience.Microseconds()):
		peer.Asked = 0
	case !full && work && !within(peer.Asked, now, patience.Microseconds()/2):
		peer.Asked = now
	default:
		return false
	}
	p.put(key, peer, now)
	return true
}

// See records that a worker has registered.
func (p Peers) See(key string, now int64) { p.put(key, Peer{now, p[key].Asked}, now) }

// put stores a peer. It removes peers that are too old, and the oldest peer if there are too many.
func (p Peers) put(key string, peer Peer, now int64) {
	delete(p, key)
	for other, o := range p {
		if !within(max(o.Seen, o.Asked), now, UnseenAfter.Microseconds()) {
			delete(p, other)
		}
	}
	if len(p) >= MaxPeers {
		keys := slices.SortedFunc(maps.Keys(p), func(a, b string) int {
			return cmp.Compare(max(p[a].Seen, p[a].Asked), max(p[b].Seen, p[b].Asked))
		})
		for _, oldest := range keys[:len(p)-MaxPeers+1] {
			delete(p, oldest)
		}
	}
	p[key] = peer
}
