// Package caslocktest has a backend of documents in memory, for tests of what is built on package
// caslock, and for the writer of an adapter as the shortest example.
//
// A [Server] keeps the documents, and its [Client]s are the backends of as many hosts. Faults are
// planted in the server: replies that are lost, writes that arrive late, conflicts, throttling.
//
// What it does not promise: to behave as the server of an adapter does. That runs the suite of
// dlock/dlocktest itself, on its server.
package caslocktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// A Server keeps documents in memory. The zero value is ready to use. Set its fields before the
// first call.
type Server struct {
	// CallDelay is how long a call takes. Default 0.
	CallDelay time.Duration
	// ClockInterval is what the server's clock counts in: its answers carry a time that is cut to
	// whole intervals, as the header Date has seconds, and a client works out the rest. Default 0:
	// a client sees the clock itself.
	ClockInterval time.Duration
	// Limits are what the server bears. Default 1.5 MB, and 20 documents together.
	Limits caslock.Limits

	mu      sync.Mutex
	docs    map[string]caslock.Document
	version int64
	ahead   time.Duration // of the clock
	missing bool
	faults  []Fault
	calls   map[Op]int
}

// An Op is a kind of call.
type Op string

// The calls of a backend that the server sees.
const (
	OpGet   Op = "get"
	OpPut   Op = "put"
	OpList  Op = "list"
	OpClock Op = "clock"
)

// A FaultKind is what a fault does.
type FaultKind uint8

// The faults.
const (
	FaultLoseReply FaultKind = iota + 1 // the call is done, and its caller gets an error
	FaultLate                           // its caller gets an error, and the call is done For later
	FaultConflict                       // nothing is done, and the caller is told of another writer that there is not
	FaultHang                           // nothing is done, and nothing is answered until the context ends
	FaultRefuse                         // the caller has no right to do this
	FaultThrottle                       // nothing is done, and the caller is asked to come again For later
)

// A Fault is met by the next call of its kind.
type Fault struct {
	On  Op
	Is  FaultKind
	For time.Duration
}

// errLost is what a caller sees of a call whose reply does not come.
var errLost = errors.New("connection reset by peer")

// Plant makes the next calls fail, one each.
func (s *Server) Plant(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Calls returns how many calls of some kinds the server has seen; without a kind: of all.
func (s *Server) Calls(ops ...Op) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for op, calls := range s.calls {
		if len(ops) == 0 || slices.Contains(ops, op) {
			n += calls
		}
	}
	return n
}

// Step sets the server's clock forward, or back if by is negative, and returns how far it is now
// ahead of time.Now.
func (s *Server) Step(by time.Duration) (ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
	return s.ahead
}

// Clear makes the server forget all documents.
func (s *Server) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.docs = nil
}

// Drop takes away the table that the documents are in, or makes it anew, empty.
func (s *Server) Drop(missing bool) {
	s.Clear()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = missing
}

// Keys returns the keys of all documents, in order.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.docs))
}

