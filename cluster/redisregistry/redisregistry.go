package redisregistry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/rediskit"
)

const (
	// poolSize bounds the store's own connections. The registry makes few calls, but a long answer
	// must not delay a heartbeat.
	poolSize = 3

	// idleExpiry is how long the registry is kept after the last write of any host. It is longer
	// than a month, so that the runs of a monthly timer survive while the fleet is stopped.
	idleExpiry = 40 * 24 * time.Hour
)

// Options are the settings of a Store. They must be the same on every host. The zero value is
// valid.
type Options struct {
	// Prefix is prepended to every key. It separates applications and environments that share a
	// server, and may equal the Prefix of the locks. At most 256 bytes of text, without control
	// characters and without ":slot:". Default "".
	Prefix string
}

// A Store implements cluster.Store on Redis. It is safe for concurrent use. Create it with New.
type Store struct {
	client redis.UniversalClient // the store's own pool, or nil
	keys   []string
	fault  error // in the options
	closed atomic.Bool

	reloaded atomic.Int64 // last reload of the Cluster's map by failed, in ns
}

var _ cluster.Store = (*Store)(nil)

// New returns a registry on the server of client: a *redis.Client, including one from
// redis.NewFailoverClient, or a *redis.ClusterClient. The caller keeps and closes the client. The
// store opens up to three connections of its own, which ignore the client's timeouts and retries. A
// call ends with its context, or after five seconds if the context has no deadline. New does not
// call the server. Check reports faults.
func New(client redis.UniversalClient, opts Options) *Store {
	s := &Store{}
	// The braces keep all keys on one node of a Cluster. The name of a lock cannot contain :slot:,
	// so none of these keys can belong to a lock.
	base := "{" + opts.Prefix + ":slot:registry}:"
	for _, part := range []string{"hosts", "details", "leases", "ends", "events", "order", "runs", "ended", "timers",
		"counted", "records", "ranked", "buckets", "gone"} {
		s.keys = append(s.keys, base+part)
	}
	s.fault = errors.Join(checkClient(client), checkPrefix(opts.Prefix))
	if s.fault == nil {
		s.client = rediskit.OwnPool(client, poolSize)
	}
	return s
}

func checkClient(client redis.UniversalClient) error {
	switch c := client.(type) {
	case *redis.Client:
		if c != nil {
			return nil
		}
	case *redis.ClusterClient:
		if c != nil {
			return nil
		}
	case nil:
	default:
		return fmt.Errorf("redisregistry: a %T: pass a *redis.Client or *redis.ClusterClient, from whose settings "+
			"the store can open connections of its own", c)
	}
	return errors.New("redisregistry: no client: pass a *redis.Client or *redis.ClusterClient")
}

func checkPrefix(prefix string) error {
	if err := rediskit.CheckPrefix(prefix); err != nil {
		return fmt.Errorf("redisregistry: %w", err)
	}
	if strings.HasPrefix(prefix, "}") {
		return fmt.Errorf("redisregistry: Prefix %q begins with a brace, which would spread the keys over a Cluster: "+
			"choose another", prefix)
	}
	return nil
}

// Close closes the store's own connections, but not the caller's client. Call it after Run of the
// Registry has returned. Later calls fail with an error that matches dlock.ErrClosed.
func (s *Store) Close() error {
	if s == nil || s.closed.Swap(true) || s.client == nil {
		return nil
	}
	return s.client.Close()
}

// Check returns the faults of the client and the options without calling the server. All methods
// return these faults.
func (s *Store) Check() error {
	switch {
	case s == nil || s.client == nil && s.fault == nil:
		return fmt.Errorf("redisregistry: %w: an empty *Store: make one with New", dlock.ErrSetup)
	case s.fault != nil:
		return fmt.Errorf("%w: %w", dlock.ErrSetup, s.fault)
	case s.closed.Load():
		return errClosed
	}
	return nil
}

var errClosed = fmt.Errorf("redisregistry: %w", dlock.ErrClosed)

func (s *Store) String() string { return "redis" }

// Write implements cluster.Store.
func (s *Store) Write(ctx context.Context, b cluster.Batch) (cluster.Written, error) {
	if n := max(len(b.Leases), len(b.Events), len(b.Runs)); n > cluster.MaxBatch {
		return cluster.Written{}, fmt.Errorf("redisregistry: a batch of %d rows of one sort: at most %d", n,
			cluster.MaxBatch)
	}
	reply, err := s.call(ctx, writeScript, writeArgs(b)...)
	if err != nil {
		return cluster.Written{}, err
	}
	if len(reply) != 2 {
		return cluster.Written{}, errReply
	}
	now, err := instant(reply[0])
	if err != nil {
		return cluster.Written{}, err
	}
	return cluster.Written{At: time.UnixMicro(now), HostUnknown: reply[1] == int64(1)}, nil
}

