package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"testing"
)

// A hook sits between database/sql and a driver, and sees every statement before and after its
// execution.
type hook struct {
	mu     sync.Mutex
	before func(statement string)
	after  func(statement string)
	seen   []string
	text   string // the statement that was executed last
}

// open returns a pool whose statements the hook sees.
func (h *hook) open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	plain := openSQLite(t, dsn)
	db := sql.OpenDB(hookedConnector{plain.Driver(), dsn, h})
	db.SetMaxOpenConns(4)
	t.Cleanup(func() { db.Close() })
	return db
}

// statements returns the first words of the statements executed during do, without comments and
// arguments.
func (h *hook) statements(do func()) []string {
	h.mu.Lock()
	h.seen = nil
	h.mu.Unlock()
	do()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

// set makes the hook call these functions from now on. nil means no call.
func (h *hook) set(before, after func(statement string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before, h.after = before, after
}

func (h *hook) around(query string) func() {
	for strings.HasPrefix(query, "--") {
		_, query, _ = strings.Cut(query, "\n")
	}
	words := strings.Fields(query)
	words = words[:min(2, len(words))]
	if words[0] != "PRAGMA" && words[0] != "BEGIN" {
		words = words[:1]
	}
	statement := strings.Join(words, " ")
	h.mu.Lock()
	h.seen, h.text = append(h.seen, statement), query
	before, after := h.before, h.after
	h.mu.Unlock()
	if before != nil {
		before(statement)
	}
	return func() {
		if after != nil {
			after(statement)
		}
	}
}

type hookedConnector struct {
	driver driver.Driver
	dsn    string
	hook   *hook
}

func (c hookedConnector) Driver() driver.Driver { return c.driver }

func (c hookedConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &hookedConn{conn, c.hook}, nil
}

type hookedConn struct {
	driver.Conn
	hook *hook
}

func (c *hookedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	defer c.hook.around(query)()
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *hookedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	defer c.hook.around(query)()
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *hookedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &hookedStmt{s, query, c.hook}, nil
}

type hookedStmt struct {
	driver.Stmt
	query string
	hook  *hook
}

func (s *hookedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	defer s.hook.around(s.query)()
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s *hookedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	defer s.hook.around(s.query)()
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}