// Edit replaces the text of a document behind the back of everybody.
func (s *Server) Edit(key string, edit func(text string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(caslock.Document{Key: key, Data: []byte(edit(string(s.docs[key].Data)))})
}

// write returns the new version. Its caller holds mu.
func (s *Server) write(doc caslock.Document) string {
	if s.docs == nil {
		s.docs = make(map[string]caslock.Document)
	}
	s.version++
	doc.Version, doc.Data = strconv.FormatInt(s.version, 10), slices.Clone(doc.Data)
	s.docs[doc.Key] = doc
	return doc.Version
}

// putAll is the one step of a Put. Its caller holds mu.
func (s *Server) putAll(docs []caslock.Document) (versions []string, err error) {
	conflict := &caslock.ConflictError{}
	changed := false
	for _, doc := range docs {
		now := s.docs[doc.Key]
		now.Key = doc.Key
		conflict.Current = append(conflict.Current, now)
		changed = changed || now.Version != doc.Version
	}
	if changed {
		return nil, conflict
	}
	for _, doc := range docs {
		versions = append(versions, s.write(doc))
	}
	return versions, nil
}

// call does a call, or what a fault makes of it. do is called with mu held.
func (s *Server) call(ctx context.Context, op Op, do func() error) error {
	if err := sleep(ctx, s.CallDelay); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = make(map[Op]int)
	}
	s.calls[op]++
	if s.missing {
		return fmt.Errorf("%w: there is no such table: create it", driver.ErrSetup)
	}
	i := slices.IndexFunc(s.faults, func(f Fault) bool { return f.On == op })
	if i < 0 {
		return do()
	}
	fault := s.faults[i]
	s.faults = slices.Delete(s.faults, i, i+1)
	switch fault.Is {
	case FaultLoseReply:
		_ = do() // nobody learns how it went
		return errLost
	case FaultLate:
		time.AfterFunc(fault.For, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			_ = do() // nobody waits for it
		})
		return errLost
	case FaultConflict:
		return &caslock.ConflictError{}
	case FaultHang:
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return ctx.Err()
	case FaultRefuse:
		return fmt.Errorf("%w: this user may not %s: grant the right", driver.ErrSetup, op)
	default:
		return &caslock.ThrottledError{Wait: fault.For, Err: errors.New("429 too many requests")}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// A Client is the backend of one host.
type Client struct {
	server *Server
	clock  caslock.Clock
}

// Client returns a backend on the server. maxSkew is that of caslock.Clock.
func (s *Server) Client(maxSkew time.Duration) *Client {
	return &Client{server: s, clock: caslock.Clock{MaxSkew: maxSkew}}
}

func (c *Client) String() string { return "documents in memory" }

// Restarts returns how often the server's clock contradicted itself.
func (c *Client) Restarts() int { return c.clock.Restarts() }

// call does a call, and learns what the server's clock shows.
func (c *Client) call(ctx context.Context, op Op, do func() error) error {
	sent := time.Now()
	var stamp time.Time
	err := c.server.call(ctx, op, func() error {
		stamp = time.Now().Add(c.server.ahead)
		return do()
	})
	if unit := c.server.ClockInterval; unit > 0 && !errors.Is(err, errLost) && !stamp.IsZero() {
		c.clock.Observe(sent, time.Now(), stamp.Truncate(unit), unit)
	}
	return err
}

// Get implements caslock.Backend.
func (c *Client) Get(ctx context.Context, key string) (doc caslock.Document, err error) {
	err = c.call(ctx, OpGet, func() error {
		doc = c.server.docs[key]
		return nil
	})
	return doc, err
}

// Put implements caslock.Backend.
func (c *Client) Put(ctx context.Context, docs ...caslock.Document) (versions []string, err error) {
	docs = slices.Clone(docs) // a late one is written when its caller has gone, and answers nobody
	answer := new([]string)
	if err := c.call(ctx, OpPut, func() (err error) {
		*answer, err = c.server.putAll(docs)
		return err
	}); err != nil {
		return nil, err
	}
	return *answer, nil
}

// List implements caslock.Backend.
func (c *Client) List(ctx context.Context, after string, limit int) (docs []caslock.Document, more bool, err error) {
	err = c.call(ctx, OpList, func() error {
		keys := slices.Sorted(maps.Keys(c.server.docs))
		from, found := slices.BinarySearch(keys, after)
		if found {
			from++
		}
		to := min(from+limit, len(keys))
		for _, key := range keys[from:to] {
			docs = append(docs, c.server.docs[key])
		}
		more = to < len(keys)
		return nil
	})
	return docs, more, err
}

// Clock implements caslock.Backend.
func (c *Client) Clock(ctx context.Context) (caslock.Bounds, error) {
	if c.server.ClockInterval == 0 {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		now := time.Now().Add(c.server.ahead)
		return caslock.Bounds{From: now, Until: now}, nil
	}
	if b, ok := c.clock.Now(); ok {
		return b, nil
	}
	if err := c.call(ctx, OpClock, func() error { return nil }); err != nil {
		return caslock.Bounds{}, err
	}
	b, _ := c.clock.Now()
	return b, nil
}

// Limits implements caslock.Backend.
func (c *Client) Limits() caslock.Limits {
	if c.server.Limits == (caslock.Limits{}) {
		return caslock.Limits{Bytes: 3 << 19, Together: 20}
	}
	return c.server.Limits
}
