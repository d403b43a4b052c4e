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

	"github.com/tickslot/tickslot/dlock"
)

// DefaultQuarantineTTL is the longest lease accepted unless Options say otherwise, and how long a server that
// restarted grants nothing.
const DefaultQuarantineTTL = 30 * time.Second

// idle is how long what belongs to an unused name is kept: longer than a month, so that a monthly timer which missed a tick is known to have had one before.
const idle = 40 * 24 * time.Hour

// Options are the settings of a Store. They must be the same on every host. The zero value is fine.
type Options struct {
	// Prefix stands before every key, to keep applications and environments on one server apart. Default "".
	Prefix string
	// Keys is the form of the keys. Default Auto.
	Keys KeyForm
	// QuarantineTTL is the longest TTL accepted, and how long a server that has restarted grants nothing.
	// Default 30 s.
	QuarantineTTL time.Duration
	// Embedded says that the server lives and dies with this process (miniredis), so that there is nothing to
	// quarantine. It also lifts the bound on the TTL. Default false.
	Embedded bool
	// PoolSize is the size of the store's own connection pool. Default 10.
	PoolSize int
	// SharedPool uses the connections of the client itself. Its own time-outs, retries and pool then decide whether
	// heartbeats arrive in time: set ContextTimeoutEnabled, MaxRetries -1 and DialerRetries 1. Default false.
	SharedPool bool
}

// Store implements dlock.DistributedLock on Redis.
type Store struct {
	client     redis.UniversalClient
	own        bool // client is our pool, to be closed
	prefix     string
	tagged     bool
	reachOther bool // whether a script can see the keys in the other form
	quarantine time.Duration
	fault      error
	holder     atomic.Pointer[holderJSON]
	hostClock  func() time.Time // nil: time.Now
}

// New returns a store on the server, or servers, of client, which stays the caller's to close. It does not call
// the server, so it works while that is down. Faults of the options are reported by Check, which
// dlock.NewSession and timer.New call.
func New(client redis.UniversalClient, opts Options) *Store {
	_, cluster := client.(*redis.ClusterClient)
	s := &Store{
		client:     client,
		prefix:     opts.Prefix,
		tagged:     opts.Keys == Tagged || opts.Keys == Auto && cluster,
		reachOther: !cluster,
		quarantine: opts.QuarantineTTL,
	}
	var faults []error
	if err := checkClient(client, opts.SharedPool); err != nil {
		faults = append(faults, err)
	}
	if err := checkPrefix(opts.Prefix); err != nil {
		faults = append(faults, err)
	}
	if opts.Keys > Tagged {
		faults = append(faults, fmt.Errorf("redislock: Keys %d: use Auto, Plain or Tagged", opts.Keys))
	}
	if s.tagged && strings.HasPrefix(opts.Prefix, "}") {
		faults = append(faults, fmt.Errorf("redislock: Prefix %q begins with a brace, which would spread the keys of a name over the Cluster: choose another", opts.Prefix))
	}
	if cluster && opts.Keys == Plain {
		faults = append(faults, errors.New("redislock: Keys Plain on a Redis Cluster: its scripts need the keys of a name on one node, use Auto"))
	}
	if q := opts.QuarantineTTL; q < 0 || q > 0 && q < time.Millisecond || q > dlock.MaxTTL {
		faults = append(faults, fmt.Errorf("redislock: QuarantineTTL %v: must be 1ms to %v, or 0 for %v", q, dlock.MaxTTL, DefaultQuarantineTTL))
	}
	if opts.PoolSize < 0 {
		faults = append(faults, fmt.Errorf("redislock: PoolSize %d: must be positive, or 0 for %d", opts.PoolSize, defaultPoolSize))
	}
	s.fault = errors.Join(faults...)
	if s.quarantine == 0 {
		s.quarantine = DefaultQuarantineTTL
	}
	if opts.Embedded {
		s.quarantine = 0
	}
	if s.fault == nil && !opts.SharedPool {
		size := opts.PoolSize
		if size == 0 {
			size = defaultPoolSize
		}
		if pool := ownPool(client, size); pool != nil {
			s.client, s.own = pool, true
		}
	}
	return s
}

