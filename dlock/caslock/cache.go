package caslock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/leasestate"
)

const (
	// maxKnown is how many bytes of documents are remembered; what is beyond is read again.
	// What they say takes about as much again.
	maxKnown = 16 << 20
	// maxNames is how many names are remembered.
	maxNames = 10_000
	// hottest is how far the back-off of a name goes: to 32 round trips.
	hottest = 5
)

// A cache remembers the documents that this process wrote last, so that a call needs one round trip
// and not two, and how its calls fare. A document that others have changed since costs a conflict,
// and nothing else.
type cache struct {
	mu    sync.Mutex
	names map[string]*name
	bytes int
	trip  time.Duration // how long a call takes, as a moving average
}

type name struct {
	doc  *version      // written or read last; nil: it is not known
	sure bool          // this process has written doc, and knows of nothing later
	turn chan struct{} // full while a call of this process changes the name
	heat int           // rises with conflicts and falls with each write: 0 to hottest
}

// A version is a document with what it says. Nobody changes one that the cache has.
type version struct {
	Document
	written time.Time
	body    []byte // of the state, a part of Data
	state   *leasestate.State
}

// enter waits for other calls of this process that change the same name, in the order in which they
// came: they would be in each other's way. But it waits for a short time only. Calls may go on side
// by side, and one whose server hangs must not hold up a heartbeat. leave lets the next one in.
func (c *cache) enter(ctx context.Context, key string) (leave func()) {
	turn := c.turnOf(key)
	select {
	case turn <- struct{}{}:
		return func() { <-turn }
	default:
	}
	patience := time.NewTimer(min(max(32*c.roundTrip(), time.Millisecond), 100*time.Millisecond))
	defer patience.Stop()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }
	case <-patience.C:
	case <-ctx.Done():
	}
	return func() {}
}

func (c *cache) turnOf(key string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name(key).turn
}

// name returns what is known of a key. Its caller holds mu.
func (c *cache) name(key string) *name {
	n := c.names[key]
	if n == nil {
		if c.names == nil || len(c.names) >= maxNames {
			c.names, c.bytes = make(map[string]*name), 0
		}
		n = &name{turn: make(chan struct{}, 1)}
		c.names[key] = n
	}
	return n
}

// get returns the documents that this process has written last, or nil if one of them is not.
func (c *cache) get(keys []string) (docs []*version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		n := c.names[key]
		if n == nil || !n.sure {
			return nil
		}
		docs = append(docs, n.doc)
	}
	return docs
}

// same returns what is known of a document that was read, or nil. A version is never used again.
func (c *cache) same(doc Document) *version {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.names[doc.Key]; n != nil && n.doc != nil && n.doc.Version == doc.Version && doc.Version != "" {
		return n.doc
	}
	return nil
}

// put remembers a document that was written, or was read.
func (c *cache) put(doc *version, wrote bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.name(doc.Key)
	c.drop(n)
	c.bytes += len(doc.Data)
	n.doc, n.sure = doc, wrote
	if c.bytes > maxKnown {
		for _, n := range c.names {
			c.drop(n)
		}
	}
}

// drop forgets the document of a name. Its caller holds mu.
func (c *cache) drop(n *name) {
	if n.doc != nil {
		c.bytes -= len(n.doc.Data)
	}
	n.doc, n.sure = nil, false
}

func (c *cache) forget(keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if n := c.names[key]; n != nil {
			c.drop(n)
		}
	}
}

// settled notes that a name was written.
func (c *cache) settled(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.name(key)
	n.heat = max(0, n.heat-1)
}

// backOff returns how long a call waits after so many conflicts. Who comes new to a name that many
// change waits longer than who has tried for a while: else the same ones would win again and again.
func (c *cache) backOff(key string, conflicts int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.name(key)
	n.heat = min(n.heat+1, hottest)
	most := max(c.trip<<n.heat>>(conflicts/8), c.trip, 100*time.Microsecond)
	return rand.N(most)
}

// took notes how long a call took.
func (c *cache) took(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trip == 0 {
		c.trip = d
	}
	c.trip += (min(d, 250*time.Millisecond) - c.trip) / 8
}

// roundTrip returns how long a call takes.
func (c *cache) roundTrip() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trip
}
