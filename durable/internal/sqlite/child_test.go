//go:build unix

package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/tickslot/tickslot/durable/internal/sqlite"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/durable/internal/storetest"
)

// sqliteChild is the environment variable that makes the test binary a child process. Its value has
// the task, the statement at which to be killed, and the path of the file.
const sqliteChild = "TICKSLOT_TEST_DURABLE_CHILD"

func init() {
	env := os.Getenv(sqliteChild)
	if path, ok := strings.CutPrefix(env, "lock - "); ok {
		lock(path)
	}
	storetest.Child(env, func(path string, k *storetest.Killer) (store.Store, error) {
		inner, err := sql.Open("sqlite", "")
		if err != nil {
			return nil, err
		}
		sql.Register("killer", &killer{Driver: inner.Driver(), k: k})
		db, err := sql.Open("killer", dsn(path))
		if err != nil {
			return nil, err
		}
		return sqlite.New(db, table, "")
	})
}

// lock locks the file until its input ends.
func lock(path string) {
	db, err := sql.Open("sqlite", dsn(path))
	if err == nil {
		_, err = db.Exec("BEGIN IMMEDIATE")
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("locked")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	os.Exit(0)
}

// A killer is a driver that reports every statement to a storetest.Killer.
type killer struct {
	driver.Driver
	k *storetest.Killer
}

// statement is called just before a statement is executed.
func (k *killer) statement(text string) {
	for strings.HasPrefix(text, "--") {
		_, text, _ = strings.Cut(text, "\n")
	}
	begun := k.k.Statement(strings.Fields(text)[0])
	if begun == nil {
		return
	}
	go func() { // kill the process during the statement
		for end := time.Now().Add(rand.N(300 * time.Microsecond)); time.Now().Before(end); {
		}
		begun()
	}()
}

// Open implements driver.Driver.
func (k *killer) Open(name string) (driver.Conn, error) {
	conn, err := k.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(fullConn)
	if !ok {
		return nil, errors.New("the driver has changed")
	}
	return killerConn{full, k}, nil
}

type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

type killerConn struct {
	fullConn
	k *killer
}

func (c killerConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.k.statement(query)
	return c.fullConn.ExecContext(ctx, query, args)
}

func (c killerConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.k.statement(query)
	return c.fullConn.QueryContext(ctx, query, args)
}

func (c killerConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.fullConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return killerStmt{s.(fullStmt), c.k, query}, nil
}

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type killerStmt struct {
	fullStmt
	k    *killer
	text string
}

func (s killerStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.k.statement(s.text)
	return s.fullStmt.ExecContext(ctx, args)
}

func (s killerStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.k.statement(s.text)
	return s.fullStmt.QueryContext(ctx, args)
}
