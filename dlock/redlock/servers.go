package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/rediskit"
)

// This file is about the servers of a quorum: what they have, what they answer, and how long they
// are waited for.

// sight is how many of the servers that answered have a key for the token, and for others.
type sight struct{ ours, others int }

// look reads the keys. It returns when a majority of the servers has answered, so that one that
// hangs costs nothing, or, if everyone is wanted, when each has answered or failed.
func (s *Store) look(ctx context.Context, patience time.Duration, everyone bool, keys []string, token string) ([]sight, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type answer struct {
		node   int
		values []any
		err    error
	}
	answers := make(chan answer, len(s.clients))
	for i, client := range s.clients {
		go func() {
			values, err := client.MGet(ctx, keys...).Result()
			if err == nil && len(values) != len(keys) {
				err = errAnswer
			}
			answers <- answer{i, values, err}
		}()
	}
	seen := make([]sight, len(keys))
	var errs []error
	good := 0
	for range s.clients {
		a := <-answers
		if a.err != nil {
			errs = append(errs, &redsync.RedisError{Node: a.node, Err: a.err})
			continue
		}
		for i, value := range a.values {
			switch value {
			case nil:
			case token:
				seen[i].ours++
			default:
				seen[i].others++
			}
		}
		if good++; good >= s.majority() && !everyone {
			return seen, nil
		}
	}
	if good < s.majority() {
		return nil, s.undecided(errors.Join(errs...))
	}
	return seen, nil
}

// refused counts the servers that answered, and said that the key is not ours.
func refused(err error) int {
	if taken, ok := err.(*redsync.ErrTaken); ok {
		return len(taken.Nodes)
	}
	if _, ok := err.(*redsync.ErrNodeTaken); ok || err == redsync.ErrLockAlreadyExpired {
		return 1
	}
	n := 0
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // errors.As would find one of them
		for _, err := range joined.Unwrap() {
			n += refused(err)
		}
	}
	return n
}

// undecided is the error when neither yes nor no has a majority. If one could answer, were it not
// for servers that refuse everybody, somebody has to mend those.
func (s *Store) undecided(err error) error {
	failed, refusing, mend := 0, 0, ""
	for _, err := range leaves(err) {
		if what := rediskit.Refuses(err); what != "" {
			refusing, mend = refusing+1, what
		} else if refused(err) == 0 {
			failed++
		}
	}
	err = &undecidedError{len(s.pools), err}
	if refusing > 0 && len(s.pools)-failed >= s.majority() {
		return fmt.Errorf("redlock: %w: %d of %d servers: %s: %w", dlock.ErrSetup, refusing, len(s.pools), mend, err)
	}
	return err
}

// leaves are the errors that were joined into one.
func leaves(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, leaves(err)...)
	}
	return all
}

type undecidedError struct {
	servers int
	err     error
}

func (e *undecidedError) Error() string {
	return fmt.Sprintf("redlock: no majority of %d servers: %s", e.servers, strings.ReplaceAll(e.err.Error(), "\n", "; "))
}

func (e *undecidedError) Unwrap() error { return e.err }

// mutex returns redsync's mutex of one key. Redlock takes one percent off a lease for the drift of
// clocks; here it is what a dlock.Session takes off, which is more: a tenth, at most a second. A
// majority that comes too late for the session is then none for redsync either.
func (s *Store) mutex(key, token string, ttl time.Duration, nodes []redsyncredis.Pool, options ...redsync.Option) *redsync.Mutex {
	ttl = time.Duration(rediskit.Millis(ttl)) * time.Millisecond
	drift := 0.1
	if ttl > 10*time.Second {
		drift = float64(time.Second) / float64(ttl)
	}
	options = append(options, redsync.WithValue(token), redsync.WithExpiry(ttl), redsync.WithDriftFactor(drift))
	return redsync.New(nodes...).NewMutex(key, options...)
}

// nodes returns the servers for one operation of redsync, which sets no time-out for Extend and
// Unlock.
func (s *Store) nodes(patience time.Duration, hung *hung) []redsyncredis.Pool {
	nodes := make([]redsyncredis.Pool, len(s.pools))
	for i, pool := range s.pools {
		nodes[i] = &node{Pool: pool, number: i, patience: patience, hung: hung}
	}
	return nodes
}

// A node is a server that has so long to answer, and remembers if it said that it has not got the
// key.
type node struct {
	redsyncredis.Pool
	number   int
	patience time.Duration
	hung     *hung // may be nil
	lacks    atomic.Bool
}

func (n *node) Get(ctx context.Context) (redsyncredis.Conn, error) {
	if n.hung.is(n.number) {
		return nil, errHung
	}
	ctx, cancel := context.WithTimeout(ctx, n.patience)
	conn, err := n.Pool.Get(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	return &nodeConn{conn, n, ctx, cancel}, nil
}

type nodeConn struct {
	redsyncredis.Conn
	node   *node
	ctx    context.Context
	cancel context.CancelFunc
}

// Eval is what redsync extends and releases with.
func (c *nodeConn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	answer, err := c.Conn.Eval(script, keysAndArgs...)
	if err != nil && c.ctx.Err() != nil {
		c.node.hung.note(c.node.number)
	}
	if err == nil && answer != int64(1) {
		c.node.lacks.Store(true)
	}
	return answer, err
}

func (c *nodeConn) Close() error {
	c.cancel()
	return c.Conn.Close()
}

var errHung = errors.New("did not answer for another lease")

// hung are the servers that are not asked again during one call, lest each of 500 leases waits for
// them. They are a minority, however slow everything is.
type hung struct {
	mu   sync.Mutex
	most int
	who  []bool
}

func (h *hung) is(n int) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.who[n]
}

func (h *hung) note(n int) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.who[n] && h.most > 0 {
		h.most--
		h.who[n] = true
	}
}

var errAnswer = errors.New("redlock: the server's answer makes no sense")
