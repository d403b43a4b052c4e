package sqllock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock"
)

// NativeOptions of a Native. The zero value works.
type NativeOptions struct {
	// Prefix is put before every name, so that several applications can share a database. Hosts that are to keep out of each other's way
	// must have the same. At most 256 bytes. Default "".
	Prefix string
}

// Native implements dlock.DistributedLock with the locks that a database keeps for a connection: advisory locks in Postgres, GET_LOCK in MySQL,
// application locks in SQL Server. It needs no table and writes nothing. Its promises are fewer than those of a Store, so prefer that unless
// you may not create a table:
//
//   - MaxConcurrency can be exceeded. A lock ends when its connection does. A host whose connection breaks, or is ended by an administrator
//     (pg_terminate_backend, KILL), learns of it with its next heartbeat: a third of a TTL later, or a whole TTL if it cannot reach the server
//     either. Until then another host may run in the same slot, and nothing tells the two apart. So it is when the server fails over: its
//     successor knows of no lock.
//   - MaxPerTick is not kept. A request with a tick is refused, with an error that matches dlock.ErrFault. Set MaxPerTick: timer.NoLimit; a short job then
//     runs once per host and tick. A timer without it does not run: each of its ticks is skipped, with that error as the reason.
//   - It is no dlock.Controller: nobody can pause a name, set a limit or trigger a run, or revoke a lease.
//   - There are no fences, nobody learns who holds a lock, and hosts that disagree on the number of slots do not notice. Nor does anybody learn that a
//     slot was abandoned, or when a name last succeeded: Grant.PreviousExpired is false, and Info.SinceSuccess 0.
//   - An attempt may be refused although there was a free slot at every moment, if slots change hands while it looks at one after the other.
//   - It needs a connection of its own to the one server that grants: no pooler that shares connections (PgBouncer with
//     pool_mode=transaction or statement), no replica, no cluster of several primaries. What can be found out about that is, and is refused with
//     the reason: when the connection is made a second one is opened for a moment, which must not get what the first one holds. Every
//     answer tells whether the session still is the same.
//
// What is kept: one holder per slot while the connections last; a lease that is not extended ends after its TTL, because this process
// unlocks it; what a process holds is free as soon as it dies. How long a host keeps its locks that was stopped, or has
// vanished without closing its connection, is said at PostgresAdvisory, MySQLGetLock and SQLServerAppLock. A grant is of use to the Native that got it
// only, not to another process that knows its token.
//
// All locks of a process are held on one connection. It is taken out of the *sql.DB at the first use, replaced when it breaks, and kept until Close; so the
// pool has one connection less, and must allow for two. Calls wait for each other, which is no matter: each is one round trip. One
// that the server does not answer goes on after its caller has given up, because to interrupt it would end the connection and every lease
// with it, until the last lease has ended.
//
// A run whose connection breaks is cancelled with dlock.ErrLost at the next heartbeat, whatever the timer's OnStoreDown: its lock
// has certainly ended. Call Close before the *sql.DB is closed.
type Native struct {
	db      *sql.DB
	dialect nativeDialect
	prefix  string
	fault   error

	life context.Context // ended by Close
	end  context.CancelFunc

	turn    chan struct{}  // held by whoever uses session
	session *nativeSession // nil: none yet, or it broke

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
	expiry *time.Timer // goes off when the first lease ends
}

// A nativeDialect is what differs between the databases. The answer to a statement is one row of two texts: which session answered, and
// the answer proper, which may be null. In a session other than the one it is meant for, a statement changes nothing.
type nativeDialect interface {
	// String is the label of the store in metrics and logs.
	String() string
	// key is what a lock is called in the database.
	key(resource [sha256.Size]byte) string
	// open makes a connection a session of ours; mark is a random text. The answer says why it cannot be used, or is null.
	open(mark string) nativeStatement
	// look changes nothing. Its answer is null.
	look() nativeStatement
	// keep tells the server for how long the session may be idle before it is to be ended. Its answer is null.
	keep(session string, idle time.Duration) nativeStatement
	// try takes the first of the locks that is free. The statements are asked in turn until one answers with the index of a lock. idle is as for
	// keep, in case one is taken.
	try(session string, keys []string, idle time.Duration) []nativeStatement
	// free unlocks. The answers, put together, have a 1 for each lock that the session had, and a 0 for one that it had not. idle is as for keep.
	free(session string, keys []string, idle time.Duration) []nativeStatement
	// clear unlocks those of the locks that the session has.
	clear(session string, keys []string) []nativeStatement
	// idle is keep for a dialect whose other statements cannot tell it; "" for all others.
	idle(d time.Duration) string
	// bye is executed before a connection is closed, if it still lives; "" for nothing.
	bye() string
}

type nativeStatement struct {
	text string
	args []any
}

var (
	errNativeTick = fmt.Errorf("sqllock: %w: native locks cannot count the starts of a tick: "+
		"set MaxPerTick: timer.NoLimit, or use a store on a table, such as sqllock.Postgres", dlock.ErrFault)
	errNativeClosed = errors.New("sqllock: the store is closed")
)

