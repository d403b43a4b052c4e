package sqlregistry_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// scripted is a driver that returns prepared rows and records the statements. The statements have
// not been run on SQL Server: these tests check what can be checked without a server.
type scripted struct {
	answers [][]driver.Value
	texts   []string
	args    [][]driver.NamedValue
}

func (s *scripted) Driver() driver.Driver                        { return nil }
func (s *scripted) Connect(context.Context) (driver.Conn, error) { return scriptedConn{s}, nil }

type scriptedConn struct{ *scripted }

func (c scriptedConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (c scriptedConn) Begin() (driver.Tx, error)           { return nil, errors.New("no transaction") }
func (c scriptedConn) Close() error                        { return nil }

func (c scriptedConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.texts, c.args = append(c.texts, query), append(c.args, args)
	if len(c.answers) == 0 {
		return nil, errors.New("no answer left")
	}
	row := c.answers[0]
	c.answers = c.answers[1:]
	return &scriptedRows{row: row}, nil
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

// Each call is one batch of statements. Every parameter is declared and used, no placeholder
// remains, and all brackets and quotes are closed.
//
// Fails when a statement and its arguments do not match.
func TestSQLServerStatements(t *testing.T) {
	t.Parallel()
	ago := int64(time.Minute / time.Microsecond)
	read := []driver.Value{[]byte("run"), []byte("1"), []byte("漢"), "a", int64(7), "x", "ok", int64(0), int64(0),
		int64(1), "", nil, nil, nil, nil, ago, nil, nil, `{"err":"no"}`, nil}
	bucket := slices.Clone(read)
	bucket[0], bucket[8], bucket[9], bucket[16], bucket[17] = []byte("fine"), int64(5), int64(3), int64(20), int64(40)
	wrote := []driver.Value{int64(0), int64(1_700_000_000_000_000)}
	script := &scripted{answers: [][]driver.Value{wrote, read, read, {int64(3)}, wrote, bucket}}
	db := sql.OpenDB(script)
	defer db.Close()
	s := sqlregistry.SQLServer(db, sqlregistry.Options{Schema: "o]dd", TableName: "it's"})
	h := cluster.Heartbeat{Holder: dlock.Holder{Host: "漢"}}
	w, err := s.Write(t.Context(), cluster.Batch{Host: &h, Leases: []cluster.LeaseRecord{{Name: "漢"}}})
	if err != nil || !w.HostUnknown || !w.At.Equal(time.UnixMicro(1_700_000_000_000_000)) {
		t.Errorf("Write: %+v, %v", w, err)
	}
	rows, err := s.Read(t.Context(), cluster.Query{Events: 5, Runs: 7})
	if err != nil || len(rows.Runs) != 1 || rows.Runs[0].Timer != "漢" || rows.Runs[0].EndedAgo != time.Minute {
		t.Errorf("Read: %+v, %v", rows, err)
	}
	if runs, err := s.Runs(t.Context(), "漢"); err != nil || len(runs) != 1 {
		t.Errorf("Runs: %+v, %v", runs, err)
	}
	if n, err := s.Sweep(t.Context(), cluster.Retention{Hosts: time.Hour}, 10); err != nil || n != 3 {
		t.Errorf("Sweep: %d, %v", n, err)
	}
	runs := []cluster.TimerRecord{{Last: rows.Runs[0], Failures: 1}}
	if _, err := s.Write(t.Context(), cluster.Batch{Host: &h, Number: 1, Timers: runs,
		Buckets: []cluster.Bucket{{Timer: "漢", Interval: cluster.FineBucket, Runs: 1}}}); err != nil {
		t.Error(err)
	}
	if b, err := s.Buckets(t.Context(), "漢"); err != nil || len(b) != 1 || b[0].Runs != 3 || b[0].Failed != 7 ||
		b[0].Took != 40*time.Microsecond || b[0].LongestTook != 20*time.Microsecond || b[0].Ago != time.Minute {
		t.Errorf("Buckets: %+v, %v", b, err)
	}
	if len(script.texts) != 6 {
		t.Errorf("%d statements for 6 calls", len(script.texts))
	}
	_ = s.Verify(t.Context())
	for i, text := range script.texts {
		sqltest.CheckSQLServerStatement(t, text, len(script.args[i]))
	}
	list, err := s.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range list {
		sqltest.CheckSQLServerStatement(t, text, 0)
	}
	if name := "[o]]dd].[it's]"; !strings.Contains(script.texts[0], name) {
		t.Errorf("the table %s is not named in\n%s", name, script.texts[0])
	}
	if text := script.args[0][0].Value.(string); strings.Contains(text, "漢") ||
		!strings.Contains(text, "3ae6bca2") { // the hex form of :漢
		t.Errorf("ids and names must be in hex: %s", text)
	}
}
