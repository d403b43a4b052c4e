package nativelock

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

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Options are the settings of a Store. The zero value is valid.
type Options struct {
	// Prefix is put before every name, so that several applications can share a database. All hosts
	// that compete for the same locks need the same prefix. At most 256 bytes of text without
	// control characters. Default "".
	Prefix string
}

// Store implements driver.Store within the limits in the package comment.
type Store struct {
	db      *sql.DB
	dialect dialect
	prefix  string
	fault   error

	life context.Context // ended by Close
	end  context.CancelFunc

	turn    chan struct{} // held by the call that uses session
	session *session      // nil before the first connection, or after it broke

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
	expiry *time.Timer // fires when the first lease ends
}

// A dialect provides the SQL of one database. Each statement returns one row with two texts: the
// session that answered, and the answer, which may be null. If that session is not the one that the
// statement names, the statement changes nothing.
type dialect interface {
	// String is the label of the store in metrics and logs.
	String() string
	// key returns the name of a lock in the database.
	key(resource [sha256.Size]byte) string
	// open marks a connection as ours with mark, a random text. The answer is null, or says why the
	// connection cannot be used.
	open(mark string) statement
	// probe changes nothing. Its answer is null.
	probe() statement
	// keep sets the time after which the server ends the idle session. Its answer is null.
	keep(session string, idle time.Duration) statement
	// try takes the first free lock. The statements are executed in turn until one returns the
	// index of a lock. If a lock is taken, try sets idle as keep does.
	try(session string, keys []string, idle time.Duration) []statement
	// free unlocks locks. The joined answers have a 1 for each lock that the session held and a 0
	// for each other lock. free sets idle as keep does.
	free(session string, keys []string, idle time.Duration) []statement
	// clear unlocks the locks that the session holds, and ignores the others.
	clear(session string, keys []string) []statement
	// idle returns the statement that sets the idle time if the other statements of the dialect
	// cannot set it, and "" otherwise.
	idle(d time.Duration) string
	// beforeClose returns the statement to execute before a live connection is closed, or "".
	beforeClose() string
}

type statement struct {
	text string
	args []any
}

var (
	errTick = fmt.Errorf("nativelock: %w: native locks cannot count the starts of a tick: "+
		"set MaxPerTick: timer.NoLimit, or use a store on a table, such as sqllock.Postgres", driver.ErrFault)
	errShared = fmt.Errorf("nativelock: %w: native locks are taken one at a time: use a store on a table, such as "+
		"sqllock.Postgres", driver.ErrFault)
	errClosed = fmt.Errorf("nativelock: %w", driver.ErrClosed)
	errNoDB   = errors.New("nativelock: no *sql.DB: pass one")
	errAnswer = errors.New("nativelock: the database gave an answer that makes no sense")
)

// explain adds to a driver's error how to repair it, and makes it match an error of package driver
// if one fits.
func explain(err error) error { return fmt.Errorf("nativelock: %w", sqlkit.Explain(err)) }

func newStore(db *sql.DB, opts Options, dialect dialect) *Store {
	n := &Store{db: db, dialect: dialect, prefix: opts.Prefix, turn: make(chan struct{}, 1)}
	n.life, n.end = context.WithCancel(context.Background())
	var faults []error
	if db == nil {
		faults = append(faults, errNoDB)
	}
	if len(opts.Prefix) > driver.MaxNameLen {
		faults = append(faults, fmt.Errorf("nativelock: Prefix of %d bytes: at most %d", len(opts.Prefix),
			driver.MaxNameLen))
	}
	if !utf8.ValidString(opts.Prefix) || strings.ContainsFunc(opts.Prefix, unicode.IsControl) {
		faults = append(faults, fmt.Errorf("nativelock: Prefix %q: use text without control characters", opts.Prefix))
	}
	n.fault = errors.Join(faults...)
	return n
}

// Check implements driver.Checker. It returns the faults of the options and of the pool.
func (s *Store) Check() error {
	if err := s.usable(); err != nil {
		return err
	}
	return s.checkPoolSize()
}

