package redislock

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
)

const (
	// tickMemory is how long the start of a tick is remembered. Ticks older than half of it are refused, so what is forgotten
	// cannot be started again by a host whose clock is wrong by less than the other half.
	tickMemory = time.Hour
	// maxRounds bounds how often an attempt looks again after others were quicker. Two rounds are rare.
	maxRounds = 10
	// atOnce is how many leases of one call are renewed or released at the same time. More would only wait for a connection.
	atOnce = 16
)

// Quorum implements dlock.DistributedLock by Redlock: a lease is a key that a majority of independent Redis servers
// holds, so it outlives the loss of any minority of them. It stands on redsync, one mutex per slot, and makes
// fewer promises than Store does:
//
//   - Redlock is a lock by clocks. A server whose wall clock steps forward by more than is left of a lease ends it early.
//   - There is no quarantine. A server that restarts without its data votes again at once, and with it a majority may
//     grant what is still held. Start such a server only after the longest TTL has passed, or make it fsync always.
//     A heartbeat puts the keys of living leases back, so servers restarted one after the other, a heartbeat apart, end none.
//   - Fences are 0, refusals name no holder and no end (the keys have tokens in them and nothing else), there is
//     no listing, and hosts that declare different numbers of slots are not told of each other.
//   - A tick is a mutex of its own. It is taken before the slot, and given back if there is none. A crash or a failure in between
//     loses one start of that tick; there is never one too many, unless a majority forgets: ticks are not put back.
//   - The clock of this host, not of a server, says that a tick is too far ahead, or late. Late means more than half
//     an hour ago; of two ticks younger than that, the older may start after the newer. Clocks must agree to 25 minutes.
//     Each start leaves a key for one hour.
//   - The slots of a name are several mutexes, not one semaphore. When many hosts ask in the same instant, each may get some
//     votes and nobody a majority; they ask again after a random pause of milliseconds, ten times at most. In a long
//     crush a request may be refused as Full while a slot is free; never is one granted too many for it.
//   - While servers are away, a lease that has its majority only with them looks neither taken nor free. That is an error.
//   - It is dear, and outside the budgets: an acquire costs each server one MGET, and one or two scripts for each slot that looked free,
//     at most N a round; a heartbeat costs one script per lease and server. It is meant for some hundred leases per process.
//
// With two servers down out of three, or three out of five, every call is an error that is not ErrNotAcquired. For a server that
// hangs, each step of an acquire waits an eighth of the time that the call has; a heartbeat waits a quarter, once.
type Quorum struct {
	pools   []redsyncredis.Pool
	clients []redis.UniversalClient
	own     []redis.UniversalClient // those to be closed
	plain   Store                   // only names the keys
	fault   error
}

// QuorumOptions are the settings of a Quorum. They must be the same on every host. The zero value is fine.
type QuorumOptions struct {
	// Prefix stands before every key. Default "".
	Prefix string
	// PoolSize is the number of own connections to each server. Default 10.
	PoolSize int
}

// NewQuorum returns a store on an odd number of servers, three or more, that know nothing of each other: no
// replicas, no nodes of a Cluster. List them in the same order everywhere or not, that does not matter. The
// clients stay the caller's to close. No server is called. Faults are reported by Check, which
// dlock.NewSession and timer.New call.
func NewQuorum(clients ...redis.UniversalClient) *Quorum {
	return NewQuorumWithOptions(QuorumOptions{}, clients...)
}

// NewQuorumWithOptions is NewQuorum with settings.
func NewQuorumWithOptions(opts QuorumOptions, clients ...redis.UniversalClient) *Quorum {
	q := &Quorum{plain: Store{prefix: opts.Prefix}}
	q.fault = errors.Join(checkPrefix(opts.Prefix), checkPoolSize(opts.PoolSize), checkServers(clients))
	if q.fault != nil {
		return q
	}
	if opts.PoolSize == 0 {
		opts.PoolSize = defaultPoolSize
	}
	for _, client := range clients {
		if pool := ownPool(client, opts.PoolSize); pool != nil {
			q.own = append(q.own, pool)
			client = pool
		}
		q.clients = append(q.clients, client)
		q.pools = append(q.pools, goredis.NewPool(client))
	}
	return q
}

