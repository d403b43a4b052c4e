package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/internal/rediskit"
)

const (
	// maxInFlight is how many round trips a process may have in flight for acquires and releases,
	// except on a Cluster. Further calls wait and are then sent together.
	maxInFlight = 4
	// scriptItems is how many attempts or leases one run of a script handles. A run blocks the
	// server, at this size for a millisecond or two. More items go into further runs in the same
	// pipeline. proof/benchmarks/COSTS.md shows how much this slows other clients.
	scriptItems = 100
)

// A batcher lets concurrent calls of a process share round trips. While fewer than maxInFlight
// round trips are in flight, it sends a call immediately and alone, so a single caller has no
// delay. Other calls wait for a round trip to return and are then sent in one pipeline. They wait
// for part of a round trip, as they would for a connection, but save the server and the process
// most of its cost. Acquires in one pipeline are one run of the script, which identifies the server
// only once.
//
// A call waits at most until its own deadline. If it gives up, its outcome is unknown, as after any
// lost reply.
type batcher struct {
	client redis.UniversalClient
	limit  int  // maximum number of round trips in flight
	merge  bool // one run of the script may have keys of different names

	timers sync.Pool // of *time.Timer, for calls that wait

	mu       sync.Mutex
	inFlight int
	waiting  []*call
}

// newBatcher sets no limit on a Cluster, where every call is sent alone. A pipeline returns only
// when the last of its nodes has answered, and a node may be dead.
func newBatcher(client redis.UniversalClient, pool int, merge bool) *batcher {
	b := &batcher{client: client, limit: maxInFlight, merge: merge}
	if _, ok := client.(*redis.ClusterClient); ok {
		b.limit = math.MaxInt
	} else if pool > 0 {
		b.limit = min(maxInFlight, pool)
	}
	return b
}

// A call runs a script for some items.
type call struct {
	script *rediskit.Script
	common []any    // arguments for the whole run
	keys   []string // one per item
	shared []string // further keys to declare
	items  []any    // arguments of the items

	head    any   // first value of the answer
	answer  []any // one value per item; before splitHead, everything that the script returned
	failure error // why there is no answer

	ctx  context.Context // context of the waiting caller
	done chan struct{}   // closed when there is an answer or a failure
}

func (c *call) args() []any { return slices.Concat(c.common, c.items) }

func (c *call) declared() []string { return slices.Concat(c.keys, c.shared) }

// splitHead separates the head from an answer, which must have one more value per item.
func (c *call) splitHead() {
	if c.failure == nil && len(c.answer) != 1+len(c.keys) {
		c.failure = fmt.Errorf("%w: %d values for %d", errAnswer, len(c.answer), len(c.keys))
	}
	if c.failure == nil {
		c.head, c.answer = c.answer[0], c.answer[1:]
	}
}

// mergesWith reports whether two calls can share a run of their script.
func (c *call) mergesWith(other *call) bool {
	return c.script == other.script && len(c.keys)+len(other.keys) <= scriptItems &&
		len(c.shared) == 0 && len(other.shared) == 0 && slices.Equal(c.common, other.common)
}

// do makes one call and returns when the call is answered or ctx ends.
func (b *batcher) do(ctx context.Context, c *call) error {
	b.mu.Lock()
	if b.inFlight >= b.limit {
		c.ctx, c.done = ctx, make(chan struct{})
		b.waiting = append(b.waiting, c)
		b.mu.Unlock()
		if err := b.wait(ctx, c.done); err != nil {
			return err
		}
		return c.failure
	}
	b.inFlight++
	b.mu.Unlock()
	defer func() {
		if calls := b.takeWaiting(); calls != nil {
			go b.flush(calls)
		}
	}()
	c.answer, c.failure = c.script.Run(ctx, b.client, c.declared(), c.args()...).Slice()
	c.splitHead()
	return c.failure
}

// A boundedContext reveals what ends it: a parent or a time. The context of a Session's acquire or
// release is one (dlock's unexported lazyDeadline). The batcher waits for both with a pooled timer,
// because Done would allocate a channel and a timer for each call.
type boundedContext interface {
	Ends() (parent context.Context, at time.Time)
}

