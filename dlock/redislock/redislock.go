package redislock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/rediskit"
	"github.com/tickslot/tickslot/internal/startlog"
)

// defaultQuarantineTTL is the default of Options.QuarantineTTL.
const defaultQuarantineTTL = 30 * time.Second

const (
	// longRetention is how long an unused name that had ticks or overrides is remembered. It is
	// longer than a month, so that a monthly timer that missed a tick is still known to have had
	// one before.
	longRetention = 40 * 24 * time.Hour
	// shortRetention is how long any other unused name is remembered. It may be up to a quarter
	// shorter, because not every grant extends it. See Store.retention.
	shortRetention = time.Hour
)

// Options are the settings of a Store. They must be the same on every host. The zero value is
// valid.
type Options struct {
	// Prefix is put before every key. It separates applications and environments on one server. No
	// prefix may begin with another prefix: "shop:" with the name "eu:sync" is the same lock as
	// "shop:eu:" with "sync". At most 256 bytes of text without control characters and without
	// ":slot:". Default "".
	Prefix string
	// Keys is the form of the keys. KeysAuto uses hash tags for a *redis.ClusterClient and plain
	// keys for any other client. Default KeysAuto.
	Keys KeyForm
	// QuarantineTTL is the maximum TTL of the store and the time after a restart in which a server
	// grants nothing. NewFailover adds 1 s to the latter. 1 ms to 24 h. Default 30 s.
	QuarantineTTL time.Duration
	// NoQuarantine is for services whose scripts may not call INFO (docs/redis.md lists them). The
	// store then detects neither a restart that loses data nor a failover that loses the last
	// writes. It may grant slots that other hosts still hold. A limit can be exceeded until the old
	// holders' next heartbeat, at most a third of the TTL later, or for a TTL if that heartbeat
	// fails. The same applies to names whose Cluster slot is being moved. Default false.
	NoQuarantine bool
	// Embedded says that the server (miniredis) runs within this process and ends with it, so that
	// no quarantine is needed. Then QuarantineTTL does not limit the TTL. Default false.
	Embedded bool
	// PoolSize is the number of connections that the store opens (on a Cluster, to each node). It
	// has no effect with SharedPool. Default 10.
	PoolSize int
	// SharedPool makes the store use the client's connections instead of its own. The client's
	// timeouts, retries and pool then determine whether heartbeats arrive in time: set
	// ContextTimeoutEnabled, MaxRetries -1, DialerRetries 1 and, on a Cluster,
	// DisableRoutingPolicies. A missing password or a server in protected mode then looks like an
	// outage (EOF) and does not match driver.ErrSetup, because go-redis ignores that the server
	// refused its HELLO. NewFailover refuses SharedPool. Default false.
	SharedPool bool
}

// Store implements driver.Store on Redis.
type Store struct {
	client     redis.UniversalClient
	batcher    *batcher
	own        bool     // the store opened client, and Close closes it
	masters    *masters // nil without Sentinel
	prefix     string
	tagged     bool
	quarantine time.Duration
	fault      error // fault of the options
	closed     atomic.Bool

	noQuarantine bool // do not detect restarts
	acquires     atomic.Pointer[acquireArgs]
	reloaded     atomic.Int64     // when classifyError last reloaded the Cluster's map, in ns
	hostClock    func() time.Time // nil for time.Now
}

// New returns a store on the servers of client. The caller keeps and closes the client. New does
// not call the servers, so it works while they are down. Check reports faults of the options;
// dlock.NewSession and timer.New call it.
func New(client redis.UniversalClient, opts Options) *Store {
	_, cluster := client.(*redis.ClusterClient)
	s := &Store{
		client:     client,
		prefix:     opts.Prefix,
		tagged:     opts.Keys == KeysTagged || opts.Keys == KeysAuto && cluster,
		quarantine: opts.QuarantineTTL,
	}
	var faults []error
	if err := checkClient(client, opts.SharedPool); err != nil {
		faults = append(faults, err)
	}
	if err := rediskit.CheckPrefix(opts.Prefix); err != nil {
		faults = append(faults, fmt.Errorf("redislock: %w", err))
	}
	if opts.Keys > KeysTagged {
		faults = append(faults, fmt.Errorf("redislock: Keys %d: use KeysAuto, KeysPlain or KeysTagged", opts.Keys))
	}
	if s.tagged && strings.HasPrefix(opts.Prefix, "}") {
		faults = append(faults,
			fmt.Errorf("redislock: Prefix %q begins with a brace, which would spread the keys of a name over the "+
				"Cluster: choose another", opts.Prefix))
	}
	if cluster && opts.Keys == KeysPlain {
		faults = append(faults,
			errors.New("redislock: KeysPlain on a Redis Cluster: its scripts need the keys of a name on one node, "+
				"use KeysAuto"))
	}
	if q := opts.QuarantineTTL; q < 0 || q > 0 && q < time.Millisecond || q > driver.MaxTTL {
		faults = append(faults, fmt.Errorf("redislock: QuarantineTTL %v: must be 1ms to %v, or 0 for %v", q,
			driver.MaxTTL, defaultQuarantineTTL))
	}
	if err := rediskit.CheckPoolSize(opts.PoolSize); err != nil {
		faults = append(faults, fmt.Errorf("redislock: %w", err))
	}
	s.fault = errors.Join(faults...)
	if s.quarantine == 0 {
		s.quarantine = defaultQuarantineTTL
	}
	if opts.Embedded {
		s.quarantine = 0
	}
	s.noQuarantine = opts.NoQuarantine
	size := 0
	if s.fault == nil && !opts.SharedPool {
		size = cmp.Or(opts.PoolSize, rediskit.DefaultPoolSize)
		if pool := rediskit.OwnPool(client, size); pool != nil {
			s.client, s.own = pool, true
		}
	}
	s.batcher = newBatcher(s.client, size, !s.tagged)
	return s
}

