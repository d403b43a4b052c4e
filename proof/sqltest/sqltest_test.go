package sqltest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

// settleLimit bounds every wait for an expected event.
const settleLimit = 30 * time.Second

// startEnv makes the test binary a program that starts servers and waits to be killed.
const startEnv = "SQLTEST_START"

func TestMain(m *testing.M) {
	if os.Getenv(startEnv) != "" {
		fmt.Println(startAndWait())
		os.Exit(1)
	}
	servertest.Main(m, func() error { return goleak.Find() })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ask executes SQL, and returns the rows.
func ask(t *testing.T, s *Server, database, sql string) string {
	t.Helper()
	rows, err := s.Exec(database, sql)
	must(t, err)
	return rows
}

// A session is a client that stays connected.
type session struct {
	t    *testing.T
	in   io.Writer
	rows chan string // closed when the client has ended
	end  func()
}

func connect(t *testing.T, client *exec.Cmd) *session {
	t.Helper()
	in, err := client.StdinPipe()
	must(t, err)
	out, err := client.StdoutPipe()
	must(t, err)
	must(t, client.Start())
	done := make(chan struct{})
	s := &session{t: t, in: in, rows: make(chan string), end: sync.OnceFunc(func() {
		close(done)
		_ = client.Process.Kill()
		_ = client.Wait() // it was killed
	})}
	t.Cleanup(s.end)
	go func() {
		defer close(s.rows)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case s.rows <- lines.Text():
			case <-done:
			}
		}
	}()
	return s
}

func (s *session) send(sql string) {
	_, _ = io.WriteString(s.in, sql+"\n") // an ended client is detected through rows
}

// row returns the next row, or "" if the client has ended.
func (s *session) row() string {
	s.t.Helper()
	select {
	case row := <-s.rows:
		return row
	case <-time.After(settleLimit):
		s.t.Fatal("no answer")
		return ""
	}
}

func (s *session) ask(sql string) string {
	s.t.Helper()
	s.send(sql)
	return s.row()
}

// silent fails the test if a row arrives.
func (s *session) silent(why string) {
	s.t.Helper()
	select {
	case row, ok := <-s.rows:
		s.t.Fatalf("%s: it answered %q, %t", why, row, ok)
	case <-time.After(300 * time.Millisecond):
	}
}

// leftovers returns an error while a process is running in the folder.
func leftovers(dir string) func(context.Context) error {
	return func(context.Context) error {
		all, err := filepath.Glob("/proc/[0-9]*/cwd")
		for _, path := range all {
			if at, err := os.Readlink(path); err == nil && strings.HasPrefix(at, dir) {
				return fmt.Errorf("%s is in %s", path, at)
			}
		}
		return err
	}
}

// gone fails the test if a closed server has left something.
func gone(t *testing.T, s *Server) {
	t.Helper()
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder is left: %v", err)
	}
	if err := leftovers(s.Dir())(t.Context()); err != nil {
		t.Error(err)
	}
	if s.Log() == "" {
		t.Error("the log is lost")
	}
}

