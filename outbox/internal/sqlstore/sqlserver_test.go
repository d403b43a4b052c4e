package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
	"github.com/tickslot/tickslot/outbox/internal/store"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A scripted driver answers with the given rows and records the statements. The statements have not
// been run on SQL Server, so these tests check only what can be checked without it.
type scripted struct {
	answers [][]driver.Value
	texts   []string
	args    [][]driver.NamedValue
}

func (s *scripted) Driver() driver.Driver                        { return nil }
func (s *scripted) Connect(context.Context) (driver.Conn, error) { return scriptedConn{s}, nil }

type scriptedConn struct{ *scripted }

func (c scriptedConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (c scriptedConn) Begin() (driver.Tx, error)           { return c, nil }
func (c scriptedConn) Commit() error                       { return nil }
func (c scriptedConn) Rollback() error                     { return nil }
func (c scriptedConn) Close() error                        { return nil }

func (c scriptedConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.texts, c.args = append(c.texts, query), append(c.args, args)
	if len(c.answers) == 0 {
		return &scriptedRows{}, nil
	}
	row := c.answers[0]
	c.answers = c.answers[1:]
	return &scriptedRows{row: row}, nil
}

// number is an error with a number, like the errors of go-mssqldb.
type number int32

func (n number) Error() string         { return "mssql: refused" }
func (n number) SQLErrorNumber() int32 { return int32(n) }

func (c scriptedConn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.texts, c.args = append(c.texts, query), append(c.args, args)
	if strings.Contains(query, "_inbox") {
		return nil, number(2627)
	}
	return nil, number(2601)
}

type scriptedRows struct{ row []driver.Value }

func (r *scriptedRows) Columns() []string { return make([]string, len(r.row)) }
func (r *scriptedRows) Close() error      { return nil }

func (r *scriptedRows) Next(dest []driver.Value) error {
	if r.row == nil {
		return io.EOF
	}
	copy(dest, r.row)
	r.row = nil
	return nil
}

// Each call is one batch of statements in which every parameter is given and used, no placeholder
// is left, and brackets and quotes are balanced. If another relay marks a message between two
// statements of a batch, so that both statements find it, it is inserted only once.
//
// Fails when a statement and its arguments do not match, or when an index refuses the message.
func TestSQLServerStatements(t *testing.T) {
	t.Parallel()
	id := make([]byte, 16)
	one := int64(1)
	script := &scripted{answers: [][]driver.Value{
		{[]byte("orders"), []byte("a"), []byte("70")}, // the existing message
		{one, id, []byte("orders"), []byte("a"), []byte("70"), "{}"}, {int64(0)},
		{one, one, nil, one, one, id, []byte("orders"), []byte("漢"), one, []byte("p"), `{"a":"b"}`, one, one, one,
			false, one, one},
		{one, id, []byte("orders"), []byte(""), one, []byte("p"), "{}", one, one, one, false, one, one}, // no key
		{one, []byte("b"), one, id, []byte("orders"), []byte("b"), one, []byte("p"), "{}", one, one, one,
			false, one, one}, // by key
		{one}, {id, false}, {one}, {one}, {int64(1000), one, nil, one, one, nil, one}, {one, []byte("b"), one},
		{[]byte("orders"), one, one, one, "no"},
		{one, one},
		{one, id, []byte("orders"), []byte("a"), one, "dead", one, one, one, one, one, "no"},
		{one, id, []byte("orders"), []byte("a"), one, "dead", one, one, one, one, one, "no", []byte("p"), "{}", nil,
			nil, nil, nil, nil, nil},
		{one, one}, {one, one}, {one}, {[]byte("orders")}, {[]byte("dead"), one, nil, "no", one},
		{"now", []byte(""), one, one, one},
	}}
	db := sql.OpenDB(script)
	defer db.Close()
	s, err := sqlstore.SQLServer(db, sqlstore.Options{Schema: "o]dd", TableName: "it's"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	check := func(what string, ok bool, err error) {
		t.Helper()
		if err != nil || !ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	fresh, old, err := s.Append(ctx, sqlTx{tx}, store.Message{Topic: "orders", Key: "a"})
	check("Append", !fresh && old.Topic == "orders" && string(old.Payload) == "p", err)
	m, _, ok, err := s.NextAppended(ctx, sqlTx{tx}, 0)
	check("NextAppended", ok && m.Key == "a" && string(m.Payload) == "p", err)
	_, err = s.AppendAll(ctx, sqlTx{tx}, make([]store.Message, store.MaxAppendAll))
	check("AppendAll", errors.Is(err, store.ErrRepeat), nil) // the script counts no rows
	fresh, err = s.Once(ctx, sqlTx{tx}, "billing", store.ID{})
	check("Once", !fresh, err)
	_ = tx.Rollback()
	due, err := s.Due(ctx, store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 5, Topics: []string{"漢"},
		Keys: []string{"漢"}, IDs: []int64{7}})
	check("Due", len(due.Messages) == 3 && due.After == "" && due.Messages[0].Key == "漢" &&
		due.Messages[0].Headers["a"] == "b", err)
	err = s.NoteBegun(ctx, []store.Begun{{Seq: 1}})
	check("NoteBegun", true, err)
	marked, err := s.Mark(ctx, "n", []store.Result{{Seq: 1, Outcome: store.OutcomeOK}})
	check("Mark", len(marked.Counted) == 1, err)
	n, err := s.Sweep(ctx, store.Retention{Dispatched: time.Hour}, 10)
	check("Sweep", n == 2, err)
	stats, err := s.Stats(ctx, []string{"a"}, true)
	check("Stats", stats.Pending == 1000 && stats.OldestDue > 0, err)
	topics, err := s.Failing(ctx)
	check("Failing", len(topics) == 1 && topics[0].Topic == "orders" && topics[0].Error == "no", err)
	l, err := s.Layout(ctx, 1)
	check("Layout", l.Shards == 1, err)
	which := store.Filter{IDs: []store.ID{{1}}, Topic: "a", Key: "b", State: store.StateDead,
		CreatedFrom: time.Unix(1, 0), CreatedBefore: time.Unix(2, 0), BeforeSeq: 3}
	list, err := s.Messages(ctx, which, 10)
	check("Messages", len(list) == 1 && list[0].State == store.StateDead, err)
	_, _, ok, err = s.Message(ctx, store.ID{})
	check("Message", ok, err)
	done, err := s.Requeue(ctx, which, store.RequeueRequest{OlderThan: time.Hour, Limit: 1})
	check("Requeue", done.N == 1 && done.TooOld == 1 && done.After == 1, err)
	n, err = s.Delete(ctx, which)
	check("Delete", n == 1, err)
	histories, err := s.Topics(ctx)
	check("Topics", len(histories) == 1 && histories[0].Dead == 1 && histories[0].LastError == "no", err)
	f, err := s.Flow(ctx)
	check("Flow", len(f.Counts) == 0 && !f.Until.IsZero(), err)
	if len(script.texts) != 25 {
		t.Errorf("%d statements", len(script.texts))
	}
	_ = s.Verify(ctx)
	for i, text := range script.texts {
		wellFormed(t, text, len(script.args[i]))
	}
	schema, err := s.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range schema {
		wellFormed(t, text, 0)
	}
	if name := "[o]]dd].[it's]"; !strings.Contains(script.texts[0], name) {
		t.Errorf("the table %s is not named in\n%s", name, script.texts[0])
	}
}

// wellFormed fails the test unless a statement is well formed and inserts no row twice into a table
// variable.
func wellFormed(t *testing.T, text string, args int) {
	t.Helper()
	code := sqltest.CheckSQLServerStatement(t, text, args)
	inserted := map[string]bool{}
	for statement := range strings.SplitSeq(code, ";\n") {
		m := regexp.MustCompile(`(?m)^INSERT INTO (@\w+)`).FindStringSubmatch(statement)
		if m == nil {
			continue
		}
		if inserted[m[1]] && !strings.Contains(statement, "NOT EXISTS (SELECT 1 FROM "+m[1]) {
			t.Errorf("%s may already contain the row that this statement inserts:\n%s", m[1], statement)
		}
		inserted[m[1]] = true
	}
}

// Each database has its own SQL for row numbers, for an insert that ignores duplicates, and for the
// index of pending messages.
//
// Fails when the schema of a database loses an index that makes its outbox fast, or when an insert
// can no longer distinguish duplicates from other errors.
func TestWhatDiffersBetweenDatabases(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(&scripted{})
	defer db.Close()
	for _, x := range []struct {
		make     func() (*sqlstore.Store, error)
		schema   []string // regular expressions
		append   string
		noAppend string
	}{
		{func() (*sqlstore.Store, error) { return sqlstore.Postgres(onPgx(db, ""), sqlstore.Options{}) },
			[]string{`bigint GENERATED ALWAYS AS IDENTITY`, `_pending" ON \S+ \(seq\) WHERE state = 'pending';?$`},
			`ON CONFLICT \(message_id\) DO NOTHING`, "IGNORE"},
		{func() (*sqlstore.Store, error) { return sqlstore.MySQL(db, sqlstore.Options{}) },
			[]string{`BIGINT NOT NULL AUTO_INCREMENT`, `KEY pending \(state, seq\)`}, `VALUES`, "INTO.*IGNORE"},
		{func() (*sqlstore.Store, error) { return sqlstore.SQLite(db, sqlstore.Options{}) },
			[]string{`INTEGER PRIMARY KEY AUTOINCREMENT`, `_pending" ON \S+ \(seq\) WHERE state = 'pending';?$`},
			`ON CONFLICT \(message_id\) DO NOTHING`, "IGNORE"},
		{func() (*sqlstore.Store, error) { return sqlstore.SQLServer(db, sqlstore.Options{}) },
			[]string{`bigint IDENTITY\(1, 1\)`, `CREATE INDEX pending ON \S+ \(seq\) WHERE state = 'pending';$`},
			`WHERE NOT EXISTS \(SELECT 1 FROM`, "IGNORE"},
	} {
		made, err := x.make()
		if err != nil {
			t.Fatal(err)
		}
		list, err := made.Schema()
		if err != nil {
			t.Fatal(err)
		}
		schema := strings.Join(list, "\n")
		for _, want := range x.schema {
			if !regexp.MustCompile("(?m)" + want).MatchString(schema) {
				t.Errorf("%s: the schema has no %s:\n%s", made, want, schema)
			}
		}
		insert := made.Explained()["append"][0].Text
		if !regexp.MustCompile(x.append).MatchString(insert) || regexp.MustCompile(x.noAppend).MatchString(insert) {
			t.Errorf("%s: want %s, and no %s, in\n%s", made, x.append, x.noAppend, insert)
		}
	}
}
