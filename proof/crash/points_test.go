//go:build unix

package crash

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

// A killer sees every statement of this process, prints new ones, and kills the process before or
// after one of them, so that none of our code runs any more.
//
// A statement is identified by its text and the earlier statements of its transaction: the COMMIT
// of Append differs from that of Mark.
type killer struct {
	at    string // the statement, or ""
	after bool

	mu   sync.Mutex      // shared by all connections
	seen map[string]bool // nil: print nothing
}

// A session is the current transaction of a connection.
type session struct {
	*killer
	path []string
}

func (k *killer) session() *session { return &session{killer: k} }

var (
	// Literal arguments, as in MySQL and in the lock calls on Postgres ('…' ::text).
	literals = regexp.MustCompile(`x'[0-9a-f]*'|'(?:[^']|'')*' ?::|\b\d+\b`)
	lists    = regexp.MustCompile(`\?(?:, \?)+`)
	spaces   = regexp.MustCompile(`\s+`)
)

// before is called before a statement. It returns a function to call after it, or nil.
func (s *session) before(text string) (after func()) { return s.beforeThis(text, func() {}) }

// beforeThis is before, for callers that must do something before the process is killed.
func (s *session) beforeThis(text string, prepare func()) (after func()) {
	text = literals.ReplaceAllString(text, "?")
	text = strings.TrimSpace(spaces.ReplaceAllString(lists.ReplaceAllString(text, "?"), " "))
	word, _, _ := strings.Cut(strings.ToUpper(text), " ")
	begins, ends := word == "BEGIN" || word == "START", word == "COMMIT" || word == "ROLLBACK"
	if begins {
		s.path = nil
	}
	point := append(s.path[:len(s.path):len(s.path)], text)
	if s.path != nil || begins {
		s.path = point
	}
	if ends {
		s.path = nil
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", point)
	id := fmt.Sprintf("%016x", h.Sum64())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen != nil && !s.seen[id] {
		s.seen[id] = true
		fmt.Println("statement", id, strings.Join(point, " ; "))
	}
	if id != s.at {
		return nil
	}
	if !s.after {
		prepare()
		die()
	}
	return die
}

// execute runs f, which executes a statement before it returns.
func execute[T any](s *session, text string, f func() (T, error)) (T, error) {
	after := s.before(text)
	answer, err := f()
	if err != nil && len(s.path) == 1 { // the transaction has not begun: SQLite was busy
		s.path = nil
	}
	if after != nil && !errors.Is(err, driver.ErrSkip) { // ErrSkip: the statement is prepared next instead
		after()
	}
	return answer, err
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// watched returns a connection whose statements the killer sees.
func (k *killer) watched(conn driver.Conn, err error) (driver.Conn, error) {
	if err != nil {
		return nil, err
	}
	full, ok := conn.(fullConn)
	if !ok {
		return nil, errors.New("the driver has changed")
	}
	return watchedConn{full, k.session()}, nil
}

// fullConn has the methods of both drivers' connections that database/sql uses.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type watchedConn struct {
	fullConn
	s *session
}

func (c watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return execute(c.s, query, func() (driver.Result, error) { return c.fullConn.ExecContext(ctx, query, args) })
}

func (c watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return execute(c.s, query, func() (driver.Rows, error) { return c.fullConn.QueryContext(ctx, query, args) })
}

func (c watchedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := execute(c.s, "BEGIN", func() (driver.Tx, error) { return c.fullConn.BeginTx(ctx, opts) })
	return watchedTx{tx, c.s}, err
}

func (c watchedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.fullConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return watchedStmt{stmt.(fullStmt), c.s, query}, nil
}

type watchedTx struct {
	tx driver.Tx
	s  *session
}

func (t watchedTx) Commit() error   { return t.end("COMMIT", t.tx.Commit) }
func (t watchedTx) Rollback() error { return t.end("ROLLBACK", t.tx.Rollback) }

func (t watchedTx) end(text string, f func() error) error {
	_, err := execute(t.s, text, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type watchedStmt struct {
	fullStmt
	s    *session
	text string
}

func (s watchedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return execute(s.s, s.text, func() (driver.Result, error) { return s.fullStmt.ExecContext(ctx, args) })
}

func (s watchedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return execute(s.s, s.text, func() (driver.Rows, error) { return s.fullStmt.QueryContext(ctx, args) })
}