// stores are the servers that keep data.
var stores = []struct {
	name  string
	start func(testing.TB, ...Options) *Server
}{
	{"Postgres", Postgres},
	{"MariaDB", MariaDB},
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			s := store.start(t)
			addr, pid := s.Addr(), s.Pid()
			db := s.NewDatabase(t)
			ask(t, s, db, "CREATE TABLE t (i INTEGER); INSERT INTO t VALUES (1)")
			if err := s.Restart(); err == nil {
				t.Fatal("restart of a running server succeeded")
			}
			// A session must end, too. It has its own server process.
			open := connect(t, s.client(db))
			if i := open.ask("SELECT i FROM t;"); i != "1" {
				t.Fatalf("i is %q", i)
			}
			must(t, s.Kill())
			if row := open.ask("SELECT i FROM t;"); row != "" {
				t.Fatalf("killed server answers %q", row)
			}
			if s.Pid() != 0 {
				t.Fatal("pid of a dead server")
			}
			if err := s.Kill(); err == nil {
				t.Fatal("kill of a dead server succeeded")
			}
			must(t, leftovers(s.Dir())(t.Context()))
			must(t, s.Restart())
			if s.Addr() != addr || s.Pid() == pid || s.Pid() == 0 {
				t.Fatalf("restarted at %s as %d, was %s, %d", s.Addr(), s.Pid(), addr, pid)
			}
			ask(t, s, db, "INSERT INTO t VALUES (2)")
			must(t, s.Stop())
			must(t, leftovers(s.Dir())(t.Context()))
			must(t, s.Restart())
			if rows := ask(t, s, db, "SELECT i FROM t ORDER BY i"); rows != "1\n2" {
				t.Fatalf("after a kill and a stop: %q", rows)
			}
			s.Close()
			s.Close()
			gone(t, s)
			if err := s.Restart(); err == nil {
				t.Fatal("restart of a closed server succeeded")
			}
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			s := store.start(t)
			open := connect(t, s.client(""))
			if row := open.ask("SELECT 1;"); row != "1" {
				t.Fatalf("row %q", row)
			}
			must(t, s.Pause())
			late := connect(t, s.client(""))
			open.send("SELECT 2;")
			late.send("SELECT 3;")
			open.silent("paused")
			late.silent("paused")
			must(t, s.Resume())
			if a, b := open.row(), late.row(); a != "2" || b != "3" {
				t.Fatalf("resumed: %q, %q", a, b)
			}
			// A paused server can still be stopped in each way.
			must(t, s.Pause())
			must(t, s.Stop())
			must(t, s.Restart())
			must(t, s.Pause())
			must(t, s.Kill())
			must(t, s.Restart())
			must(t, s.Pause())
			s.Close()
			open.end()
			late.end()
			gone(t, s)
		})
	}
}

// A killed Postgres leaves shared memory, which Close removes.
func TestSharedMemory(t *testing.T) {
	t.Parallel()
	const table = "/proc/sysvipc/shm"
	_, err := os.Stat(table)
	servertest.Require(t, err, "run it on Linux, where the blocks can be listed")
	s := Postgres(t)
	must(t, s.Kill())
	text, err := os.ReadFile(filepath.Join(s.Dir(), "data", "postmaster.pid"))
	must(t, err)
	block := strings.Fields(strings.Split(string(text), "\n")[6])[1]
	exists := func() bool {
		text, err := os.ReadFile(table)
		must(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Fields(line)[1] == block {
				return true
			}
		}
		return false
	}
	if !exists() {
		t.Fatalf("no block %s", block)
	}
	s.Close()
	if exists() {
		t.Fatalf("block %s is left", block)
	}
}

func TestNewDatabase(t *testing.T) {
	t.Parallel()
	for _, store := range []struct {
		name                        string
		start                       func(testing.TB) *Server
		clause, list, encoding, one string
	}{
		{"Postgres", SharedPostgres, "ENCODING 'LATIN1' TEMPLATE template0",
			"SELECT datname FROM pg_database", "SHOW server_encoding", "LATIN1"},
		{"MariaDB", SharedMariaDB, "CHARACTER SET latin1 COLLATE latin1_german1_ci",
			"SHOW DATABASES", "SELECT @@collation_database", "latin1_german1_ci"},
	} {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			s := store.start(t)
			if s != store.start(t) {
				t.Fatal("two shared servers")
			}
			var db string
			t.Run("in use", func(t *testing.T) {
				db = s.NewDatabase(t, store.clause)
				if one := ask(t, s, db, store.encoding); one != store.one {
					t.Errorf("%s is %q", store.encoding, one)
				}
				ask(t, s, db, "CREATE TABLE t (i INTEGER); INSERT INTO t VALUES (1)")
				// The session's locks must not keep the database from being dropped.
				open := connect(t, s.client(db))
				open.send("BEGIN;")
				if row := open.ask("SELECT i FROM t;"); row != "1" {
					t.Fatalf("row %q", row)
				}
				if all := ask(t, s, "", store.list); !strings.Contains(all, db) {
					t.Fatalf("no %s in %s", db, all)
				}
			})
			if all := ask(t, s, "", store.list); strings.Contains(all, db) {
				t.Fatalf("%s is still there", db)
			}
		})
	}
}

