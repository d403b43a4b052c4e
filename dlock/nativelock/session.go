package nativelock

import (
	"context"
	"crypto/rand"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A session is the connection that holds all locks, with its leases.
type session struct {
	conn   *sql.Conn
	id     string
	idle   time.Duration // idle time after which the server ends the session; 0 for never
	leases map[leaseID]*lease
	keys   map[string]bool
	first  time.Time // no lease ends before this
}

// A leaseID identifies a grant. The token alone does not, because it may be used for several names.
type leaseID struct {
	name  string
	mutex bool
	token string
}

type lease struct {
	leaseID
	slot      int
	key       string
	expiresAt time.Time
}

func leaseIDOf(name string, slots int, token string) leaseID {
	return leaseID{name, slots == 0, token}
}

func (s *session) all() []*lease {
	list := make([]*lease, 0, len(s.leases))
	for _, l := range s.leases {
		list = append(list, l)
	}
	return list
}

// setEnd sets when a lease ends.
func (s *session) setEnd(l *lease, expiresAt time.Time) {
	l.expiresAt = expiresAt
	if len(s.leases) == 1 || expiresAt.Before(s.first) {
		s.first = expiresAt
	}
}

// last returns when the last lease ends. It returns the zero time if there are no leases.
func (s *session) last() (t time.Time) {
	for _, l := range s.leases {
		if l.expiresAt.After(t) {
			t = l.expiresAt
		}
	}
	return t
}

func (s *session) forget(leases []*lease) {
	for _, l := range leases {
		delete(s.leases, l.leaseID)
		delete(s.keys, l.key)
	}
}

const (
	// minCallTime is how long a call continues after its caller has left. Most drivers end the
	// connection when they interrupt a statement, and with it every lock of this process.
	minCallTime = time.Second
	// idleGrace is how much longer than the longest lease a session may be idle. It lets a live
	// process unlock first.
	idleGrace = time.Second
)

// inTurn waits for the caller's turn and then calls work on a new goroutine. So the caller returns
// when ctx ends, even if the server hangs, and work may continue until the last lease has ended.
// Interrupting its statement would end the connection and with it every lease.
func inTurn[T any](n *Store, ctx context.Context, work func(context.Context) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return none, errClosed
	}
	n.calls.Add(1)
	n.mu.Unlock()
	select {
	case n.turn <- struct{}{}:
	case <-ctx.Done():
		n.calls.Done()
		return none, fmt.Errorf(
			"nativelock: the connection that holds the locks is still busy with an earlier call: %w", ctx.Err())
	case <-n.life.Done():
		n.calls.Done()
		return none, errClosed
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		defer n.calls.Done()
		until := time.Now().Add(minCallTime)
		if t, ok := ctx.Deadline(); !ok {
			until = time.Now().Add(sqlkit.LastResort)
		} else if t.After(until) {
			until = t
		}
		if n.session != nil && n.session.last().After(until) {
			until = n.session.last()
		}
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
		defer cancel()
		defer context.AfterFunc(n.life, cancel)()
		var a answer
		func() {
			// On this goroutine, a driver's panic would end the process.
			defer func() {
				if p := recover(); p != nil {
					n.abandon()
					a.err = fmt.Errorf("nativelock: the driver panicked: %v", p)
				}
			}()
			n.freeExpired(ctx)
			a.value, a.err = work(ctx)
		}()
		n.schedule()
		<-n.turn
		answered <- a
	}()
	select {
	case a := <-answered:
		if a.err != nil && n.life.Err() != nil {
			return none, errClosed
		}
		return a.value, a.err
	case <-ctx.Done():
		return none, fmt.Errorf("nativelock: the database did not answer in time: %w", ctx.Err())
	}
}

// schedule sets the timer for the lease that ends first.
func (s *Store) schedule() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
	if s.closed || s.session == nil || len(s.session.leases) == 0 {
		return
	}
	s.expiry = time.AfterFunc(time.Until(s.session.first), func() {
		// Every call frees expired leases.
		_, _ = inTurn(s, s.life, func(context.Context) (struct{}, error) { return struct{}{}, nil })
	})
}

// freeExpired unlocks the leases that were not extended in time.
func (s *Store) freeExpired(ctx context.Context) {
	session, now := s.session, time.Now()
	if session == nil || len(session.leases) == 0 || now.Before(session.first) {
		return
	}
	var ended []*lease
	session.first = session.last()
	for _, l := range session.leases {
		switch {
		case !now.Before(l.expiresAt):
			ended = append(ended, l)
		case l.expiresAt.Before(session.first):
			session.first = l.expiresAt
		}
	}
	if len(ended) > 0 {
		s.release(ctx, ended)
	}
}

