package caslock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/leasestate"
)

const (
	// maxKnown is the maximum size of cached documents in bytes. Their decoded states take about as
	// much memory again.
	maxKnown = 16 << 20
	// maxNames is the maximum number of cached names.
	maxNames = 10_000
	// hottest is the maximum heat of a name. It limits a back-off to 32 round trips.
	hottest = 5
)

// A cache keeps the latest documents that this process wrote, so that a call takes one round trip
// instead of two. A cached document that another host has changed costs only a conflict. The cache
// also measures the duration of calls and counts conflicts per name.
type cache struct {
	mu    sync.Mutex
	names map[string]*name
	bytes int
	trip  time.Duration // moving average of a call's duration
}

type name struct {
	doc  *version      // last written or read; nil if unknown
	sure bool          // this process wrote doc and has seen no later version
	turn chan struct{} // full while a call of this process changes the name
	heat int           // 0 to hottest; rises with each conflict, falls with each write
}

// A version is a document with its decoded state. A version in the cache is never modified.
type version struct {
	Document
	written time.Time
	body    []byte // the state's part of Data
	state   *leasestate.State
}

// enter waits for other calls of this process that change the same name, in order of arrival,
// because concurrent changes would conflict. The wait is short: calls may run in parallel, and a
// call to a server that hangs must not delay a heartbeat. leave admits the next call.
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

// name returns the entry of a key and creates it if necessary. The caller holds mu.
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

// get returns the documents of keys if this process was the last to write them all, as far as it
// knows. Otherwise it returns nil.
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

// same returns the cached version of a document, or nil. It relies on versions never being reused.
func (c *cache) same(doc Document) *version {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.names[doc.Key]; n != nil && n.doc != nil && n.doc.Version == doc.Version && doc.Version != "" {
		return n.doc
	}
	return nil
}

// put caches a document that was written or read.
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

// drop removes the document of a name from the cache. The caller holds mu.
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

// settled lowers the heat of a name after a write.
func (c *cache) settled(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.name(key)
	n.heat = max(0, n.heat-1)
}

// backOff returns how long a call waits after its latest conflict. On a contended name, a call with
// few conflicts waits longer than one with many. Otherwise the same callers could win every time.
func (c *cache) backOff(key string, conflicts int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.name(key)
	n.heat = min(n.heat+1, hottest)
	most := max(c.trip<<n.heat>>(conflicts/8), c.trip, 100*time.Microsecond)
	return rand.N(most)
}

// took adds the duration of a call to the moving average.
func (c *cache) took(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trip == 0 {
		c.trip = d
	}
	c.trip += (min(d, 250*time.Millisecond) - c.trip) / 8
}

// roundTrip returns the average duration of a call.
func (c *cache) roundTrip() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trip
}