// The next test gets the database of an earlier one, but only if that is like a new one.
//
// Fails when vacate does not compare the states.
func TestDatabasesAreEmptyAgain(t *testing.T) {
	server := Postgres(t)
	used := map[string]bool{}
	use := func(statements string) (again bool) {
		t.Helper()
		t.Run("test", func(t *testing.T) {
			name := server.NewDatabase(t)
			again = used[name]
			used[name] = true
			out, err := server.Exec(name, `SELECT setting FROM pg_settings WHERE name = 'work_mem';
				SELECT count(*) FROM pg_class WHERE oid >= 16384; SELECT has_table_privilege('app', 'pg_class', 'SELECT');
				SELECT has_schema_privilege('app', 'public', 'CREATE'); SELECT count(*) FROM pg_event_trigger;
				SELECT count(*) FROM pg_proc WHERE proname = 'mine'`)
			if want := "4096\n0\nt\nf\n0\n0"; err != nil || out != want {
				t.Errorf("a new database: %q, %v: must have %q", out, err, want)
			}
			if _, err := server.Exec(name, fmt.Sprintf(statements, name)); err != nil {
				t.Error(err)
			}
		})
		return again
	}
	use("CREATE TABLE a (b int); CREATE SCHEMA c; CREATE FUNCTION c.mine() RETURNS int LANGUAGE sql AS 'SELECT 1';" +
		"GRANT CREATE ON SCHEMA public TO app; -- %s")
	for _, change := range []string{
		"ALTER DATABASE %s SET work_mem = '1MB'",
		"CREATE FUNCTION pg_catalog.mine() RETURNS int LANGUAGE sql AS 'SELECT 1' -- %s",
		"REVOKE SELECT ON pg_class FROM PUBLIC -- %s",
		"CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'; SET allow_system_table_mods = on;" +
			"CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION f() -- %s",
	} {
		if !use("CREATE TABLE a (b int) -- %s") {
			t.Errorf("a database that can be emptied is dropped")
		}
		use(change)
		if use("SELECT 1 -- %s") && !strings.Contains(change, "EVENT TRIGGER") { // which ends with its function
			t.Errorf("%s: the next test has that database", change)
		}
	}
}

// A session whose client belongs to another database's test may stay connected while the database
// is dropped.
func TestDropsOverASession(t *testing.T) {
	t.Parallel()
	for _, start := range []func(testing.TB) *Server{SharedPostgres, SharedMariaDB} {
		s := start(t)
		var open *session
		t.Run("database", func(inner *testing.T) {
			db := s.NewDatabase(inner)
			ask(t, s, db, "CREATE TABLE t (i INTEGER); INSERT INTO t VALUES (1)")
			open = connect(t, s.client(db)) // ends with the outer test
			open.send("BEGIN;")
			open.ask("SELECT i FROM t;")
		})
		if row := open.ask("SELECT i FROM t;"); row != "" {
			t.Fatalf("the table is still there: %q", row)
		}
	}
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	const pid = "SELECT pg_backend_pid();"
	pg := SharedPostgres(t)
	db := pg.NewDatabase(t)
	pooled := PgBouncer(t, pg, "transaction", Options{Settings: []string{"default_pool_size=1"}})
	a, b := connect(t, pooled.client(db)), connect(t, pooled.client(db))
	if one, other := a.ask(pid), b.ask(pid); one != other {
		t.Fatalf("backends %s and %s", one, other)
	}
	a.send("BEGIN;")
	a.ask(pid)
	b.send(pid)
	b.silent("the only backend is in a transaction")
	c, d := connect(t, pooled.client("")), connect(t, pooled.client(BouncerAside))
	c.send("BEGIN;")
	c.ask(pid)
	if base := d.ask("SELECT current_database();"); base != "postgres" { // its pool has another backend
		t.Fatalf("%s is the database %q", BouncerAside, base)
	}
	a.send("COMMIT;")
	b.row()
	if pools := ask(t, pooled, "pgbouncer", "SHOW POOLS"); !strings.Contains(pools, db+"|postgres|") {
		t.Fatalf("pools: %s", pools)
	}
	must(t, pooled.Kill())
	must(t, pooled.Restart())
	must(t, pooled.Stop())
	must(t, pooled.Restart())
	ask(t, pooled, db, pid)
	pooled.Close()
	a.end()
	b.end()
	c.end()
	d.end()
	gone(t, pooled)

	whole := PgBouncer(t, pg, "session")
	a, b = connect(t, whole.client(db)), connect(t, whole.client(db))
	if one, other := a.ask(pid), b.ask(pid); one == other {
		t.Fatalf("two sessions on backend %s", one)
	}
}