// find returns the lease of a grant, or nil.
func (s *Store) find(g driver.Grant) *lease {
	if s.session == nil {
		return nil
	}
	l := s.session.leases[leaseIDOf(g.Name, g.Slots, g.Token)]
	if l == nil || g.Slot != driver.AnySlot && g.Slot != l.slot {
		return nil
	}
	return l
}

// acquire returns the slot that it took or that this token already had. It returns -1 if no slot is
// free.
func (s *Store) acquire(ctx context.Context, req driver.Request) (slot int, err error) {
	session := s.session
	if l := s.find(driver.Grant{Name: req.Name, Slots: req.Slots, Token: req.Token, Slot: driver.AnySlot}); l != nil {
		if l.slot >= max(req.Slots, 1) {
			return 0, fmt.Errorf("nativelock: %w: the token was granted slot %d before, and now asks for one of %d",
				driver.ErrFault, l.slot, req.Slots)
		}
		return l.slot, s.extend(ctx, req.TTL, []*lease{l})
	}
	// A session can lock its own locks again, so skip those.
	var keys []string
	var slots []int
	for i := range max(req.Slots, 1) {
		if key := s.lock(req.Name, req.Slots, i); !session.keys[key] {
			keys, slots = append(keys, key), append(slots, i)
		}
	}
	if len(keys) == 0 {
		return -1, nil
	}
	idle := s.idleLimit(req.TTL)
	for _, st := range s.dialect.try(session.id, keys, idle) {
		answer, err := s.ask(ctx, st)
		if err != nil {
			s.clear(ctx, keys) // a lock may have been taken before the failure
			return 0, err
		}
		if !answer.Valid {
			continue
		}
		i, err := strconv.Atoi(answer.String)
		if err != nil || i < 0 || i >= len(keys) {
			s.clear(ctx, keys)
			return 0, fmt.Errorf("%w: it locked number %q of %d", errAnswer, answer.String, len(keys))
		}
		l := &lease{leaseID: leaseIDOf(req.Name, req.Slots, req.Token), slot: slots[i], key: keys[i]}
		session.leases[l.leaseID], session.keys[l.key] = l, true
		session.setEnd(l, time.Now().Add(req.TTL))
		if err := s.setIdleLimit(ctx, idle); err != nil {
			return 0, err
		}
		return l.slot, nil
	}
	return -1, nil
}

// clear unlocks all locks that a failed statement may have taken. If clear fails, too, it ends the
// connection.
func (s *Store) clear(ctx context.Context, keys []string) {
	if s.session == nil {
		return
	}
	id := s.session.id
	// The second statement writes warnings to the server's log. But it works even if the lock table
	// is too full for reading pg_locks.
	for _, way := range [][]statement{s.dialect.clear(id, keys), s.dialect.free(id, keys, s.session.idle)} {
		failed := false
		for _, st := range way {
			if _, err := s.ask(ctx, st); s.session == nil {
				return
			} else if err != nil {
				failed = true
			}
		}
		if !failed {
			return
		}
	}
	s.disconnect()
}

// extend extends leases to ttl from now if the session still holds them.
func (s *Store) extend(ctx context.Context, ttl time.Duration, leases []*lease) error {
	idle := s.idleLimit(ttl)
	if _, err := s.ask(ctx, s.dialect.keep(s.session.id, idle)); err != nil {
		return err
	}
	for _, l := range leases {
		s.session.setEnd(l, time.Now().Add(ttl))
	}
	return s.setIdleLimit(ctx, idle)
}

// release unlocks the locks of leases. If this fails, it ends the session, which also unlocks them.
func (s *Store) release(ctx context.Context, leases []*lease) {
	session := s.session
	keys := make([]string, len(leases))
	for i, l := range leases {
		keys[i] = l.key
	}
	idle := session.idle
	if len(leases) == len(session.leases) {
		idle = 0
	}
	var freed strings.Builder
	for _, st := range s.dialect.free(session.id, keys, idle) {
		answer, err := s.ask(ctx, st)
		if err != nil {
			s.clear(ctx, keys) // locks that were freed before the failure must not count as held
			if s.session != nil {
				session.forget(leases)
			}
			return
		}
		freed.WriteString(answer.String)
	}
	session.forget(leases)
	if freed.String() != strings.Repeat("1", len(keys)) {
		s.disconnect() // another client unlocked in our session, so the state of all locks is unknown
		return
	}
	_ = s.setIdleLimit(ctx, idle) // the leases have ended even if this fails
}

