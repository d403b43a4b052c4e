package outbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/outbox"
)

// A noted driver records the statements and refuses all except INSERT. Package sqlstore tests the
// texts of the statements without a server.
type noted struct {
	mu    sync.Mutex
	texts []string
}

func (n *noted) note(text string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.texts = append(n.texts, text)
	return nil
}

func (n *noted) Driver() driver.Driver                        { return nil }
func (n *noted) Connect(context.Context) (driver.Conn, error) { return notedConn{n}, nil }

type notedConn struct{ *noted }

func (c notedConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (c notedConn) Begin() (driver.Tx, error)           { return c, nil }
func (c notedConn) Commit() error                       { return nil }
func (c notedConn) Rollback() error                     { return nil }
func (c notedConn) Close() error                        { return nil }

func (c notedConn) ExecContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), c.note(text)
}

func (c notedConn) QueryContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	return nil, errors.Join(c.note(text), noObject{})
}

// noObject is go-mssqldb's error for a missing table.
type noObject struct{}

func (noObject) Error() string         { return "mssql: Invalid object name" }
func (noObject) SQLErrorNumber() int32 { return 208 }

// Switching to SQL Server takes only another constructor, which includes the tables of messages and
// locks.
//
// Fails when the Outbox or its locks use another database, or when invalid options are accepted.
func TestSQLServer(t *testing.T) {
	t.Parallel()
	script := &noted{}
	db := sql.OpenDB(script)
	defer db.Close()
	box := outbox.SQLServer(db, outbox.Options{TableName: "mails", Schema: "shop"})
	defer box.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	id := outbox.RandomID()
	if fresh, err := box.Append(t.Context(), outbox.SQLTx(tx), outbox.Message{ID: id, Topic: "t"}); !fresh ||
		err != nil {
		t.Errorf("Append: %t, %v", fresh, err)
	}
	if fresh, err := box.Inbox().Once(t.Context(), outbox.SQLTx(tx), "billing", id); !fresh || err != nil {
		t.Errorf("Once: %t, %v", fresh, err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	for i, table := range []string{"[shop].[mails]", "[shop].[mails_inbox]"} {
		if len(script.texts) != 2 || !strings.Contains(script.texts[i], table) ||
			!strings.Contains(script.texts[i], "@p1") {
			t.Fatalf("statement %d does not use the table %s: %q", i, table, script.texts)
		}
	}
	list, err := box.Schema()
	if err != nil {
		t.Fatal(err)
	}
	schema := strings.Join(list, "\n")
	for _, table := range []string{"[shop].[mails]", "[shop].[mails_attempts]", "[shop].[mails_layout]",
		"[shop].[mails_locks]"} {
		if !strings.Contains(schema, "CREATE TABLE "+table) {
			t.Errorf("the schema does not create %s:\n%s", table, schema)
		}
	}
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{DefaultSink: newFleet(t).receiver,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := relay.Run(t.Context()); !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "sqlserver") {
		t.Errorf("without tables: %v", err)
	}
	for name, wrong := range map[string]*outbox.Outbox{
		"no pool":     outbox.SQLServer(nil, outbox.Options{}),
		"a long name": outbox.SQLServer(db, outbox.Options{TableName: strings.Repeat("x", 37)}),
	} {
		if err := wrong.Migrate(t.Context()); !errors.Is(err, dlock.ErrSetup) {
			t.Errorf("%s: %v, want ErrSetup", name, err)
		}
	}
}