func TestDSN(t *testing.T) {
	t.Parallel()
	pg, maria := SharedPostgres(t), SharedMariaDB(t)
	for _, c := range []struct{ got, want string }{
		{pg.DSN("", "", ""), "postgres://postgres:" + servertest.Canary + "@" + pg.Addr() +
			"/postgres?sslmode=disable"},
		{pg.DSN("u", "p@/", "d"), "postgres://u:p%40%2F@" + pg.Addr() + "/d?sslmode=disable"},
		{maria.DSN("", "", ""), "root:" + servertest.Canary + "@tcp(" + maria.Addr() + ")/"},
		{maria.DSN("u", "p@/", "d"), "u:p@/@tcp(" + maria.Addr() + ")/d"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
	// Exec uses the socket, so it does not show that root can connect over TCP.
	client := maria.client("")
	client.Args = append(client.Args, "--protocol=tcp", "--host=127.0.0.1", fmt.Sprint("--port=", maria.Port()))
	client.Env = append(client.Env, "MYSQL_PWD="+servertest.Canary)
	client.Stdin = strings.NewReader("SELECT current_user()")
	if user, err := maria.Run(client); err != nil || user != "root@127.0.0.1\n" {
		t.Errorf("over TCP: %q, %v", user, err)
	}
}

func TestErrorsSayWhatTheServerSaid(t *testing.T) {
	t.Parallel()
	bad := Options{Settings: []string{"no_such_setting=1"}}
	for name, start := range map[string]func() (*Server, error){
		"Postgres": func() (*Server, error) { RequirePostgres(t); return StartPostgres(bad) },
		"MariaDB":  func() (*Server, error) { RequireMariaDB(t); return StartMariaDB(bad) },
		"PgBouncer": func() (*Server, error) {
			RequirePgBouncer(t)
			return StartPgBouncer(SharedPostgres(t), "no such mode", Options{})
		},
	} {
		s, err := start()
		if err == nil {
			s.Close()
			t.Errorf("%s started", name)
		} else if !strings.Contains(err.Error(), "no") || !strings.Contains(err.Error(), "such") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, s := range []*Server{SharedPostgres(t), SharedMariaDB(t)} {
		rows, err := s.Exec("", "SELECT 1; SELECT nosuch; SELECT 2")
		if err == nil || !strings.Contains(err.Error(), "nosuch") {
			t.Errorf("%q, %v", rows, err)
		}
	}
}

// startAndWait starts one of each server, prints their folders, and leaves them running like a
// killed test binary.
func startAndWait() error {
	pg, err := StartPostgres(Options{})
	if err != nil {
		return err
	}
	defer pg.Close()
	maria, err := StartMariaDB(Options{})
	if err != nil {
		return err
	}
	defer maria.Close()
	bouncer, err := StartPgBouncer(pg, "session", Options{})
	if err != nil {
		return err
	}
	fmt.Println(pg.Dir(), maria.Dir(), bouncer.Dir())
	select {}
}

func TestServersDieWithTheTestBinary(t *testing.T) {
	t.Parallel()
	RequirePostgres(t)
	RequireMariaDB(t)
	RequirePgBouncer(t)
	if runtime.GOOS != "linux" {
		servertest.Require(t, errors.New("a signal when a parent dies"), "run it on Linux")
	}
	self, err := os.Executable()
	must(t, err)
	binary := exec.Command(self)
	binary.Env = append(os.Environ(), startEnv+"=1")
	out, err := binary.StdoutPipe()
	must(t, err)
	must(t, binary.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, binary.Process.Kill())
	_ = binary.Wait() // it was killed
	must(t, err)
	for _, dir := range strings.Fields(line) {
		if !filepath.IsAbs(dir) {
			t.Fatal(line)
		}
		defer os.RemoveAll(dir)
		must(t, testkit.Poll(settleLimit, "end of the servers", leftovers(dir)))
		removeSharedMemory(dir)
	}
}
