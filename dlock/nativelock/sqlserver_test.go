package nativelock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A fakeSQLServer is a driver.Connector that executes the statements of SQLServerAppLock according
// to the manual of SQL Server. The statements have not been run on a real server.
type fakeSQLServer struct {
	t     testing.TB
	mu    sync.Mutex
	spid  int
	locks map[string]appLock
	texts map[string]bool // all statements sent so far

	readOnly bool
	alwaysOK bool   // grant every lock
	result   int    // result of sp_getapplock, unless 0
	answer   string // answer of try, unless ""
	moved    bool   // the session is not the connection's
	panics   bool
	stale    int // the server has closed the connections up to this number
}

type appLock struct{ spid, times int }

func newFakeSQLServer(t testing.TB) *fakeSQLServer {
	return &fakeSQLServer{t: t, locks: map[string]appLock{}, texts: map[string]bool{}}
}

func (f *fakeSQLServer) open(t testing.TB, opts nativelock.Options) *nativelock.Store {
	db := sql.OpenDB(f)
	n := nativelock.SQLServerAppLock(db, opts)
	t.Cleanup(func() { n.Close(); db.Close() })
	return n
}

func (f *fakeSQLServer) Driver() sqldriver.Driver { return nil }

func (f *fakeSQLServer) Connect(context.Context) (sqldriver.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spid++
	return &fakeConn{f, f.spid}, nil
}

type fakeConn struct {
	*fakeSQLServer
	id int
}

func (c *fakeConn) Prepare(string) (sqldriver.Stmt, error) { return nil, errors.New("not prepared") }
func (c *fakeConn) Begin() (sqldriver.Tx, error)           { return c, nil }
func (c *fakeConn) BeginTx(context.Context, sqldriver.TxOptions) (sqldriver.Tx, error) {
	if c.id <= c.stale {
		return nil, sqldriver.ErrBadConn
	}
	return c, nil
}
func (c *fakeConn) Commit() error   { return nil }
func (c *fakeConn) Rollback() error { return nil }

// Close ends the session and its locks.
func (c *fakeConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, l := range c.locks {
		if l.spid == c.id {
			delete(c.locks, name)
		}
	}
	return nil
}

func (c *fakeConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts[text] = true
	session := strconv.Itoa(c.id)
	if c.moved {
		session = strconv.Itoa(c.id + 1000)
	}
	switch {
	case strings.Contains(text, "sp_getapplock"):
		answer, err := c.try(session, args)
		return &fakeRows{session, answer, false}, err
	case strings.Contains(text, "sp_releaseapplock"):
		return &fakeRows{session, c.free(session, args), false}, nil
	case strings.Contains(text, "Updateability") && c.readOnly:
		return &fakeRows{session, "this database is read-only", false}, nil
	case strings.HasPrefix(text, "SELECT CAST(@@SPID AS nvarchar(11)), "):
		return &fakeRows{session, nil, false}, nil
	}
	c.t.Errorf("sent %q", text)
	return nil, errors.New("not known")
}

// names splits the arguments as the scripts do: @p1 is the session, @p2 the names, @p3 the length
// of each in characters, and @p4 their number.
func (c *fakeConn) names(args []sqldriver.NamedValue) (session string, names []string) {
	if len(args) != 4 {
		c.t.Errorf("%d arguments: want 4", len(args))
		return "", nil
	}
	all, length, n := args[1].Value.(string), args[2].Value.(int64), args[3].Value.(int64)
	if int64(len(all)) != length*n || length > 255 {
		c.t.Errorf("%d names of %d characters in %d", n, length, len(all))
	}
	for i := range n {
		names = append(names, all[i*length:(i+1)*length])
	}
	return args[0].Value.(string), names
}

func (c *fakeConn) try(session string, args []sqldriver.NamedValue) (answer any, err error) {
	if c.panics {
		panic("a driver's bug")
	}
	if c.answer != "" {
		return c.answer, nil
	}
	mine, names := c.names(args)
	if mine != session {
		return nil, nil
	}
	for i, name := range names {
		l, taken := c.locks[name]
		if taken && l.spid != c.id && !c.alwaysOK {
			continue
		}
		c.locks[name] = appLock{c.id, l.times + 1}
		if c.result != 0 {
			return nil, fmt.Errorf("mssql: tickslot: sp_getapplock answered %d", c.result)
		}
		return strconv.Itoa(i), nil
	}
	return nil, nil
}

func (c *fakeConn) free(session string, args []sqldriver.NamedValue) any {
	mine, names := c.names(args)
	if mine != session {
		return nil
	}
	var freed strings.Builder
	for _, name := range names {
		switch l := c.locks[name]; {
		case l.spid != c.id:
			freed.WriteString("0")
		case l.times > 1:
			c.t.Errorf("%s was locked %d times by one session", name, l.times)
			fallthrough
		default:
			delete(c.locks, name)
			freed.WriteString("1")
		}
	}
	return freed.String()
}

type fakeRows struct {
	session string
	answer  any
	read    bool
}

func (r *fakeRows) Columns() []string { return []string{"", ""} }
func (r *fakeRows) Close() error      { return nil }
func (r *fakeRows) Next(dest []sqldriver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read = true
	dest[0], dest[1] = r.session, r.answer
	return nil
}