// checkClient finds fault with a client that the store cannot stand on.
func checkClient(client redis.UniversalClient, shared bool) error {
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
	case *redis.Ring:
		return errors.New("redislock: a *redis.Ring moves keys to another server when one is down, where they are free: pass a *redis.Client, or one each to NewQuorum")
	default:
		if shared {
			return nil
		}
		return fmt.Errorf("redislock: a %T does not tell its settings, so the store cannot open connections of its own: pass a *redis.Client or *redis.ClusterClient, or set SharedPool", c)
	}
	return errors.New("redislock: no client: pass a *redis.Client or *redis.ClusterClient")
}

// Close closes the store's own connections, never those of the client it was made from.
func (s *Store) Close() error {
	if !s.own {
		return nil
	}
	return s.client.Close()
}

// Check implements dlock.Checker: it returns the faults of the options.
func (s *Store) Check() error {
	if s == nil || s.client == nil && s.fault == nil {
		return errors.New("redislock: an empty *Store: make one with New")
	}
	return s.fault
}

// MaxTTL implements dlock.TTLBounder.
func (s *Store) MaxTTL() time.Duration {
	if s == nil || s.quarantine == 0 {
		return dlock.MaxTTL
	}
	return s.quarantine
}

func (s *Store) String() string { return "redis" }

// TryAcquire implements dlock.DistributedLock.
func (s *Store) TryAcquire(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
	if err := s.check(req); err != nil {
		return dlock.Grant{}, err
	}
	k := s.keys(req.Name, req.Slots == 0)
	other, form := s.form(k)
	tick, most, missed := "", 0, 0
	if req.Tick != nil {
		tick, most = strconv.FormatInt(req.Tick.At.UnixMicro(), 10), req.Tick.Max
		if req.Tick.Missed {
			missed = 1
		}
	}
	answer, err := acquireScript.Run(ctx, s.client, []string{k.state, k.index, k.tokens},
		k.base, req.Slots, req.Token, millis(req.TTL), s.holderJSON(req.Holder), tick, most,
		millis(s.quarantine), other, millis(idle), dlock.MaxTickAhead.Microseconds(), form, missed).Slice()
	if err != nil {
		return dlock.Grant{}, s.failed(ctx, err)
	}
	return parseAcquire(req, answer)
}

// Extend implements dlock.DistributedLock.
func (s *Store) Extend(ctx context.Context, ttl time.Duration, grants ...dlock.Grant) ([]dlock.Result, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	if ttl < time.Millisecond || ttl > s.MaxTTL() {
		return nil, fmt.Errorf("redislock: a TTL of %v: must be 1ms to %v (QuarantineTTL)", ttl, s.MaxTTL())
	}
	return s.each(ctx, extendScript, grants, extendArgs, millis(ttl), millis(idle))
}

// Release implements dlock.DistributedLock.
func (s *Store) Release(ctx context.Context, grants ...dlock.Grant) ([]dlock.Result, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	return s.each(ctx, releaseScript, grants, releaseArgs, millis(idle))
}

// A grant, as the scripts take it.
func extendArgs(args []any, g dlock.Grant) []any { return append(args, g.Slot, g.Token) }

func releaseArgs(args []any, g dlock.Grant) []any {
	succeeded := 0
	if g.Succeeded {
		succeeded = 1
	}
	return append(args, g.Slot, g.Token, succeeded)
}

// each runs the script once per name, all in one pipeline, and puts the answers in the order of the grants. of appends a grant to the arguments.
func (s *Store) each(ctx context.Context, script script, grants []dlock.Grant, of func([]any, dlock.Grant) []any, args ...any) ([]dlock.Result, error) {
	type lock struct {
		name  string
		mutex bool
	}
	type group struct {
		call
		members []int
	}
	groups := make(map[lock]*group, len(grants))
	calls := make([]*call, 0, len(grants))
	results := make([]dlock.Result, len(grants))
	for i, g := range grants {
		if err := checkGrant(g); err != nil {
			return nil, err
		}
		id := lock{g.Name, g.Slots == 0}
		gr := groups[id]
		if gr == nil {
			k := s.keys(id.name, id.mutex)
			gr = &group{call: call{keys: []string{k.state, k.index, k.tokens}}}
			gr.args = append(append(gr.args, k.base, min(g.Slots, 1)), args...)
			groups[id] = gr
			calls = append(calls, &gr.call)
		}
		gr.args = of(gr.args, g)
		gr.members = append(gr.members, i)
	}
	unmade := script.runAll(ctx, s.client, calls)

	var failures []error
	for _, gr := range groups {
		answer, err := gr.cmd.Slice()
		if gr.cmd.Err() == nil && gr.cmd.Val() == nil {
			err = cmp.Or(unmade, errAnswer)
		}
		if err == nil {
			err = parseEach(answer, gr.members, results)
		}
		if err != nil {
			err = s.failed(ctx, err)
			failures = append(failures, err)
			for _, i := range gr.members {
				results[i] = dlock.Result{Err: err}
			}
		}
	}
	if len(failures) > 0 && len(failures) == len(groups) {
		return nil, failures[0]
	}
	return results, nil
}

