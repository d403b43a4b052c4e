package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/rediskit"
)

const (
	// masterTrusted is how long an answer of the sentinels is used. After a failover, hosts may
	// still call the old master for this long, so the quarantine of the new master is longer by as
	// much. The call itself may take longer, but a lease is trusted from the beginning of the call.
	masterTrusted = time.Second
	// changeover limits a call to the master, counted from when the sentinels were asked. It is
	// also how long a host that learns of a new master makes no calls. So no host calls the new
	// master while another host still calls the old one. Otherwise a lease renewed only on the new
	// master could end on the old one, which would then grant its slot a second time.
	changeover = 2 * masterTrusted
)

var errFailoverClient = errors.New("redislock: a client of redis.NewFailoverClient does not say when the master " +
	"changes, so the store's own connections would stay with the old one: pass its *redis.FailoverOptions to " +
	"NewFailover")

// NewFailover returns a store on the master that Redis Sentinel names. Close closes everything that
// the store opens. NewFailover calls no server, so it works while the servers are down. Check
// reports faults; dlock.NewSession and timer.New call it.
//
// A majority of failover.SentinelAddrs must name the same master. If the last answer is more than a
// second old, a call first asks all sentinels at the same time. The call ends two seconds after
// this question, even if its context allows more. So every host leaves an old master within two
// seconds of the failover. This holds even if that server is still alive and acts as a master,
// because it was suspended or the sentinels cannot reach it. A host that learns of another master
// makes no calls for two seconds, until all other hosts have left the old one. Until then, every
// call returns an error of the store, as it does when no majority answers.
//
// List all sentinels, each with its own address, in the same way on every host. If several share an
// address, such as that of a Kubernetes service, the answer of any single sentinel decides, and it
// may be outdated.
//
// A busy host sends two small commands per second to each sentinel, and one call per second takes
// an additional round trip. With the default TTL of 15 s, a lease has 9 s left when a renewal is
// due, so the two seconds alone end no lease. The time without any master adds to them.
//
// The limit holds during every failover. A tick may start again if the new master did not learn of
// it. With KeysTagged, as on a Cluster, the limit does not hold for a name whose first grant the
// new master did not learn of.
//
// The store takes these fields of failover: MasterName, SentinelAddrs, SentinelUsername,
// SentinelPassword, and those that determine how connections are made (Dialer, TLSConfig,
// OnConnect, names, passwords and their providers, DB, Protocol). Timeouts, retries and pool sizes
// are the store's own.
func NewFailover(failover *redis.FailoverOptions, opts Options) *Store {
	size := cmp.Or(opts.PoolSize, rediskit.DefaultPoolSize)
	f, fault := newMasters(failover, size)
	if opts.SharedPool {
		fault = errors.Join(fault,
			errors.New("redislock: SharedPool with NewFailover: there is no client whose connections could be used"))
	}
	// This client has no connections: a hook passes each call to the client of the current master.
	client := redis.NewClient(&redis.Options{Addr: "sentinel", PipelinePoolSize: -1})
	client.AddHook(f)
	shared := opts
	shared.SharedPool = true // the store owns the client
	s := New(client, shared)
	s.own, s.masters = true, f
	s.batcher = newBatcher(s.client, size, !s.tagged)
	s.fault = errors.Join(fault, s.fault)
	return s
}

// masters holds the connections to the sentinels and the current master.
type masters struct {
	name      string
	sentinels []*redis.Client
	options   redis.Options // for connections to a master, without its address
	pool      int

	turn    chan struct{} // held by the goroutine that asks; guards closed and writes to reign and failure
	closed  bool
	reign   atomic.Pointer[reign]
	failure atomic.Pointer[error] // why the last question failed; returned to calls that end while they wait for turn
}

// A reign is an answer of the sentinels and the connections to the master that they named. The
// epoch changes with each failover.
type reign struct {
	addr, epoch string
	client      *redis.Client
	asked       time.Time // just before the sentinels were asked
	begins      time.Time // until then, other hosts may still call the previous master
}

// within reports whether the sentinels were asked less than age ago. The monotonic clock stops
// while the machine is suspended, so the wall clock must agree.
func (r *reign) within(age time.Duration) bool {
	if r == nil {
		return false
	}
	now := time.Now()
	wall := now.Round(0).Sub(r.asked.Round(0))
	return now.Sub(r.asked) < age && wall >= 0 && wall < age
}

func (r *reign) fresh() bool { return r.within(masterTrusted) }