func newNative(db *sql.DB, opts NativeOptions, dialect nativeDialect) *Native {
	n := &Native{db: db, dialect: dialect, prefix: opts.Prefix, turn: make(chan struct{}, 1)}
	n.life, n.end = context.WithCancel(context.Background())
	var faults []error
	if db == nil {
		faults = append(faults, errNoDB)
	}
	if len(opts.Prefix) > dlock.MaxNameLen {
		faults = append(faults, fmt.Errorf("sqllock: Prefix of %d bytes: at most %d", len(opts.Prefix), dlock.MaxNameLen))
	}
	if !utf8.ValidString(opts.Prefix) || strings.ContainsFunc(opts.Prefix, unicode.IsControl) {
		faults = append(faults, fmt.Errorf("sqllock: Prefix %q: use text without control characters", opts.Prefix))
	}
	n.fault = errors.Join(faults...)
	return n
}

// Check implements dlock.Checker: it returns the faults of the options and of the pool.
func (n *Native) Check() error {
	if err := n.usable(); err != nil {
		return err
	}
	return n.twoConns()
}

func (n *Native) usable() error {
	if n == nil || n.dialect == nil {
		return errors.New("sqllock: an empty *Native: make one with PostgresAdvisory, MySQLGetLock or SQLServerAppLock")
	}
	return n.fault
}

func (n *Native) String() string {
	if n == nil || n.dialect == nil {
		return "sql-native"
	}
	return n.dialect.String()
}

// lock is the key of a lock. The kind and the number of the slot stand before the name, between zero bytes, which no name has in it: so
// no two locks are hashed from the same text.
func (n *Native) lock(name string, slots, slot int) string {
	kind := "mutex"
	if slots > 0 {
		kind = "slot"
	}
	return n.dialect.key(sha256.Sum256([]byte("tickslot lock 1\x00" + kind + "\x00" + strconv.Itoa(slot) + "\x00" + n.prefix + name)))
}

// TryAcquire implements dlock.DistributedLock.
func (n *Native) TryAcquire(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
	if err := n.usable(); err != nil {
		return dlock.Grant{}, err
	}
	if err := req.Validate(); err != nil {
		return dlock.Grant{}, err
	}
	if req.Tick != nil {
		return dlock.Grant{}, errNativeTick
	}
	slot, err := inTurn(n, ctx, func(ctx context.Context) (slot int, err error) {
		fresh, err := n.connect(ctx)
		if err != nil {
			return 0, err
		}
		slot, err = n.acquire(ctx, req)
		if n.session == nil && !fresh && !errors.Is(err, errNotOurs) && ctx.Err() == nil {
			// It broke while it lay idle. What it may have locked just now has ended with it.
			if _, err = n.connect(ctx); err == nil {
				slot, err = n.acquire(ctx, req)
			}
		}
		return slot, err
	})
	if err != nil {
		return dlock.Grant{}, err
	}
	if slot < 0 {
		return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: dlock.ReasonFull, Slots: req.Slots}
	}
	return dlock.Grant{Name: req.Name, Slots: req.Slots, Slot: slot, Token: req.Token}, nil
}

// Extend implements dlock.DistributedLock. One round trip, whatever the number of grants, shows that the connection lives and leads to the session
// that holds them.
func (n *Native) Extend(ctx context.Context, ttl time.Duration, grants ...dlock.Grant) ([]dlock.Result, error) {
	if ttl < time.Millisecond || ttl > dlock.MaxTTL {
		return nil, fmt.Errorf("sqllock: a TTL of %v: must be 1ms to %v", ttl, dlock.MaxTTL)
	}
	return n.each(ctx, grants, func(ctx context.Context, held []*nativeLease) error { return n.extend(ctx, ttl, held) })
}

// Release implements dlock.DistributedLock.
func (n *Native) Release(ctx context.Context, grants ...dlock.Grant) ([]dlock.Result, error) {
	return n.each(ctx, grants, func(ctx context.Context, held []*nativeLease) error {
		n.release(ctx, held)
		return nil
	})
}

// each does something with those of the grants that are held. The others are lost, and so are all if the session ended meanwhile.
func (n *Native) each(ctx context.Context, grants []dlock.Grant, do func(context.Context, []*nativeLease) error) ([]dlock.Result, error) {
	if err := n.usable(); err != nil {
		return nil, err
	}
	for _, g := range grants {
		if err := (dlock.Request{Name: g.Name, Slots: g.Slots, Token: g.Token, TTL: time.Second}).Validate(); err != nil {
			return nil, err
		}
	}
	return inTurn(n, ctx, func(ctx context.Context) ([]dlock.Result, error) {
		results := make([]dlock.Result, len(grants))
		var held []*nativeLease
		for i, g := range grants {
			results[i].Outcome = dlock.GrantLost
			if l := n.find(g); l != nil {
				held = append(held, l)
				results[i].Outcome = dlock.GrantOK
			}
		}
		if len(held) == 0 {
			return results, nil
		}
		err := do(ctx, held)
		if n.session == nil {
			for i := range results {
				results[i].Outcome = dlock.GrantLost
			}
			return results, nil
		}
		return results, err
	})
}

// Close frees all locks and gives the connection back. It waits for nobody: a call that is under way ends with an error.
func (n *Native) Close() error {
	if n == nil || n.dialect == nil {
		return nil
	}
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	if n.expiry != nil {
		n.expiry.Stop()
	}
	n.mu.Unlock()
	n.end()
	n.calls.Wait()
	if !first || n.session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leastPatience)
	defer cancel()
	n.release(ctx, n.session.all()) // they would end with the connection, too, but a moment later
	n.disconnect()
	return nil
}