// checkClient returns an error if the store cannot use the client.
func checkClient(client redis.UniversalClient, shared bool) error {
	switch c := client.(type) {
	case *redis.Client:
		if c != nil && c.Options().Addr == rediskit.FailoverAddr {
			return errFailoverClient
		}
		if c != nil {
			return nil
		}
	case *redis.ClusterClient:
		if c != nil {
			return nil
		}
	case nil:
	case *redis.Ring:
		return errors.New("redislock: a *redis.Ring moves keys to another server when one is down, where they are " +
			"free: pass a *redis.Client, or one each to redlock.New")
	case *redis.AutoPipeliner:
		return errors.New("redislock: a *redis.AutoPipeliner does not end a call at its deadline: " +
			"pass the client that it was made from")
	default:
		if shared {
			return nil
		}
		return fmt.Errorf("redislock: a %T does not tell its settings, so the store cannot open connections of "+
			"its own: pass a *redis.Client or *redis.ClusterClient, or set SharedPool", c)
	}
	return errors.New("redislock: no client: pass a *redis.Client or *redis.ClusterClient")
}

// Close closes the connections that the store opened, never those of the caller's client. Call it
// after everything that uses the store has ended. Later calls return an error that matches
// driver.ErrClosed.
func (s *Store) Close() error {
	if s == nil || s.closed.Swap(true) {
		return nil
	}
	if s.masters != nil {
		s.masters.close()
	}
	if !s.own {
		return nil
	}
	return s.client.Close()
}

// Check implements driver.Checker. It returns the faults of the options. All other methods return
// them, too.
func (s *Store) Check() error {
	switch {
	case s == nil || s.client == nil && s.fault == nil:
		return fmt.Errorf("redislock: %w: an empty *Store: make one with New", driver.ErrSetup)
	case s.fault != nil:
		return fmt.Errorf("%w: %w", driver.ErrSetup, s.fault)
	case s.closed.Load():
		return errClosed
	}
	return nil
}

var errClosed = fmt.Errorf("redislock: %w", driver.ErrClosed)

// MaxTTL implements driver.TTLBounder.
func (s *Store) MaxTTL() time.Duration {
	if s == nil || s.quarantine == 0 {
		return driver.MaxTTL
	}
	return s.quarantine
}

// Shard implements driver.Sharder. On a Cluster, it returns the address of the name's master from
// go-redis' map of the nodes.
func (s *Store) Shard(name string) string {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	key := s.state(name, true) // the part in braces decides and is the same for a semaphore
	node, err := cluster.MasterForKey(endedContext, key)
	if err != nil {
		return "" // there is no map yet
	}
	return node.Options().Addr
}

// endedContext makes a lookup fail immediately if it would call a server.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (s *Store) String() string { return "redis" }