// wait waits until done is closed and returns nil. If ctx ends first, wait returns its error.
func (b *batcher) wait(ctx context.Context, done <-chan struct{}) error {
	bounded, ok := ctx.(boundedContext)
	if !ok {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	parent, at := bounded.Ends()
	timer, ok := b.timers.Get().(*time.Timer)
	if ok {
		timer.Reset(time.Until(at))
	} else {
		timer = time.NewTimer(time.Until(at))
	}
	defer func() {
		timer.Stop()
		b.timers.Put(timer)
	}()
	select {
	case <-done:
		return nil
	case <-parent.Done():
		return parent.Err()
	case <-timer.C:
		return context.DeadlineExceeded
	}
}

// takeWaiting returns the waiting calls, which the round trip that just returned must send next. If
// there are none, it counts that round trip as no longer in flight.
func (b *batcher) takeWaiting() []*call {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.waiting
	b.waiting = nil
	if calls == nil {
		b.inFlight--
	}
	return calls
}

// flush sends calls, then the calls that have arrived meanwhile, and so on until none wait.
func (b *batcher) flush(calls []*call) {
	for ; calls != nil; calls = b.takeWaiting() {
		calls = slices.DeleteFunc(calls, func(c *call) bool { return c.ctx.Err() != nil })
		b.send(calls)
		for _, c := range calls {
			close(c.done)
		}
		runtime.Gosched() // lets the callers make their next calls
	}
}

// send makes the calls in one pipeline. Its deadline is the latest of the calls, and its context
// has the values of the first call's.
func (b *batcher) send(calls []*call) {
	if len(calls) == 0 {
		return
	}
	var runs []*call
	var members [][]*call // the calls of each run, in order
	var last time.Time
	for _, c := range calls {
		end, ok := c.ctx.Deadline()
		if !ok {
			end = time.Now().Add(rediskit.LastResort)
		}
		if end.After(last) {
			last = end
		}
		i := -1
		if b.merge {
			i = slices.IndexFunc(runs, c.mergesWith)
		}
		if i < 0 {
			runs = append(runs, &call{script: c.script, common: c.common, shared: c.shared,
				keys:  append(make([]string, 0, len(calls)), c.keys...),
				items: append(make([]any, 0, len(calls)*len(c.items)), c.items...)})
			members = append(members, []*call{c})
			continue
		}
		runs[i].keys, runs[i].items = append(runs[i].keys, c.keys...), append(runs[i].items, c.items...)
		members[i] = append(members[i], c)
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(calls[0].ctx), last)
	defer cancel()
	runAll(ctx, b.client, runs)
	for i, run := range runs {
		run.splitHead()
		rest := run.answer
		for _, c := range members[i] {
			if c.failure = run.failure; c.failure == nil {
				c.head, c.answer, rest = run.head, rest[:len(c.keys)], rest[len(c.keys):]
			}
		}
	}
}

// runAll makes the calls in one pipeline, or on a Cluster in one pipeline per node, in parallel.
// With a single pipeline, go-redis would discard all answers if one node hangs.
func runAll(ctx context.Context, client redis.UniversalClient, calls []*call) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		pipeline(ctx, client, calls)
		return
	}
	nodes := map[*redis.Client][]*call{}
	for _, c := range calls {
		node, err := cluster.MasterForKey(ctx, c.keys[0])
		if err != nil {
			c.failure = err
			continue
		}
		nodes[node] = append(nodes[node], c)
	}
	var wg sync.WaitGroup
	for _, calls := range nodes {
		wg.Go(func() { pipeline(ctx, client, calls) }) // through the Cluster's client, which follows redirections
	}
	wg.Wait()
}

// pipeline makes the calls in one pipeline.
func pipeline(ctx context.Context, client redis.UniversalClient, calls []*call) {
	if len(calls) == 0 {
		return
	}
	defer func() {
		if p := recover(); p != nil { // panic in a hook of the caller's client
			for _, c := range calls {
				c.answer, c.failure = nil, fmt.Errorf("redislock: the client panicked: %v", p)
			}
		}
	}()
	cmds := make([]*redis.Cmd, len(calls))
	pipe := client.Pipeline()
	for i, c := range calls {
		cmds[i] = pipe.EvalSha(ctx, c.script.Hash(), c.declared(), c.args()...)
	}
	_, err := pipe.Exec(ctx)
	if err != nil {
		pipe = client.Pipeline()
		for i, c := range calls {
			if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
				cmds[i] = pipe.Eval(ctx, c.script.Source, c.declared(), c.args()...)
			}
		}
		if pipe.Len() > 0 {
			_, err = pipe.Exec(ctx)
		}
	}
	for i, c := range calls {
		if cmds[i].Err() == nil && cmds[i].Val() == nil { // no connection could be made
			c.failure = cmp.Or(err, errAnswer)
			continue
		}
		c.answer, c.failure = cmds[i].Slice()
	}
}

var errAnswer = errors.New("redislock: unexpected answer from the server")