func newMasters(o *redis.FailoverOptions, pool int) (*masters, error) {
	m := &masters{turn: make(chan struct{}, 1), pool: pool}
	if o == nil {
		return m, errors.New("redislock: no *redis.FailoverOptions")
	}
	var faults []error
	if o.MasterName == "" {
		faults = append(faults,
			errors.New("redislock: FailoverOptions.MasterName is empty: it is the name in \"sentinel monitor\""))
	}
	if len(o.SentinelAddrs) == 0 {
		faults = append(faults, errors.New("redislock: FailoverOptions.SentinelAddrs is empty: list all sentinels"))
	}
	if addrs := slices.Sorted(slices.Values(o.SentinelAddrs)); len(slices.Compact(addrs)) < len(o.SentinelAddrs) {
		faults = append(faults,
			errors.New("redislock: FailoverOptions.SentinelAddrs names a sentinel twice, whose word would count twice"))
	}
	if o.ReplicaOnly || o.RouteByLatency || o.RouteRandomly {
		faults = append(faults,
			errors.New("redislock: FailoverOptions.ReplicaOnly, RouteByLatency and RouteRandomly lead to replicas, "+
				"which grant nothing: leave them out"))
	}
	m.name = o.MasterName
	m.options = redis.Options{
		ClientName: o.ClientName, Dialer: o.Dialer, OnConnect: o.OnConnect, TLSConfig: o.TLSConfig,
		Protocol: o.Protocol, DB: o.DB,
		Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext:   o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		DisableIdentity:              o.DisableIdentity, IdentitySuffix: o.IdentitySuffix,
		ConnMaxIdleTime: o.ConnMaxIdleTime,
	}
	for _, addr := range o.SentinelAddrs {
		sentinel := redis.Options{
			Addr: addr, ClientName: o.ClientName, Dialer: o.Dialer, OnConnect: o.OnConnect, TLSConfig: o.TLSConfig,
			Username: o.SentinelUsername, Password: o.SentinelPassword,
			DisableIdentity: o.DisableIdentity, IdentitySuffix: o.IdentitySuffix, ConnMaxIdleTime: o.ConnMaxIdleTime,
		}
		m.sentinels = append(m.sentinels, rediskit.NewPool(sentinel, 2))
	}
	return m, errors.Join(faults...)
}

// call makes a call to the current master.
func (m *masters) call(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	r, err := m.current(ctx)
	if err != nil {
		return err
	}
	if wait := time.Until(r.begins); wait > 0 {
		return fmt.Errorf("redislock: failover to %s: calls begin in %v, when every host has left the old master",
			r.addr, wait.Round(time.Millisecond))
	}
	limit := r.asked.Add(changeover)
	if end, ok := ctx.Deadline(); !ok || end.After(limit) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, limit)
		defer cancel()
	}
	err = do(ctx, r.client)
	// The deadline is not enough. After a process was stopped or a machine suspended, the reply may
	// be read before the deadline is noticed. Errors are checked, too: other commands of the
	// pipeline may have replies, and redis.Nil is a reply.
	if last := m.reign.Load(); last == nil || last.client != r.client || !last.within(changeover) {
		return &lateError{r.addr, err}
	}
	return err
}

// A lateError is the error of a call, or of one of its commands, that ended too long after the
// sentinels were asked.
type lateError struct {
	addr string
	err  error // the result; nil for a reply
}

func (l *lateError) Error() string {
	text := fmt.Sprintf("redislock: the call to %s ended %v", l.addr, errTooLate)
	if l.err != nil {
		text += ": " + l.err.Error()
	}
	return text
}

func (l *lateError) Unwrap() []error {
	if l.err == nil {
		return []error{errTooLate}
	}
	return []error{errTooLate, l.err}
}

// current returns the last answer of the sentinels. If it is too old, current asks them first.
func (m *masters) current(ctx context.Context) (*reign, error) {
	if r := m.reign.Load(); r.fresh() {
		return r, nil
	}
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		if failure := m.failure.Load(); failure != nil {
			return nil, *failure
		}
		return nil, ctx.Err()
	}
	last := m.reign.Load()
	if m.closed {
		return nil, redis.ErrClosed
	}
	if last.fresh() {
		return last, nil // another goroutine has asked
	}
	next := &reign{asked: time.Now()}
	var err error
	if next.addr, next.epoch, err = m.ask(ctx); err != nil {
		m.failure.Store(&err)
		return nil, err
	}
	m.failure.Store(nil)
	if last != nil && last.addr == next.addr && last.epoch == next.epoch {
		next.client, next.begins = last.client, last.begins
	} else {
		if last != nil {
			_ = last.client.Close() // also ends the calls in flight there
			// This counts from now, not from the question, because in between a sentinel that had
			// not switched yet may have answered another host.
			next.begins = time.Now().Add(changeover)
		}
		o := m.options
		o.Addr = next.addr
		next.client = rediskit.NewPool(o, m.pool)
	}
	m.reign.Store(next)
	return next, nil
}

