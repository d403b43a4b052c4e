//go:build unix

package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/durable/internal/storetest"
	"github.com/tickslot/tickslot/internal/testkit"
)

// postgresChild is the environment variable that makes the test binary a child process: see
// storetest.Crash.
const postgresChild = "TICKSLOT_TEST_DURABLE_POSTGRES_CHILD"

func init() {
	storetest.Child(os.Getenv(postgresChild), func(dsn string, k *storetest.Killer) (store.Store, error) {
		var s *Store
		pool, err := statementPool(dsn, &statements{of: &s, next: k.Statement})
		if err == nil {
			s, err = New(pool, Options{TableName: "durable", Schema: "public"})
		}
		return s, err
	})
}

// readers are the statements that only operators and migrations execute, and the parts of other
// statements.
var readers = []string{"cancel", "candidates", "columns", "flow", "forget_attempts", "forget_schedule", "free",
	"holds_key", "indexes", "list_attempts", "list_histories", "list_runs", "list_schedules", "next_partition",
	"next_queued", "of_state", "peers_of", "peers_with", "priorities", "requeue", "run", "schema",
	"set_handler", "set_schedule"}

// Three processes share one server. They are killed one after the other at every statement that a
// worker sends: before the statement, so that the server has only the previous statements, and
// after it, so that the server gets no further statements.
//
// Fails when Finish writes the attempt and the state of a run in two transactions, or when a cycle
// does not execute a statement of the worker.
func TestProcessesAreKilledAtEveryStatement(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	c := storetest.Crash{Store: s, Env: postgresChild, Arg: d.server.DSN("", "", d.name)}
	list := c.Statements(t)
	for name := range s.texts {
		// A variant of the same statement waits: locks of other processes decide which of the two a
		// cycle executes.
		plain := strings.TrimSuffix(name, "_and_wait")
		if !slices.Contains(list, plain) && !slices.Contains(list, plain+"_and_wait") &&
			!slices.Contains(readers, name) {
			t.Errorf("no process is killed at the statement %s: make storetest.Cycle execute it", name)
		}
	}
	c.Kill(list, testkit.Rounds(t, 4, 2*len(list)))
}

// Same as above, but the test cuts the connection and the worker continues. The worker does not
// know whether the server has executed the statement, and repeats the call.
func TestConnectionsAreCutAtEveryStatement(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	c := storetest.Crash{Store: s, Env: postgresChild, Arg: d.server.DSN("", "", d.name)}
	list := c.Statements(t)
	points := storetest.Points(list)
	all := 2 * len(points)
	rounds, offset := testkit.Rounds(t, 8, all), time.Now().Nanosecond()
	var cutting *Store
	point, during, executed, cut := "", false, map[string]int{}, 0
	pool, err := statementPool(c.Arg, &statements{of: &cutting, next: func(name string) func() {
		executed[name]++
		if point != fmt.Sprint(name, "#", executed[name]) {
			return nil
		}
		point = ""
		cut++
		if !during {
			panic(errCut)
		}
		return func() { panic(errCut) }
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	cutting = on(t, pool, "durable")
	cycles := 0
	for i := range rounds {
		k := (offset%all + i*all/rounds) % all
		point, during = points[k/2], k%2 == 1
		clear(executed)
		for end := cycles + 200; point != "" && cycles < end; cycles++ { // not every cycle executes all statements
			if err := storetest.Cycle(cutting, "cut", cycles); (err == nil) != (point != "") {
				t.Errorf("the connection was cut at %s: %v", points[k/2], err)
			}
		}
		if err := storetest.Cycle(cutting, "cut", cycles); err != nil {
			t.Errorf("after the connection was cut at %s: %v", points[k/2], err)
		}
		cycles++
	}
	if cut != rounds {
		t.Errorf("%d connections were cut, want %d", cut, rounds)
	}
	c.Check()
}

var errCut = errors.New("the connection was cut by the test")

// statements observes every statement before it is sent. Only one worker at a time may use it.
type statements struct {
	of   **Store // the store with the texts of the statements
	next func(name string) (begun func())
}

// statementPool returns a pool whose connections report every statement. The pool prepares nothing,
// so that each statement is sent with its text.
func statementPool(dsn string, tell *statements) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &statementConn{Conn: conn, tell: tell}, err
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// A statementConn reads what a client sends.
type statementConn struct {
	net.Conn
	tell    *statements
	greeted bool
	text    string // of the latest statement
	before  string // the name of the previous statement
	rest    []byte // of an incomplete message
}

// Write implements net.Conn. It passes the messages on one by one.
func (c *statementConn) Write(p []byte) (_ int, err error) {
	defer func() {
		if cut := recover(); cut == errCut {
			_ = c.Conn.Close()
			err = errCut
		} else if cut != nil {
			panic(cut)
		}
	}()
	c.rest = append(c.rest, p...)
	for {
		head := 5 // type and length of a message; the first message of a connection has no type
		if !c.greeted {
			head = 4
		}
		if len(c.rest) < head {
			return len(p), nil
		}
		size := head - 4 + int(binary.BigEndian.Uint32(c.rest[head-4:head]))
		if len(c.rest) < size {
			return len(p), nil
		}
		message := c.rest[:size]
		c.rest = c.rest[size:]
		if err := c.pass(message); err != nil {
			return 0, err
		}
		c.greeted = true
	}
}

func (c *statementConn) pass(message []byte) error {
	var begun func()
	switch {
	case !c.greeted:
	case message[0] == 'P': // Parse: an empty name and the text
		_, text, _ := strings.Cut(string(message[5:]), "\x00")
		c.text, _, _ = strings.Cut(text, "\x00")
	case message[0] == 'E': // Execute
		name := c.name()
		begun = c.tell.next(name)
		c.before = name
	}
	_, err := c.Conn.Write(message)
	if begun != nil {
		time.Sleep(rand.N(2 * time.Millisecond)) // the server may or may not have executed it
		begun()
	}
	return err
}

// name returns the name of the latest statement.
func (c *statementConn) name() string {
	if s := *c.tell.of; s != nil {
		for name, text := range s.texts {
			if text == c.text {
				return name
			}
		}
	}
	if c.text == "COMMIT" {
		return "COMMIT:" + c.before
	}
	word, _, _ := strings.Cut(c.text, " ")
	return word
}