func TestConformanceSQLServerAppLock(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	conform(t, 3, func(t testing.TB) func() driver.Store {
		server := newFakeSQLServer(t)
		return func() driver.Store { return server.open(t, nativelock.Options{}) }
	})
}

// The statements follow the manual: they take session-level locks, without waiting, in a script
// that tries one lock after the other.
//
// Fails when @LockOwner, @LockTimeout or the check of the session is removed from
// sqlserver_try.sql.
func TestStatementsSQLServerAppLock(t *testing.T) {
	t.Parallel()
	server := newFakeSQLServer(t)
	n := server.open(t, nativelock.Options{})
	g := mustGet(t, n, request("x", 3, time.Minute))
	results, err := n.Extend(t.Context(), time.Minute, g)
	outcomes(t, results, err, driver.GrantOK)
	results, err = n.Release(t.Context(), g)
	outcomes(t, results, err, driver.GrantOK)
	var all strings.Builder
	for text := range server.texts {
		all.WriteString(text)
	}
	for _, want := range []string{
		"EXEC @result = sys.sp_getapplock @Resource = @name, @LockMode = 'Exclusive',\n\t\t\t@LockOwner = 'Session', " +
			"@LockTimeout = 0;",
		"WHILE @result = -1 AND @i < @p4", "IF @result < -1\n\tBEGIN\n\t\tRAISERROR",
		"EXEC @result = sys.sp_releaseapplock @Resource = @name, @LockOwner = 'Session';",
		"IF APPLOCK_MODE('public', @name, 'Session') = 'Exclusive'",
		"DATABASEPROPERTYEX(DB_NAME(), 'Updateability') = 'READ_WRITE'",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("nothing that was sent has %q in it", want)
		}
	}
	if n := strings.Count(all.String(), "IF CAST(@@SPID AS nvarchar(11)) = @p1"); n != 2 {
		t.Errorf("%d statements look whose session it is before they change anything, want try and free", n)
	}
	if len(server.texts) != 4 {
		t.Errorf("%d statements, want open, look, try and free, the same whatever the names", len(server.texts))
	}
}

// If a lock turns out not to have been held, all leases of the session are lost.
//
// Fails when release ignores the answers.
func TestUnlockedBehindOurBackSQLServerAppLock(t *testing.T) {
	t.Parallel()
	server := newFakeSQLServer(t)
	n := server.open(t, nativelock.Options{})
	x := mustGet(t, n, request("x", 0, time.Minute))
	server.mu.Lock()
	clear(server.locks)
	server.mu.Unlock()
	y := mustGet(t, n, request("y", 0, time.Minute))
	results, err := n.Release(t.Context(), x)
	outcomes(t, results, err, driver.GrantLost)
	results, err = n.Extend(t.Context(), time.Minute, y)
	outcomes(t, results, err, driver.GrantLost)
	mustGet(t, n, request("y", 0, time.Minute))
}

// If the server closed connections that were idle in the pool, they are replaced, even if they are
// needed only briefly.
//
// Fails when checkSession tries only one connection.
func TestStaleConnsSQLServerAppLock(t *testing.T) {
	t.Parallel()
	server := newFakeSQLServer(t)
	db := sql.OpenDB(server)
	db.SetMaxIdleConns(5)
	var conns []*sql.Conn
	for range 5 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Close()
	}
	server.stale = 5
	n := nativelock.SQLServerAppLock(db, nativelock.Options{})
	t.Cleanup(func() { n.Close(); db.Close() })
	mustGet(t, n, request("x", 0, time.Minute))
}

// Answers are checked like any input, and failures of the server leave nothing locked.
//
// Fails when checkSession is left out, when an index is not checked, when acquire does not call
// clear, and when a panic is not recovered.
func TestAnswersSQLServerAppLock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		spoil func(*fakeSQLServer)
		early bool // occurs before the first call
		setup bool
		want  string
	}{
		{"a read-only database", func(f *fakeSQLServer) { f.readOnly = true }, true, true, "read-only"},
		{"locks that keep nobody out", func(f *fakeSQLServer) { f.alwaysOK = true }, true, true, "two connections"},
		{"another session", func(f *fakeSQLServer) { f.moved = true }, false, true, "it was session 1, and is 1001"},
		{"an index out of range", func(f *fakeSQLServer) { f.answer = "3" }, false, false, "makes no sense"},
		{"an index that is none", func(f *fakeSQLServer) { f.answer = "x" }, false, false, "makes no sense"},
		{"a panic", func(f *fakeSQLServer) { f.panics = true }, false, false, "panicked: a driver's bug"},
		{"a deadlock victim", func(f *fakeSQLServer) { f.result = -3 }, false, false, "answered -3"},
	} {
		t.Run(c.what, func(t *testing.T) {
			server := newFakeSQLServer(t)
			n := server.open(t, nativelock.Options{})
			if c.early {
				c.spoil(server)
			} else {
				results, err := n.Release(t.Context(), mustGet(t, n, request("first", 0, time.Minute)))
				outcomes(t, results, err, driver.GrantOK)
				c.spoil(server)
			}
			g, err := n.TryAcquire(t.Context(), request("x", 3, time.Minute))
			if err == nil || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrSetup) != c.setup ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("slot %d, %v: must be an error that tells %q", g.Slot, err, c.want)
			}
			if len(server.locks) > 0 {
				t.Errorf("left behind: %v", server.locks)
			}
		})
	}
}