func checkPoolSize(size int) error {
	if size < 0 {
		return fmt.Errorf("redislock: PoolSize %d: must be positive, or 0 for %d", size, defaultPoolSize)
	}
	return nil
}

func checkServers(clients []redis.UniversalClient) error {
	var faults []error
	if n := len(clients); n < 3 {
		faults = append(faults, fmt.Errorf("redislock: a quorum of %d: needs three servers or more, so that one can fail; for a single server use New", n))
	} else if n%2 == 0 {
		faults = append(faults, fmt.Errorf("redislock: a quorum of %d: needs an odd number; the last one makes the majority larger and lets no further server fail", n))
	}
	seen := make(map[string]int)
	for i, client := range clients {
		switch c := client.(type) {
		case nil:
			faults = append(faults, fmt.Errorf("redislock: client %d of the quorum is nil", i))
		case *redis.Client:
			if c == nil {
				faults = append(faults, fmt.Errorf("redislock: client %d of the quorum is nil", i))
				continue
			}
			// go-redis gives every client of a Sentinel the same address.
			addr := c.Options().Addr
			if first, twice := seen[addr]; twice && addr != "FailoverClient" {
				faults = append(faults, fmt.Errorf("redislock: clients %d and %d of the quorum are the same server, %s: its two votes would be lost together", first, i, addr))
			}
			seen[addr] = i
		case *redis.ClusterClient, *redis.Ring:
			faults = append(faults, fmt.Errorf("redislock: client %d of the quorum is a %T: needs servers that are independent of each other, a *redis.Client each", i, c))
		}
	}
	return errors.Join(faults...)
}

// Check implements dlock.Checker: it returns the faults of the clients and options.
func (q *Quorum) Check() error { return q.fault }

