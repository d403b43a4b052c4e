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

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/rediskit"
)

// This file handles single servers: which keys they hold, their answers, and how long to wait for
// them.

// sight counts the servers that hold a key for the token and for other tokens.
type sight struct{ ours, others int }

// look reads the keys. Without everyone, it returns when a majority of the servers has answered, so
// a server that hangs costs no time. With everyone, it returns when each server has answered or
// failed.
func (s *Store) look(ctx context.Context, patience time.Duration, everyone bool, keys []string, token string) ([]sight,
	error) {
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

// refused returns the number of servers that answered that the token does not hold the key.
func refused(err error) int {
	if taken, ok := err.(*redsync.ErrTaken); ok {
		return len(taken.Nodes)
	}
	if _, ok := err.(*redsync.ErrNodeTaken); ok || err == redsync.ErrLockAlreadyExpired {
		return 1
	}
	n := 0
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // errors.As would find only one of them
		for _, err := range joined.Unwrap() {
			n += refused(err)
		}
	}
	return n
}

// undecided returns the error for a request without a majority for yes or no. Some servers refuse
// every request until an operator repairs them. If only they prevent a majority, the error is
// driver.ErrSetup.
func (s *Store) undecided(err error) error {
	failed, refusing, fix := 0, 0, ""
	for _, err := range leaves(err) {
		if what := rediskit.Refuses(err); what != "" {
			refusing, fix = refusing+1, what
		} else if refused(err) == 0 {
			failed++
		}
	}
	err = &undecidedError{len(s.pools), err}
	if refusing > 0 && len(s.pools)-failed >= s.majority() {
		return fmt.Errorf("redlock: %w: %d of %d servers: %s: %w", driver.ErrSetup, refusing, len(s.pools), fix, err)
	}
	return err
}

// leaves returns the single errors of a joined error.
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

func (u *undecidedError) Error() string {
	return fmt.Sprintf("redlock: no majority of %d servers: %s", u.servers,
		strings.ReplaceAll(u.err.Error(), "\n", "; "))
}

func (u *undecidedError) Unwrap() error { return u.err }

// mutex returns redsync's mutex for one key. For clock drift, Redlock deducts one percent of the
// TTL. This mutex deducts as much as a dlock.Session, a tenth but at most a second, which is more.
// So redsync also rejects a majority that comes too late for the session.
func (s *Store) mutex(key, token string, ttl time.Duration, nodes []redsyncredis.Pool,
	options ...redsync.Option) *redsync.Mutex {
	ttl = time.Duration(rediskit.Millis(ttl)) * time.Millisecond
	drift := 0.1
	if ttl > 10*time.Second {
		drift = float64(time.Second) / float64(ttl)
	}
	options = append(options, redsync.WithValue(token), redsync.WithExpiry(ttl), redsync.WithDriftFactor(drift))
	return redsync.New(nodes...).NewMutex(key, options...)
}

// nodes returns the servers for one redsync operation, each with a timeout, because redsync sets
// none for Extend and Unlock.
func (s *Store) nodes(patience time.Duration, hung *hung) []redsyncredis.Pool {
	nodes := make([]redsyncredis.Pool, len(s.pools))
	for i, pool := range s.pools {
		nodes[i] = &node{Pool: pool, number: i, patience: patience, hung: hung}
	}
	return nodes
}

// A node is a server with a timeout. It records whether the server answered that it does not hold
// the key.
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

// Eval is the method with which redsync extends and releases.
func (n *nodeConn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	answer, err := n.Conn.Eval(script, keysAndArgs...)
	if err != nil && n.ctx.Err() != nil {
		n.node.hung.note(n.node.number)
	}
	if err == nil && answer != int64(1) {
		n.node.lacks.Store(true)
	}
	return answer, err
}

func (n *nodeConn) Close() error {
	n.cancel()
	return n.Conn.Close()
}

var errHung = errors.New("did not answer for another lease")

// hung holds the servers that this call skips because they hang. Otherwise each of 500 leases could
// wait for them. It never holds more than a minority, even if all servers are slow.
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

var errAnswer = errors.New("redlock: unexpected answer from the server")