// Read implements cluster.Store.
func (s *Store) Read(ctx context.Context, q cluster.Query) (cluster.Rows, error) {
	reply, err := s.call(ctx, readScript, min(max(q.Events, 0), cluster.MaxEvents), max(q.Runs, 0), max(q.Timers, 0))
	if err != nil {
		return cluster.Rows{}, err
	}
	return parseRows(reply)
}

// Runs implements cluster.Store.
func (s *Store) Runs(ctx context.Context, timer string) ([]cluster.Run, error) {
	reply, err := s.call(ctx, runsScript, timerKey(timer), cluster.RunsPerTimer)
	if err != nil {
		return nil, err
	}
	if len(reply) != 2 {
		return nil, errReply
	}
	now, err := instant(reply[0])
	if err != nil {
		return nil, err
	}
	return parseRuns(reply[1], now), nil
}

// Buckets implements cluster.Store.
func (s *Store) Buckets(ctx context.Context, timer string) ([]cluster.Bucket, error) {
	args := []any{timerKey(timer)}
	for _, k := range spans {
		args = append(args, k.letter, k.span.Microseconds(), int64(k.keep/k.span)+1)
	}
	reply, err := s.call(ctx, bucketsScript, args...)
	if err != nil {
		return nil, err
	}
	if len(reply) != 2 {
		return nil, errReply
	}
	now, err := instant(reply[0])
	if err != nil {
		return nil, err
	}
	return parseBuckets(timer, reply[1], now), nil
}

// Sweep implements cluster.Store.
func (s *Store) Sweep(ctx context.Context, r cluster.Retention, limit int) (deleted int, err error) {
	if err := s.ready(ctx); err != nil || limit <= 0 { // Redis treats a limit of 0 as no limit
		return 0, err
	}
	reply, err := s.call(ctx, sweepScript, limit, micros(r.Hosts), micros(r.Leases), micros(r.Events), micros(r.Runs))
	if err != nil {
		return 0, err
	}
	if len(reply) != 1 {
		return 0, errReply
	}
	n, ok := reply[0].(int64)
	if !ok {
		return 0, errReply
	}
	return int(n), nil
}

// ready returns an error if the options are faulty or the store is closed.
func (s *Store) ready(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	return ctx.Err()
}

func (s *Store) call(ctx context.Context, script *rediskit.Script, args ...any) ([]any, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	reply, err := script.Run(ctx, s.client, s.keys, args...).Slice()
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return reply, nil
}

// reloadEvery is the minimum interval between two reloads of a Cluster's map while calls fail. A
// large Cluster serves many processes, and the map is large.
const reloadEvery = time.Second

// failed classifies an error of the driver. On a Cluster it also reloads the map of nodes. Without
// that, go-redis would call a dead master until its next periodic reload.
func (s *Store) failed(ctx context.Context, err error) error {
	c, isCluster := s.client.(*redis.ClusterClient)
	if isCluster {
		now, last := time.Now().UnixNano(), s.reloaded.Load()
		if now-last >= int64(reloadEvery) && s.reloaded.CompareAndSwap(last, now) {
			c.ReloadState(context.WithoutCancel(ctx))
		}
	}
	return classify(err, !isCluster)
}

// classify adds dlock.ErrSetup to an error that persists on every host until it is repaired: a
// missing permission, or a foreign key. Transient errors do not get it: no connection, no answer in
// time, READONLY, OOM, LOADING, BUSY, MASTERDOWN, CLUSTERDOWN, TRYAGAIN.
func classify(err error, direct bool) error {
	said := rediskit.Said(err)
	if fix := rediskit.Refusal(said, direct, true); fix != "" {
		return fmt.Errorf("redisregistry: %w: %s: %w", dlock.ErrSetup, fix, err)
	}
	if strings.HasPrefix(said, "WRONGTYPE") {
		return fmt.Errorf("redisregistry: %w: a key of the registry holds another type of value (the documentation "+
			"of package redisregistry lists the keys): choose another Prefix, or delete it: %w", dlock.ErrSetup, err)
	}
	return fmt.Errorf("redisregistry: %w", err)
}
