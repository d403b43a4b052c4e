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
	// maxInFlight is how many round trips for acquires and releases a process may have in flight,
	// except on a Cluster. Further calls wait, and are then sent together.
	maxInFlight = 4
	// scriptItems is how many attempts or leases one run of a script handles: a run blocks the
	// server, at this size for a millisecond or two. The rest goes into further runs in the same
	// pipeline. proof/benchmarks/COSTS.md shows how that slows other clients.
	scriptItems = 100
)

// A batcher lets concurrent calls of a process share round trips. While fewer than maxInFlight are
// in flight, a call is sent immediately and alone, so a lone caller loses nothing. Calls that come
// in the meantime wait for one to return, and are then sent in one pipeline. They wait for part of
// a round trip, as they would for a connection, and save the server and the process most of the
// cost of a round trip each. Acquires in one pipeline are one run of the script, which identifies
// the server only once.
//
// A call waits at most until its own deadline. If it gives up, its outcome is unknown, as after any
// lost reply.
type batcher struct {
	client redis.UniversalClient
	limit  int  // of round trips in flight
	merge  bool // the keys of different names may be in one run of a script

	timers sync.Pool // of *time.Timer, for waiting calls

	mu       sync.Mutex
	inFlight int
	waiting  []*call
}

// newBatcher sets no limit on a Cluster: every call is sent alone, because a pipeline returns only
// when the last of its nodes has answered, and one of them may be dead.
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
	common []any    // arguments
	keys   []string // one for each item
	shared []string // further keys to declare
	items  []any    // their arguments

	head    any   // first value of the answer
	answer  []any // one value per item; before splitHead, all that the script returned
	failure error // why there is no answer

	ctx  context.Context // of a caller that waits
	done chan struct{}   // closed when there is an answer, or a failure
}

func (c *call) args() []any { return slices.Concat(c.common, c.items) }

func (c *call) declared() []string { return slices.Concat(c.keys, c.shared) }

// splitHead splits the head from an answer, which must have one more value per item.
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

// do makes one call and returns when it has its answer, or when ctx ends.
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

// A boundedContext says what will end it: a parent, or a time. The context of a Session's acquire
// or release does (dlock's lazyDeadline, which is not exported). The batcher waits for these with a
// timer of its pool; calling Done would allocate a channel and a timer each time.
type boundedContext interface {
	Ends() (parent context.Context, at time.Time)
}

// wait returns nil when done is closed, or why ctx ended before.
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

// takeWaiting takes the calls that wait, for the round trip that has just returned to make next. If
// there are none, that round trip is no longer in flight.
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

// flush sends calls, and then those that have come to wait meanwhile, until none wait.
func (b *batcher) flush(calls []*call) {
	for ; calls != nil; calls = b.takeWaiting() {
		calls = slices.DeleteFunc(calls, func(c *call) bool { return c.ctx.Err() != nil })
		b.send(calls)
		for _, c := range calls {
			close(c.done)
		}
		runtime.Gosched() // lets the callers make their next call
	}
}

// send makes the calls in one pipeline, whose deadline is the latest of theirs. Its context has the
// values of the first one.
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

// runAll makes the calls in one pipeline, or on a Cluster in one per node, concurrently. With a
// single pipeline, go-redis would discard the answers of every node if one of them hangs.
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
		if p := recover(); p != nil { // in a hook of the caller's client
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