// TryAcquire implements driver.Store.
func (s *Store) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.check(req); err != nil {
		return driver.Grant{}, err
	}
	claim := ""
	switch t := req.Tick; {
	case t == nil:
	case t.Delay > 0:
		claim = fmt.Sprintf("after %d %d", (t.Delay+time.Microsecond-1)/time.Microsecond, t.Schedule)
	default:
		missed := int64(0)
		if !t.MissedAt.IsZero() {
			missed = t.MissedAt.UnixMicro()
		}
		var room [4 * 21]byte
		b := strconv.AppendInt(room[:0], t.At.UnixMicro(), 10)
		for _, n := range [...]int64{int64(t.Max), missed, t.Schedule} {
			b = strconv.AppendInt(append(b, ' '), n, 10)
		}
		claim = string(b)
	}
	c := &call{script: acquireScript, common: s.acquireArgs(req), keys: []string{s.state(req.Name, req.Slots == 0)},
		items: []any{req.Token, strconv.Itoa(req.Slots), claim}}
	if len(req.Shared) > 0 {
		sizes := strconv.Itoa(req.Slots)
		for _, l := range req.Shared {
			c.shared = append(c.shared, s.state(l.Name, false))
			sizes += " " + strconv.Itoa(l.Slots)
			if l.Rate > 0 {
				sizes += fmt.Sprintf("/%d/%d", l.Rate, startlog.Micros(l.Per))
			}
		}
		c.items[1] = sizes
	}
	if err := s.batcher.do(ctx, c); err != nil {
		return driver.Grant{}, s.classifyError(ctx, err)
	}
	grant, err := parseAcquire(req, number(c.head), c.answer[0])
	if err != nil && !errors.Is(err, driver.ErrNotAcquired) {
		err = s.classifyError(ctx, err)
	}
	return grant, err
}

// List implements driver.Lister.
func (s *Store) List(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if err := driver.CheckName(name); err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	k := s.keys(name, slots == 0)
	answer, err := listScript.Run(ctx, s.client, []string{cmp.Or(k.index, k.state)}, k.base, min(slots, 1)).Slice()
	if err != nil {
		return nil, s.classifyError(ctx, err)
	}
	return parseList(name, slots == 0, answer)
}

func (s *Store) check(req driver.Request) error {
	if err := s.Check(); err != nil {
		return err
	}
	if err := req.Validate(); err != nil {
		return err
	}
	if req.TTL > s.MaxTTL() {
		return fmt.Errorf("redislock: a TTL of %v: at most %v (QuarantineTTL)", req.TTL, s.MaxTTL())
	}
	if len(req.Shared) == 0 {
		return s.checkKey(req.Name)
	}
	shared := make([]string, len(req.Shared))
	for i, l := range req.Shared {
		shared[i] = l.Name
	}
	return s.CheckShared(req.Name, shared...)
}

// reloadEvery is the minimum interval between a process's reloads of a Cluster's map while calls
// fail. A large Cluster has many client processes, and the map is long.
const reloadEvery = time.Second

// classifyError converts an error of the driver to an error of package driver. On the store's own
// Cluster client, it also reloads the map of the nodes, because go-redis would otherwise call a
// dead master until its next periodic reload. It does not reload a shared client's map, because the
// client belongs to the caller.
func (s *Store) classifyError(ctx context.Context, err error) error {
	if c, ok := s.client.(*redis.ClusterClient); ok && s.own {
		now, last := time.Now().UnixNano(), s.reloaded.Load()
		if now-last >= int64(reloadEvery) && s.reloaded.CompareAndSwap(last, now) {
			c.ReloadState(context.WithoutCancel(ctx))
		}
	}
	_, direct := s.client.(*redis.Client)
	return classify(err, direct, s.tagged)
}

// retention returns how long a name without ticks and overrides is remembered. It is longer than
// every lease, even one that is not renewed.
func (s *Store) retention() time.Duration { return max(shortRetention, 4*s.MaxTTL()) }

// acquireArgs are the arguments that are the same for all attempts of a session.
type acquireArgs struct {
	holder driver.Holder
	ttl    time.Duration
	args   []any
}

func (s *Store) acquireArgs(req driver.Request) []any {
	if c := s.acquires.Load(); c != nil && c.holder == req.Holder && c.ttl == req.TTL {
		return c.args
	}
	quarantine, epoch := s.quarantine, any("")
	if s.masters != nil {
		epoch = s.masters
		if quarantine > 0 {
			quarantine += masterTrusted
		}
	}
	if s.noQuarantine {
		quarantine = 0
	}
	args := []any{rediskit.Millis(quarantine), rediskit.Millis(longRetention), rediskit.Millis(s.retention()),
		driver.MaxTickAhead.Microseconds(), s.form(), s.serverKey(), rediskit.Millis(req.TTL),
		holderJSON(req.Holder), epoch, s.sharedKeys()}
	s.acquires.Store(&acquireArgs{holder: req.Holder, ttl: req.TTL, args: args})
	return args
}

// holderJSON returns the part of a stored lease that describes the holder.
func holderJSON(h driver.Holder) string {
	b, err := json.Marshal(struct {
		Host string `json:"host"`
		PID  int    `json:"pid"`
		ID   string `json:"id"`
	}(h))
	if err != nil { // marshaling strings and numbers cannot fail
		return `"host":""`
	}
	return string(bytes.Trim(b, "{}"))
}
