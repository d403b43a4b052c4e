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

// UnseenAfter is how long ago a worker must have registered last to count as one that is gone.
const UnseenAfter = 3*time.Minute + 30*time.Second

const (
	// MaxLooks is how many workers of a handler are kept. With more, each has the share of so many.
	MaxLooks = 64
	// lookWidth is the length of one as text: 16 characters each of key, Seen and Asked.
	lookWidth = 48
)

// Looks are the workers of a handler, by WorkerKey: those with which a worker shares what may run
// at once. The store of Postgres does the same on the text that String returns.
type Looks map[string]Look

// A Look is when a worker has registered, and when it last claimed, had room left, and there was
// something to run. In µs of the database's clock; 0: never, or it had no room left since.
type Look struct{ Seen, Asked int64 }

// WorkerKey is what stands for the name of a worker.
func WorkerKey(worker string) string {
	sum := sha256.Sum256([]byte(worker))
	return fmt.Sprintf("%x", sum[:8])
}

// ParseLooks reads what String returned.
func ParseLooks(text string) Looks {
	looks := Looks{}
	for ; len(text) >= lookWidth; text = text[lookWidth:] {
		seen, _ := strconv.ParseInt(text[16:32], 10, 64)
		asked, _ := strconv.ParseInt(text[32:48], 10, 64)
		looks[text[:16]] = Look{seen, asked}
	}
	return looks
}

func (l Looks) String() string {
	var b strings.Builder
	for key, look := range l {
		fmt.Fprintf(&b, "%s%016d%016d", key, look.Seen, look.Asked)
	}
	return b.String()
}

// within reports whether an instant is less than so long ago, and not of a clock that was ahead.
func within(at, now, micros int64) bool { return at > now-micros && at <= now+MaxAhead.Microseconds() }

// Share returns how many of limit runs a worker may have. It shares them with the workers that have
// asked within two times patience, and, unless a run waits that has been due for that long, with
// those that are registered.
func (l Looks) Share(limit int, key string, waits bool, now int64, patience time.Duration) int {
	if patience == 0 || limit < 2 {
		return limit
	}
	n := 1
	for other, look := range l {
		if other != key && (within(look.Asked, now, 2*patience.Microseconds()) ||
			!waits && within(look.Seen, now, UnseenAfter.Microseconds())) {
			n++
		}
	}
	return (limit + n - 1) / n
}

// Ask notes that a worker has claimed, whether it is full, and whether there was something to run.
// It returns false if what is noted is good enough.
func (l Looks) Ask(key string, full, work bool, now int64, patience time.Duration) bool {
	look := l[key]
	switch {
	case patience == 0:
		return false
	case full && within(look.Asked, now, 2*patience.Microseconds()):
		look.Asked = 0
	case !full && work && !within(look.Asked, now, patience.Microseconds()/2):
		look.Asked = now
	default:
		return false
	}
	l.put(key, look, now)
	return true
}

// See notes that a worker has registered.
func (l Looks) See(key string, now int64) { l.put(key, Look{now, l[key].Asked}, now) }

// put notes a look, and forgets those that are too old, or too many.
func (l Looks) put(key string, look Look, now int64) {
	delete(l, key)
	for other, o := range l {
		if !within(max(o.Seen, o.Asked), now, UnseenAfter.Microseconds()) {
			delete(l, other)
		}
	}
	if len(l) >= MaxLooks {
		keys := slices.SortedFunc(maps.Keys(l), func(a, b string) int {
			return cmp.Compare(max(l[a].Seen, l[a].Asked), max(l[b].Seen, l[b].Asked))
		})
		for _, oldest := range keys[:len(l)-MaxLooks+1] {
			delete(l, oldest)
		}
	}
	l[key] = look
}