// MarshalBinary returns the epoch as an argument of acquire.lua. go-redis calls it when it writes
// the command to a connection, not when the call is made. So a call that waited for a connection to
// another master sends that master's epoch.
func (m *masters) MarshalBinary() ([]byte, error) {
	r := m.reign.Load()
	if r == nil {
		return nil, redis.ErrClosed
	}
	return []byte("/" + r.epoch), nil
}

// A vote is the answer of one sentinel.
type vote struct {
	addr, epoch string
	err         error
}

// ask returns the answer of a majority of the sentinels without waiting for the others.
func (m *masters) ask(ctx context.Context) (addr, epoch string, err error) {
	ctx, cancel := context.WithTimeout(ctx, rediskit.LastResort)
	defer cancel()
	votes := make(chan vote, len(m.sentinels))
	for _, s := range m.sentinels {
		go func() { votes <- m.askOne(ctx, s) }() // ends with ctx or when the clients are closed
	}
	count := map[vote]int{}
	var errs []error
	unknown, refused, fix := 0, 0, ""
	for range m.sentinels {
		select {
		case v := <-votes:
			switch {
			case v.err == nil:
				if count[v]++; count[v] > len(m.sentinels)/2 {
					return v.addr, v.epoch, nil
				}
				continue
			case errors.Is(v.err, errNoSuchMaster):
				unknown++
			default:
				if what := rediskit.Refuses(v.err); what != "" {
					refused, fix = refused+1, what
				}
			}
			errs = append(errs, v.err)
		case <-ctx.Done():
			errs = append(errs, ctx.Err())
		}
		if ctx.Err() != nil {
			break
		}
	}
	err = errors.Join(errs...)
	if unknown > len(m.sentinels)/2 {
		return "", "", fmt.Errorf("redislock: %w: check FailoverOptions.MasterName: %w", driver.ErrSetup, err)
	}
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	if refused > 0 && most+refused > len(m.sentinels)/2 { // without the refusals, there might be a majority
		return "", "", fmt.Errorf("redislock: %w: a sentinel: %s: %w", driver.ErrSetup, fix, err)
	}
	return "", "", fmt.Errorf("redislock: %d of %d sentinels name the same master %q, a majority has to: %w", most,
		len(m.sentinels), m.name, cmp.Or(err, errDisagree))
}

var (
	errNoSuchMaster = errors.New("it knows no such master")
	errDisagree     = errors.New("they do not agree")
	errTooLate      = errors.New("so late that it may not be the master any more")
)

func (m *masters) askOne(ctx context.Context, sentinel *redis.Client) vote {
	// One pipeline has both commands. During a failover, only the first returns the new address
	// immediately.
	pipe := sentinel.Pipeline()
	addr := redis.NewStringSliceCmd(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", m.name)
	about := redis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", m.name)
	_ = pipe.Process(ctx, addr)
	_ = pipe.Process(ctx, about)
	_, err := pipe.Exec(ctx)
	switch {
	case errors.Is(addr.Err(), redis.Nil):
		err = errNoSuchMaster
	case err == nil && (len(addr.Val()) != 2 || about.Val()["config-epoch"] == ""):
		err = errAnswer
	}
	if err != nil {
		return vote{err: fmt.Errorf("sentinel %s: %w", sentinel.Options().Addr, err)}
	}
	return vote{addr: net.JoinHostPort(addr.Val()[0], addr.Val()[1]), epoch: about.Val()["config-epoch"]}
}

func (m *masters) close() {
	for _, s := range m.sentinels {
		_ = s.Close() // also ends questions in flight
	}
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.closed = true
	if r := m.reign.Swap(nil); r != nil {
		_ = r.client.Close()
	}
}

// DialHook implements redis.Hook.
func (m *masters) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (m *masters) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := m.call(ctx, func(ctx context.Context, client *redis.Client) error { return client.Process(ctx, cmd) })
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (m *masters) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		addr := ""
		err := m.call(ctx, func(ctx context.Context, client *redis.Client) error {
			addr = client.Options().Addr
			pipe := client.Pipeline()
			for _, cmd := range cmds {
				_ = pipe.Process(ctx, cmd)
			}
			_, err := pipe.Exec(ctx)
			return err
		})
		for _, cmd := range cmds {
			switch {
			case errors.Is(err, errTooLate): // each command keeps its own error, which says whether it was executed
				cmd.SetErr(&lateError{addr, cmd.Err()})
			case err != nil && addr == "": // no call was made; after a call, each command has its own error
				cmd.SetErr(err)
			}
		}
		return err
	}
}
