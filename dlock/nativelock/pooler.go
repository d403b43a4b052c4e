package nativelock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// errNotOurs reports a pooler that may give each transaction or statement a different server
// connection.
var errNotOurs = fmt.Errorf("nativelock: %w: a pooler shares server connections among its clients (PgBouncer with "+
	"pool_mode=transaction or statement), "+
	"and native locks need one of their own: connect directly to the server, or through a pool "+
	"with pool_mode=session, "+
	"or use a store on a table, such as sqllock.Postgres, which needs none", driver.ErrSetup)

// checkPoolSize returns an error if the pool has no room for a second connection.
func (s *Store) checkPoolSize() error {
	if s.db.Stats().MaxOpenConnections != 1 {
		return nil
	}
	return fmt.Errorf("nativelock: %w: this *sql.DB may open one connection only; native locks keep that, and need "+
		"a second one for a moment to "+
		"see that no pooler shares them with others: call db.SetMaxOpenConns(2), or more", driver.ErrSetup)
}

// take takes a connection out of the pool. If all are in use, it fails early enough for the caller
// to get the reason.
func (s *Store) take(ctx context.Context) (*sql.Conn, error) {
	if stats := s.db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		until, _ := ctx.Deadline() // inTurn has set a deadline
		ctx, cancel := context.WithTimeout(ctx, time.Until(until)/3)
		defer cancel()
		conn, err := s.db.Conn(ctx)
		if err != nil {
			err = fmt.Errorf("all %d connections of the pool are in use: allow more, or give the locks a *sql.DB of "+
				"their own: %w", stats.InUse, err)
		}
		return conn, err
	}
	return s.db.Conn(ctx)
}

// compareRounds is how often the sessions are compared. An idle pooler reuses its last connection,
// so the first round detects it. At a busy pooler, another client may take that connection, so that
// our session has changed by the next round. By chance we may get it back: with two rounds, that
// happened once in several hundred stores.
const compareRounds = 4

// checkSession checks that the new session is not shared and that its locks exclude others. It
// compares the session with a second connection in a transaction, for which a pooler must reserve a
// server connection.
func (s *Store) checkSession(ctx context.Context) error {
	for tries := 0; ; tries++ {
		other, err := s.take(ctx)
		if err != nil {
			return noSecondConn(err)
		}
		if err = s.checkAgainst(ctx, other); err == nil {
			_ = other.Close()
			return nil
		}
		s.endConn(other)
		// After ErrBadConn try another connection: this one was closed while it lay in the pool.
		if !errors.Is(err, sqldriver.ErrBadConn) || s.session == nil || tries == sqlkit.MaxStale {
			return err
		}
	}
}

func (s *Store) checkAgainst(ctx context.Context, other *sql.Conn) error {
	for range compareRounds {
		if err := s.compareSessions(ctx, other); err != nil {
			return err
		}
	}
	return s.checkExclusion(ctx, other)
}

func noSecondConn(err error) error {
	return explain(fmt.Errorf("no second connection: the store briefly needs one to check that no pooler shares its "+
		"connections with others: every pool in between must have room for one more: %w", err))
}

// compareSessions asks each connection for its session while the other one is in a transaction.
func (s *Store) compareSessions(ctx context.Context, other *sql.Conn) error {
	tx, err := other.BeginTx(ctx, nil)
	if told := s.explain(err); errors.Is(told, errNotOurs) {
		return told
	} else if err != nil {
		return noSecondConn(err) // only now does a pooler connect to the server
	}
	defer tx.Rollback()
	var id string
	var none sql.NullString
	if err := sqlkit.QueryRow(ctx, tx, s.dialect.probe().text, nil, &id, &none); err != nil {
		return s.explain(err)
	}
	if sessionID(id) == sessionID(s.session.id) {
		return fmt.Errorf("%w: two connections, used at the same time, both are session %s", errNotOurs, sessionID(id))
	}
	if _, err := s.ask(ctx, s.dialect.probe()); err != nil {
		return err
	}
	if err := tx.Rollback(); err != nil {
		return s.explain(err)
	}
	return nil
}

// checkExclusion tries to take, on the second connection, a lock that the first one holds. Some
// servers with the same protocol always grant. Some clusters have separate locks on each node. A
// MySQL before 5.7 drops a lock when it grants another.
func (s *Store) checkExclusion(ctx context.Context, other *sql.Conn) error {
	id, _, err := askConn(ctx, other, s.dialect.probe())
	if err != nil {
		return s.explain(err)
	}
	var keys []string
	for range 2 {
		keys = append(keys, s.dialect.key(sha256.Sum256([]byte("tickslot proof\x00"+rand.Text()))))
		if _, err := s.ask(ctx, s.dialect.try(s.session.id, keys[len(keys)-1:], 0)[0]); err != nil {
			return err
		}
	}
	_, taken, err := askConn(ctx, other, s.dialect.try(id, keys[:1], 0)[0])
	if err != nil {
		return s.explain(err)
	}
	if taken.Valid {
		return fmt.Errorf("nativelock: %w: this server grants a lock to two connections, so it cannot limit "+
			"anything: use a store on a table", driver.ErrSetup)
	}
	freed, err := s.ask(ctx, s.dialect.free(s.session.id, keys, 0)[0])
	if err == nil && freed.String != "11" {
		err = fmt.Errorf("%w: two locks taken, and freed %q", errAnswer, freed.String)
	}
	return err
}

// explain adds to an error how to repair it. Some errors reveal a pooler.
func (s *Store) explain(err error) error {
	switch state := sqlkit.State(err); {
	case err == nil, errors.Is(err, errNotOurs):
		return err
	// The prepared statement is on another server connection or already exists, or BEGIN is not
	// allowed.
	case state == "26000" || state == "42P05" ||
		state == "08P01" && strings.Contains(err.Error(), "statement pooling"):
		return fmt.Errorf("%w: %w", errNotOurs, err)
	case state == "53200":
		return fmt.Errorf(
			"nativelock: %w: the server has no room for another lock: raise max_locks_per_transaction: %w",
			driver.ErrFault, err)
	}
	return explain(err)
}