// List implements dlock.Lister.
func (s *Store) List(ctx context.Context, name string, slots int) ([]dlock.Held, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	if err := dlock.CheckName(name); err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	k := s.keys(name, slots == 0)
	answer, err := listScript.Run(ctx, s.client, []string{k.index}, k.base, min(slots, 1)).Slice()
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return parseList(name, answer)
}

func (s *Store) check(req dlock.Request) error {
	if s.fault != nil {
		return s.fault
	}
	if err := req.Validate(); err != nil {
		return err
	}
	if req.TTL > s.MaxTTL() {
		return fmt.Errorf("redislock: a TTL of %v: at most %v (QuarantineTTL)", req.TTL, s.MaxTTL())
	}
	return s.checkKey(req.Name)
}

// A token goes into a script's comparison: it must be what Request.Validate lets pass.
func checkGrant(g dlock.Grant) error {
	return dlock.Request{Name: g.Name, Slots: g.Slots, Token: g.Token, TTL: time.Second}.Validate()
}

// failed passes an error of the driver on. On a Cluster it has the map of the nodes looked up again, because go-redis
// goes on asking a dead master until its next periodic reload.
func (s *Store) failed(ctx context.Context, err error) error {
	if c, ok := s.client.(*redis.ClusterClient); ok && s.own {
		c.ReloadState(context.WithoutCancel(ctx))
	}
	// The scripts' own messages name the key at fault; servers wrap them in the digest and line of the script.
	if _, message, ok := strings.Cut(err.Error(), "TICKSLOT "); ok {
		message, _, _ = strings.Cut(message, " script: ")
		message, _, _ = strings.Cut(message, "\n")
		message, _, _ = strings.Cut(message, " stack traceback:")
		if strings.Contains(message, scriptRefusal) {
			message += ": check the ACL"
		}
		return fmt.Errorf("redislock: %w: %s", dlock.ErrFault, message)
	}
	for _, refusal := range []string{"NOAUTH", "WRONGPASS", "NOPERM", scriptRefusal} {
		if strings.Contains(err.Error(), refusal+" ") {
			return fmt.Errorf("redislock: the server refuses: check user, password and ACL: %w", err)
		}
	}
	if _, cluster := s.client.(*redis.ClusterClient); !cluster && redis.HasErrorPrefix(err, "CROSSSLOT") || !cluster && redis.HasErrorPrefix(err, "MOVED") {
		return fmt.Errorf("redislock: this server is a node of a Redis Cluster: pass a *redis.ClusterClient: %w", err)
	}
	if redis.HasErrorPrefix(err, "WRONGTYPE") || strings.Contains(err.Error(), "WRONGTYPE ") {
		return fmt.Errorf("redislock: %w: %w", dlock.ErrFault, err)
	}
	return err
}

// scriptRefusal is what Redis 7.0 says of a command in a script that the user may not call. Later ones say NOPERM.
const scriptRefusal = "can't run this command"

// millis rounds up: a lease must not be shorter than its holder trusts it.
func millis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// holderJSON is the part of a stored lease that tells a person who has it.
type holderJSON struct {
	of   dlock.Holder
	text string
}

func (s *Store) holderJSON(h dlock.Holder) string {
	if c := s.holder.Load(); c != nil && c.of == h {
		return c.text
	}
	b, err := json.Marshal(struct {
		Host string `json:"host"`
		PID  int    `json:"pid"`
		ID   string `json:"id"`
	}(h))
	if err != nil { // strings and numbers always marshal
		b = []byte(`{"host":""}`)
	}
	c := &holderJSON{of: h, text: string(bytes.Trim(b, "{}"))}
	s.holder.Store(c)
	return c.text
}