// idleLimit returns how long the session may be idle if it also holds a lease of ttl.
func (s *Store) idleLimit(ttl time.Duration) time.Duration { return max(s.session.idle, ttl+idleGrace) }

// setIdleLimit records how long the session may be idle. It also sets this on the server, unless
// the previous statement has done so.
func (s *Store) setIdleLimit(ctx context.Context, idle time.Duration) error {
	session := s.session
	if text := s.dialect.idle(idle); text != "" && idle != session.idle {
		if _, err := session.conn.ExecContext(ctx, text); err != nil {
			s.disconnect()
			return s.explain(err)
		}
	}
	session.idle = idle
	return nil
}

// ask executes a statement in the session. If the session is broken or shared, it ends the session.
func (s *Store) ask(ctx context.Context, st statement) (answer sql.NullString, err error) {
	session := s.session
	who, answer, err := askConn(ctx, session.conn, st)
	if err == nil && who == session.id {
		return answer, nil
	}
	if err != nil {
		// Either the statement or the connection failed.
		again, _, broken := askConn(ctx, session.conn, s.dialect.probe())
		if broken == nil && again == session.id {
			return answer, s.explain(err)
		}
		who = again
		if broken != nil {
			s.disconnect()
			return answer, s.explain(err)
		}
	}
	s.disconnect()
	if strings.HasSuffix(who, readOnlyMark) && !strings.HasSuffix(session.id, readOnlyMark) {
		return answer, fmt.Errorf("nativelock: %w: %s", driver.ErrSetup, hasBecomeReadOnly)
	}
	return answer, fmt.Errorf("%w: it was session %s, and is %s", errNotOurs, sessionID(session.id), sessionID(who))
}

func askConn(ctx context.Context, conn *sql.Conn, st statement) (who string, answer sql.NullString, err error) {
	err = sqlkit.QueryRow(ctx, conn, st.text, st.args, &who, &answer)
	return who, answer, err
}

// sessionID returns a session without its mark, as the server's tools show it.
func sessionID(session string) string {
	id, _, _ := strings.Cut(session, " ")
	return id
}

// disconnect ends the connection and with it every lock.
func (s *Store) disconnect() {
	if s.session == nil {
		return
	}
	conn := s.session.conn
	s.session = nil
	s.endConn(conn)
}

// abandon is a disconnect after a panic of the driver. database/sql then holds an internal lock
// that conn.Close would wait for forever.
func (s *Store) abandon() {
	if s.session == nil {
		return
	}
	conn := s.session.conn
	s.session = nil
	_ = conn.Raw(func(c any) error { return c.(sqldriver.Conn).Close() })
}

// endConn closes a connection instead of returning it to the pool.
func (s *Store) endConn(conn *sql.Conn) {
	if text := s.dialect.beforeClose(); text != "" {
		ctx, cancel := context.WithTimeout(context.Background(), minCallTime)
		_, _ = conn.ExecContext(ctx, text)
		cancel()
	}
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}

// connect opens a session if there is none, and reports whether it did.
func (s *Store) connect(ctx context.Context) (fresh bool, err error) {
	if s.session != nil {
		return false, nil
	}
	if err := s.checkPoolSize(); err != nil {
		return false, err
	}
	for tries := 0; ; tries++ {
		conn, err := s.take(ctx)
		if err != nil {
			return false, explain(fmt.Errorf("no connection for the locks: %w", err))
		}
		id, refusal, err := askConn(ctx, conn, s.dialect.open(rand.Text()))
		switch {
		case errors.Is(err, sqldriver.ErrBadConn) && tries < sqlkit.MaxStale: // it was closed while in the pool
			s.endConn(conn)
			continue
		case err != nil:
			s.endConn(conn)
			return false, s.explain(err)
		case refusal.Valid:
			s.endConn(conn)
			return false, fmt.Errorf("nativelock: %w: %s", driver.ErrSetup, refusal.String)
		}
		s.session = &session{conn: conn, id: id, leases: map[leaseID]*lease{}, keys: map[string]bool{}}
		if err := s.checkSession(ctx); err != nil {
			s.disconnect()
			return false, err
		}
		return true, nil
	}
}