// Close closes the store's own connections, never the clients it was made from.
func (q *Quorum) Close() error {
	var errs []error
	for _, client := range q.own {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

func (q *Quorum) String() string { return "redis-quorum" }

func (q *Quorum) majority() int { return len(q.pools)/2 + 1 }

// TryAcquire implements dlock.DistributedLock, as far as the comment of Quorum says. A Tick.Max above dlock.MaxSlots is an error.
func (q *Quorum) TryAcquire(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
	if q.fault != nil {
		return dlock.Grant{}, q.fault
	}
	if err := req.Validate(); err != nil {
		return dlock.Grant{}, err
	}
	if err := q.plain.checkKey(req.Name); err != nil {
		return dlock.Grant{}, err
	}
	if req.Tick != nil {
		if req.Tick.Max > dlock.MaxSlots {
			return dlock.Grant{}, fmt.Errorf("redislock: %d starts of a tick: at most %d", req.Tick.Max, dlock.MaxSlots)
		}
		switch ahead := time.Until(req.Tick.At); {
		case ahead > dlock.MaxTickAhead:
			return dlock.Grant{}, refusal(req, dlock.TickAhead)
		case ahead < -tickMemory/2:
			return dlock.Grant{}, refusal(req, dlock.TickLate)
		}
	}
	if err := ctx.Err(); err != nil {
		return dlock.Grant{}, err
	}
	a, cancel := q.newAttempt(ctx, req)
	defer cancel()
	slot, err := a.run()
	if err != nil {
		a.giveBackTick()
		return dlock.Grant{}, err
	}
	return dlock.Grant{Name: req.Name, Slots: req.Slots, Slot: slot, Token: req.Token}, nil
}

func refusal(req dlock.Request, reason dlock.Reason) error {
	return &dlock.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots}
}

// An attempt is one call of TryAcquire.
type attempt struct {
	q        *Quorum
	req      dlock.Request
	ctx      context.Context // the caller's
	work     context.Context // ends with the caller's deadline, not with its cancellation: what was begun is taken back
	ends     time.Time
	patience time.Duration // with each server, per step; see nodes
	slots    []string      // keys
	ticks    []string      // keys
	tick     string        // the one of ticks that was taken
	oldTick  bool          // it was ours before this call
}

// How many steps lie ahead of an attempt, each as long as its patience at worst.
const (
	stepsToSlot = 3 // take it, in vain; undo that; give the tick back
	stepsToTick = 2 + stepsToSlot
	stepsInAll  = 1 + stepsToTick + 2 // look first; the rest is for more rounds
)

func (q *Quorum) newAttempt(ctx context.Context, req dlock.Request) (*attempt, context.CancelFunc) {
	a := &attempt{q: q, req: req, ctx: ctx, ends: end(ctx), slots: q.slotKeys(req.Name, req.Slots)}
	a.patience = share(a.ends, stepsInAll)
	if req.Tick != nil {
		kind := ":slot:tick:"
		if req.Slots == 0 { // a semaphore of the same name has ticks of its own
			kind = ":slot:mutex:tick:"
		}
		base := q.plain.prefix + req.Name + kind + strconv.FormatInt(req.Tick.At.UnixMicro(), 10) + ":"
		for k := range req.Tick.Max {
			a.ticks = append(a.ticks, base+strconv.Itoa(k))
		}
	}
	var cancel context.CancelFunc
	a.work, cancel = context.WithDeadline(context.WithoutCancel(ctx), a.ends)
	return a, cancel
}

// nodes waits for a server that hangs again and again, so that what it may have done late is undone, late.
func (a *attempt) nodes() []redsyncredis.Pool { return a.q.nodes(a.patience, nil) }

// end is when a call has to be back.
func end(ctx context.Context) time.Time {
	if t, ok := ctx.Deadline(); ok {
		return t
	}
	return time.Now().Add(lastResort)
}

// share is the time that each server has for one of so many steps.
func share(ends time.Time, steps int) time.Duration {
	return time.Until(ends) / time.Duration(steps)
}

var (
	errAllTaken = errors.New("redislock: a majority has each of the keys for others") // a refusal
	errRaced    = errors.New("redislock: others were quicker")                        // one that may be different in a moment
	errNoTime   = errors.New("redislock: no time left to ask for another key")
)

// run returns the slot that was taken.
func (a *attempt) run() (slot int, err error) {
	for round := range maxRounds {
		if round > 0 && !a.pause(round) {
			break
		}
		// Looking writes nothing. If too few servers answer even that, it is not because of others.
		seen, lookErr := a.q.look(a.work, a.patience, false, slices.Concat(a.slots, a.ticks), a.req.Token)
		if lookErr != nil {
			return 0, lookErr
		}
		if slot, err = a.round(seen); err == nil {
			return slot, nil
		}
		if errors.Is(err, errAllTaken) || errors.Is(err, errNoTime) || a.ctx.Err() != nil {
			break
		}
	}
	switch {
	case !errors.Is(err, errAllTaken) && !errors.Is(err, errRaced):
		return 0, err
	case errors.Is(err, errRaced) && a.ctx.Err() != nil: // who knows what the next round would have said
		return 0, a.ctx.Err()
	case a.ticks != nil && a.tick == "":
		return 0, refusal(a.req, dlock.TickTaken)
	default:
		return 0, refusal(a.req, dlock.Full)
	}
}

// pause lets those who took votes from each other drift apart. It reports whether there is time for another round.
func (a *attempt) pause(round int) bool {
	steps := 1 + stepsToSlot
	if a.ticks != nil && a.tick == "" {
		steps = 1 + stepsToTick
	}
	wait := time.Millisecond + rand.N(time.Millisecond<<min(round, 5))
	if time.Until(a.ends) < wait+time.Duration(steps)*a.patience {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.ctx.Done():
		return false
	}
}

// round takes what looks free: the tick first, because that is what most of a fleet is refused, and nobody's slot
// is then disturbed.
func (a *attempt) round(seen []sight) (slot int, err error) {
	slots, ticks := seen[:len(a.slots)], seen[len(a.slots):]
	if a.ticks != nil && a.tick == "" {
		k, err := a.takeOne(a.ticks, ticks, tickMemory, stepsToTick)
		if err != nil {
			return 0, err
		}
		a.tick, a.oldTick = a.ticks[k], ticks[k].ours > 0
	}
	return a.takeOne(a.slots, slots, a.req.TTL, stepsToSlot)
}

// takeOne takes one of the keys. A token that is asked again finds the key that it has, and one that is asked from two
// sides at once goes the same way on both: so it never gets two.
func (a *attempt) takeOne(keys []string, seen []sight, ttl time.Duration, steps int) (int, error) {
	verdict := errAllTaken
	for _, i := range ours(seen) {
		err := a.take(keys[i], ttl, true, steps)
		if err == nil {
			for _, j := range ours(seen) { // what late requests of this token have left behind
				if j != i {
					_, _ = a.q.mutex(keys[j], a.req.Token, 0, a.nodes()).UnlockContext(a.work)
				}
			}
			return i, nil
		}
		if !errors.Is(err, errRaced) {
			return 0, err // it may still be ours: a second one must not be taken
		}
		verdict = err // it was ours
	}
	h := fnv.New32a()
	h.Write([]byte(a.req.Token))
	first := int(h.Sum32() % uint32(len(keys))) // tokens are random, so there is no hot spot
	for n := range keys {
		i := (first + n) % len(keys)
		if seen[i].ours > 0 || seen[i].others >= a.q.majority() {
			continue
		}
		err := a.take(keys[i], ttl, false, steps)
		if err == nil {
			return i, nil
		}
		if errors.Is(err, errNoTime) {
			return 0, err
		}
		if errors.Is(verdict, errAllTaken) || !errors.Is(err, errRaced) {
			verdict = err
		}
	}
	return 0, verdict
}

// ours are the keys that the token has somewhere, the one it has most of first.
func ours(seen []sight) []int {
	var list []int
	for i := range seen {
		if seen[i].ours > 0 {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(i, j int) int { return seen[j].ours - seen[i].ours })
	return list
}

// take returns nil, errRaced, or an error that means "unknown".
//
// It is redsync's ExtendContext, told to set the key where there is none, and not its TryLockContext: that is refused by
// a server that has the key for this very token, and takes its votes back when it fails, which would end a lease whose
// token was asked again while some servers did not answer.
func (a *attempt) take(key string, ttl time.Duration, again bool, steps int) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if time.Until(a.ends) < time.Duration(steps)*a.patience {
		return errNoTime
	}
	m := a.q.mutex(key, a.req.Token, ttl, a.nodes(), redsync.WithSetNXOnExtend())
	taken, err := m.ExtendContext(a.work)
	if taken {
		return nil
	}
	no := refused(err)
	if no >= a.q.majority() {
		if no < len(a.q.pools) {
			_, _ = m.UnlockContext(a.work) // the votes that we did get
		}
		return errRaced
	}
	if !again {
		_, _ = m.UnlockContext(a.work)
	}
	return a.q.undecided(err)
}

// giveBackTick undoes the claim of this call, never one that an earlier call may have told the caller of.
func (a *attempt) giveBackTick() {
	if a.tick != "" && !a.oldTick {
		_, _ = a.q.mutex(a.tick, a.req.Token, tickMemory, a.nodes()).UnlockContext(a.work)
	}
}

// Extend implements dlock.DistributedLock.
func (q *Quorum) Extend(ctx context.Context, ttl time.Duration, grants ...dlock.Grant) ([]dlock.Result, error) {
	if q.fault == nil && ttl < time.Millisecond {
		return nil, fmt.Errorf("redislock: a TTL of %v: must be at least 1ms", ttl)
	}
	return q.each(ctx, grants, func(g dlock.Grant, patience time.Duration, hung *hung) dlock.Result {
		if g.Slot < 0 || g.Slot >= max(1, g.Slots) {
			return dlock.Result{Outcome: dlock.Lost}
		}
		nodes := q.nodes(patience, hung)
		key := q.slotKey(g.Name, g.Slots, g.Slot)
		extended, err := q.mutex(key, g.Token, ttl, nodes).ExtendContext(ctx)
		if !extended {
			return q.result(err)
		}
		// Servers that lost the key, or were away when it was set, get it back. They are a minority, so a release that comes in between
		// is not undone.
		nodes = slices.DeleteFunc(nodes, func(n redsyncredis.Pool) bool { return !n.(*node).lacks.Load() })
		if len(nodes) > 0 {
			_, _ = q.mutex(key, g.Token, ttl, nodes, redsync.WithSetNXOnExtend()).ExtendContext(ctx)
		}
		return dlock.Result{Outcome: dlock.OK}
	})
}

// Release implements dlock.DistributedLock.
func (q *Quorum) Release(ctx context.Context, grants ...dlock.Grant) ([]dlock.Result, error) {
	return q.each(ctx, grants, func(g dlock.Grant, patience time.Duration, hung *hung) dlock.Result {
		release := func(slot int) dlock.Result {
			released, err := q.mutex(q.slotKey(g.Name, g.Slots, slot), g.Token, 0, q.nodes(patience, hung)).UnlockContext(ctx)
			if !released {
				return q.result(err)
			}
			return dlock.Result{Outcome: dlock.OK}
		}
		switch {
		case g.Slot == dlock.AnySlot && g.Slots == 0:
			return release(0)
		case g.Slot == dlock.AnySlot:
			seen, err := q.look(ctx, patience, true, q.slotKeys(g.Name, g.Slots), g.Token)
			if err != nil {
				return dlock.Result{Err: err}
			}
			// A lease shows at one server at least. More than one slot shows if a request was late: all of them go.
			all := dlock.Result{Outcome: dlock.Lost}
			for _, i := range ours(seen) {
				if r := release(i); r.Outcome == dlock.Unknown || all.Outcome == dlock.Lost {
					all = r
				}
			}
			return all
		case g.Slot < 0 || g.Slot >= max(1, g.Slots):
			return dlock.Result{Outcome: dlock.Lost}
		}
		return release(g.Slot)
	})
}

// each does it for every grant, several at once, and puts the answers in the order of the grants. Those of one token are done in
// their order.
func (q *Quorum) each(ctx context.Context, grants []dlock.Grant, do func(dlock.Grant, time.Duration, *hung) dlock.Result) ([]dlock.Result, error) {
	if q.fault != nil {
		return nil, q.fault
	}
	index := make(map[string]int, len(grants))
	var tokens [][]int
	for i, g := range grants {
		if err := checkGrant(g); err != nil {
			return nil, err
		}
		t, ok := index[g.Token]
		if !ok {
			t = len(tokens)
			index[g.Token] = t
			tokens = append(tokens, nil)
		}
		tokens[t] = append(tokens[t], i)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Two steps at most, and one wave of grants that finds out who hangs.
	patience := share(end(ctx), 4)
	hung := &hung{most: len(q.pools) - q.majority(), who: make([]bool, len(q.pools))}
	results := make([]dlock.Result, len(grants))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(tokens), atOnce) {
		wg.Go(func() {
			for t := next.Add(1) - 1; t < int64(len(tokens)); t = next.Add(1) - 1 {
				for _, i := range tokens[t] {
					if err := ctx.Err(); err != nil {
						results[i] = dlock.Result{Err: err}
						continue
					}
					results[i] = do(grants[i], patience, hung)
				}
			}
		})
	}
	wg.Wait()
	if len(results) > 0 && !slices.ContainsFunc(results, func(r dlock.Result) bool { return r.Outcome != dlock.Unknown }) {
		return nil, results[0].Err
	}
	return results, nil
}

// result tells from redsync's error what became of a lease that it could not extend or release.
func (q *Quorum) result(err error) dlock.Result {
	if refused(err) >= q.majority() {
		return dlock.Result{Outcome: dlock.Lost}
	}
	return dlock.Result{Err: q.undecided(err)}
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

// undecided is the error when neither yes nor no has a majority.
func (q *Quorum) undecided(err error) error { return &undecidedError{len(q.pools), err} }

type undecidedError struct {
	servers int
	err     error
}

func (e *undecidedError) Error() string {
	return fmt.Sprintf("redislock: no majority of %d servers: %s", e.servers, strings.ReplaceAll(e.err.Error(), "\n", "; "))
}

func (e *undecidedError) Unwrap() error { return e.err }

// sight is how many of the servers that answered have a key for the token, and for others.
type sight struct{ ours, others int }

// look reads the keys. It returns when a majority of the servers has answered, so that one that hangs costs nothing, or,
// if everyone is wanted, when each has answered or failed.
func (q *Quorum) look(ctx context.Context, patience time.Duration, everyone bool, keys []string, token string) ([]sight, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type answer struct {
		node   int
		values []any
		err    error
	}
	answers := make(chan answer, len(q.clients))
	for i, client := range q.clients {
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
	for range q.clients {
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
		if good++; good >= q.majority() && !everyone {
			return seen, nil
		}
	}
	if good < q.majority() {
		return nil, q.undecided(errors.Join(errs...))
	}
	return seen, nil
}

func (q *Quorum) slotKey(name string, slots, slot int) string {
	base := q.plain.keys(name, slots == 0).base
	if slots == 0 {
		return base
	}
	return base + strconv.Itoa(slot)
}

func (q *Quorum) slotKeys(name string, slots int) []string {
	base := q.plain.keys(name, slots == 0).base
	if slots == 0 {
		return []string{base}
	}
	keys := make([]string, slots)
	for i := range keys {
		keys[i] = base + strconv.Itoa(i)
	}
	return keys
}

// mutex returns redsync's mutex of one key. Redlock takes one percent off a lease for the drift of clocks; here it is what a
// dlock.Session takes off, which is more: a tenth, at most a second. A majority that comes too late for the
// session is then none for redsync either.
func (q *Quorum) mutex(key, token string, ttl time.Duration, nodes []redsyncredis.Pool, options ...redsync.Option) *redsync.Mutex {
	ttl = time.Duration(millis(ttl)) * time.Millisecond
	drift := 0.1
	if ttl > 10*time.Second {
		drift = float64(time.Second) / float64(ttl)
	}
	options = append(options, redsync.WithValue(token), redsync.WithExpiry(ttl), redsync.WithDriftFactor(drift))
	return redsync.New(nodes...).NewMutex(key, options...)
}

// nodes returns the servers for one operation of redsync, which sets no time-out for Extend and Unlock.
func (q *Quorum) nodes(patience time.Duration, hung *hung) []redsyncredis.Pool {
	nodes := make([]redsyncredis.Pool, len(q.pools))
	for i, pool := range q.pools {
		nodes[i] = &node{Pool: pool, number: i, patience: patience, hung: hung}
	}
	return nodes
}

// A node is a server that has so long to answer, and remembers if it said that it has not got the key.
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

// hung are the servers that are not asked again during one call, lest each of 500 leases waits for them. They are
// a minority, however slow everything is.
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
