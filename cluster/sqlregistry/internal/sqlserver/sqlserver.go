// Package sqlserver implements dialect.Database on SQL Server.
package sqlserver

import (
	"context"
	"database/sql"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
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
	d := sqlmigrate.DialectSQLServer
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

func (m *database) Schema() sqlmigrate.Schema {
	s := m.of
	s.Migrations = [][]string{{m.File("schema", nil)}}
	return s
}

func (m *database) Prepare(context.Context) error { return nil }

var columns = dialect.ColumnsAs(map[dialect.Kind]string{
	dialect.KindSort: "varbinary(8)", dialect.KindID: "varbinary(255)", dialect.KindName: "varbinary(512)",
	dialect.KindNode: "nvarchar(300)", dialect.KindWords: "nvarchar(255)", dialect.KindInt: "int",
	dialect.KindBig: "bigint", dialect.KindTime: "datetime2(6)", dialect.KindData: "nvarchar(max)",
	dialect.KindDetail: "nvarchar(max)",
})

func (m *database) Verify(ctx context.Context) (faults []error, err error) {
	var text, key string
	var indexes int
	table := m.Names["table"]
	if err := dialect.QueryRow(ctx, m.db, func() (string, []any) { return m.File("verify", nil), []any{table} },
		&text, &key, &indexes); err != nil {
		return nil, err
	}
	var list []struct{ Name, Type string }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%w: %w", dialect.ErrAnswer, err)
	}
	if len(list) == 0 {
		return []error{fmt.Errorf("there is no table %s", table)}, nil
	}
	has := map[string]string{}
	for _, c := range list {
		has[c.Name] = c.Type
	}
	faults = sqlkit.CheckColumns(table, has, columns)
	if key != "sort,id" {
		faults = append(faults, fmt.Errorf("the primary key of %s is (%s), and has to be (sort, id)", table, key))
	}
	if indexes != 2 {
		faults = append(faults, errors.New("an index is missing"))
	}
	return faults, nil
}