func (s *Store) usable() error {
	if s == nil || s.dialect == nil {
		return fmt.Errorf("nativelock: %w: an empty *Store: make one with PostgresAdvisory, MySQLGetLock or "+
			"SQLServerAppLock", driver.ErrSetup)
	}
	if s.fault != nil {
		return fmt.Errorf("%w: %w", driver.ErrSetup, s.fault)
	}
	return nil
}

func (s *Store) String() string {
	if s == nil || s.dialect == nil {
		return "sql-native"
	}
	return s.dialect.String()
}

// lock returns the key of a lock. Its text separates kind, slot and name by zero bytes, which no
// name contains, so no two locks have the same text.
func (s *Store) lock(name string, slots, slot int) string {
	kind := "mutex"
	if slots > 0 {
		kind = "slot"
	}
	return s.dialect.key(sha256.Sum256([]byte("tickslot lock 1\x00" + kind + "\x00" + strconv.Itoa(slot) + "\x00" +
		s.prefix + name)))
}

// TryAcquire implements driver.Store.
func (s *Store) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.usable(); err != nil {
		return driver.Grant{}, err
	}
	if err := req.Validate(); err != nil {
		return driver.Grant{}, err
	}
	if req.Tick != nil {
		return driver.Grant{}, errTick
	}
	if len(req.Shared) > 0 {
		return driver.Grant{}, errShared
	}
	slot, err := inTurn(s, ctx, func(ctx context.Context) (slot int, err error) {
		fresh, err := s.connect(ctx)
		if err != nil {
			return 0, err
		}
		slot, err = s.acquire(ctx, req)
		if s.session == nil && !fresh && !errors.Is(err, errNotOurs) && ctx.Err() == nil {
			// The connection broke while it was idle. A lock that it has just taken ended with it.
			if _, err = s.connect(ctx); err == nil {
				slot, err = s.acquire(ctx, req)
			}
		}
		return slot, err
	})
	if err != nil {
		return driver.Grant{}, err
	}
	if slot < 0 {
		return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonFull, Slots: req.Slots}
	}
	return driver.Grant{Name: req.Name, Slots: req.Slots, Slot: slot, Token: req.Token}, nil
}

// Extend implements driver.Store. In one round trip for all grants, it checks that the connection
// still leads to the session that holds them.
func (s *Store) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	if ttl < time.Millisecond || ttl > driver.MaxTTL {
		return nil, fmt.Errorf("nativelock: a TTL of %v: must be 1ms to %v", ttl, driver.MaxTTL)
	}
	return s.each(ctx, grants, func(ctx context.Context, held []*lease) error { return s.extend(ctx, ttl, held) })
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return s.each(ctx, grants, func(ctx context.Context, held []*lease) error {
		s.release(ctx, held)
		return nil
	})
}

// each calls do with the grants that are held. The others are lost. If the session ends meanwhile,
// all are lost.
func (s *Store) each(ctx context.Context, grants []driver.Grant,
	do func(context.Context, []*lease) error) ([]driver.Result, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	for _, g := range grants {
		if err := (driver.Request{Name: g.Name, Slots: g.Slots, Token: g.Token,
			TTL: time.Second}).Validate(); err != nil {
			return nil, err
		}
	}
	return inTurn(s, ctx, func(ctx context.Context) ([]driver.Result, error) {
		results := make([]driver.Result, len(grants))
		var held []*lease
		for i, g := range grants {
			results[i].Outcome = driver.GrantLost
			if l := s.find(g); l != nil {
				held = append(held, l)
				results[i].Outcome = driver.GrantOK
			}
		}
		if len(held) == 0 {
			return results, nil
		}
		err := do(ctx, held)
		if s.session == nil {
			for i := range results {
				results[i].Outcome = driver.GrantLost
			}
			return results, nil
		}
		return results, err
	})
}

// Close frees all locks and closes the connection. It does not wait for calls in progress. These
// and later calls return an error that matches driver.ErrClosed.
func (s *Store) Close() error {
	if s == nil || s.dialect == nil {
		return nil
	}
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	if s.expiry != nil {
		s.expiry.Stop()
	}
	s.mu.Unlock()
	s.end()
	s.calls.Wait()
	if !first || s.session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), minCallTime)
	defer cancel()
	s.release(ctx, s.session.all()) // closing would also free them, but a moment later
	s.disconnect()
	return nil
}
