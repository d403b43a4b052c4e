// Package sqlserver implements dialect.Database on SQL Server.
package sqlserver

import (
	"context"
	"database/sql"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/cluster/sqlregistry/internal/dialect"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed *.sql
var files embed.FS

// New returns the database of a registry. It does not call it.
func New(db *sql.DB, schema, table string) dialect.Database {
	d := sqlkit.SQLServer
	in := d.Qualified(schema, table)
	names := map[string]string{"table": in, "table_text": "N'" + strings.ReplaceAll(in, "'", "''") + "'"}
	for _, sort := range []string{dialect.SortHost, dialect.SortLease, dialect.SortEvent, dialect.SortRun} {
		names[sort] = "0x" + hex.EncodeToString([]byte(sort))
	}
	for _, column := range []string{"acquired", "renewed", "expires", "released", "happened"} {
		// DATEADD takes an int
		names[column] = fmt.Sprintf("DATEADD(microsecond, -(%[1]s %% 1000000), "+
			"DATEADD(second, -(%[1]s / 1000000), @now))", column)
	}
	return &database{db: db, of: sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table},
		Statements: dialect.NewStatements(files, names, "columns", "host_is_old", "lease_is_old")}
}

type database struct {
	db *sql.DB
	of sqlmigrate.Schema // without statements
	dialect.Statements
}

func (m *database) String() string { return "sqlserver" }

// bounded returns a statement that waits for locks for as long as ctx allows. LOCK_TIMEOUT takes no
// parameter.
func (m *database) bounded(ctx context.Context, name string, values map[string]int64) string {
	return strings.ReplaceAll(m.File(name, values), "{wait}", fmt.Sprint(dialect.MaxWait(ctx).Milliseconds()))
}

func (m *database) Write(ctx context.Context, rows func() []dialect.Row, host string) (a dialect.Answer, err error) {
	err = dialect.QueryRow(ctx, m.db, func() (string, []any) {
		return m.bounded(ctx, "write", nil), []any{sqlkit.InJSON(inHex(rows())), []byte(host)}
	}, &a.HostKnown, &a.Clock)
	return a, err
}

// inHex writes the columns that are binary as hex, which no collation changes.
func inHex(rows []dialect.Row) []dialect.Row {
	for i := range rows { // they are a copy
		r := &rows[i]
		for _, text := range []*string{&r.Sort, &r.ID, &r.Name} {
			*text = hex.EncodeToString([]byte(*text))
		}
	}
	return rows
}

func (m *database) Query(ctx context.Context, statement string, values map[string]int64,
	args ...any) ([]dialect.Row, error) {
	for i, arg := range args {
		args[i] = []byte(arg.(string))
	}
	return dialect.QueryRows(ctx, m.db, m.bounded(ctx, statement, values), args)
}

func (m *database) Sweep(ctx context.Context, values map[string]int64) (deleted int64, err error) {
	err = dialect.QueryRow(ctx, m.db, func() (string, []any) { return m.bounded(ctx, "sweep", values), nil }, &deleted)
	return deleted, err
}

func (m *database) Tables() sqlmigrate.Tables {
	s := m.of
	s.Migrations = [][]string{{m.File("schema", nil)}}
	return dialect.Tables(s, m.db)
}
