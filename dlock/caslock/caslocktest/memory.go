// Package caslocktest provides a backend with documents in memory. It serves tests of code built on
// package caslock, and it is the shortest example for the author of an adapter.
//
// A [Server] stores the documents. Its [Client]s are backends, one per host. Tests plant faults in
// the server: lost replies, late writes, conflicts, throttling.
//
// It does not promise to behave like a real server. An adapter must run the suite of
// dlock/dlocktest on its own server.
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

// A Server stores documents in memory. The zero value is ready to use. Set its fields before the
// first call.
type Server struct {
	// CallDelay is the duration of a call. Default 0.
	CallDelay time.Duration
	// ClockInterval is the resolution of the server's clock. Answers carry a time truncated to this
	// interval, like HTTP's Date header with its whole seconds, and a client derives the bounds
	// from it. If it is 0, a client reads the clock exactly. Default 0.
	ClockInterval time.Duration
	// Limits are the limits of the server. Default 1.5 MB, and 20 documents together.
	Limits caslock.Limits

	mu      sync.Mutex
	docs    map[string]caslock.Document
	version int64
	ahead   time.Duration // how far the clock is ahead
	missing bool
	faults  []Fault
	calls   map[Op]int
}

// An Op is a kind of call.
type Op string

// The calls that the server counts.
const (
	OpGet   Op = "get"
	OpPut   Op = "put"
	OpList  Op = "list"
	OpClock Op = "clock"
)

// A FaultKind is the effect of a fault.
type FaultKind uint8

// The kinds of faults.
const (
	FaultLoseReply FaultKind = iota + 1 // the call takes effect, but its caller gets an error
	FaultLate                           // the caller gets an error, and the call takes effect For later
	FaultConflict                       // nothing happens, and the caller gets a conflict although no one else wrote
	FaultHang                           // nothing happens, and no answer comes before the context ends
	FaultRefuse                         // the caller lacks the permission
	FaultThrottle                       // nothing happens, and the caller must retry For later
)

// A Fault affects the next call of its kind.
type Fault struct {
	On  Op
	Is  FaultKind
	For time.Duration
}

// errLost is the error of a caller whose reply is lost.
var errLost = errors.New("connection reset by peer")

// Plant adds faults. Each affects one call.
func (s *Server) Plant(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Calls returns how many calls of the given kinds the server has seen. Without arguments, it counts
// all calls.
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

// Step moves the server's clock forward, or back if by is negative. It returns how far the clock is
// now ahead of time.Now.
func (s *Server) Step(by time.Duration) (ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
	return s.ahead
}

// Clear deletes all documents.
func (s *Server) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.docs = nil
}

// Drop deletes all documents. If missing is true, calls fail as if there were no table, until
// Drop(false).
func (s *Server) Drop(missing bool) {
	s.Clear()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = missing
}

// Keys returns the keys of all documents in order.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.docs))
}

// Edit replaces the text of a document, as another program would.
func (s *Server) Edit(key string, edit func(text string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(caslock.Document{Key: key, Data: []byte(edit(string(s.docs[key].Data)))})
}

// write stores a document and returns its new version. The caller holds mu.
func (s *Server) write(doc caslock.Document) string {
	if s.docs == nil {
		s.docs = make(map[string]caslock.Document)
	}
	s.version++
	doc.Version, doc.Data = strconv.FormatInt(s.version, 10), slices.Clone(doc.Data)
	s.docs[doc.Key] = doc
	return doc.Version
}

// putAll is the atomic step of a Put. The caller holds mu.
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

// call executes a call or the next planted fault of its kind. It calls do with mu held.
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
		_ = do() // the result is lost
		return errLost
	case FaultLate:
		time.AfterFunc(fault.For, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			_ = do() // the result is lost
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

// A Client is a backend for one host.
type Client struct {
	server *Server
	clock  caslock.Clock
}

// Client returns a backend on the server. maxSkew becomes the MaxSkew of its caslock.Clock.
func (s *Server) Client(maxSkew time.Duration) *Client {
	return &Client{server: s, clock: caslock.Clock{MaxSkew: maxSkew}}
}

func (c *Client) String() string { return "documents in memory" }

// Restarts returns how often the server's clock contradicted earlier answers.
func (c *Client) Restarts() int { return c.clock.Restarts() }

// call executes a call and feeds the server's time to the client's clock.
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
	docs = slices.Clone(docs) // a late write happens after its caller has returned
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
