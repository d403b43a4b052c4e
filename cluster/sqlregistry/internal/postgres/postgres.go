// Package postgres implements dialect.Database on Postgres.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"embed"

	"github.com/tickslot/tickslot/cluster/sqlregistry/internal/dialect"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed *.sql
var files embed.FS

// New returns the database of a registry. It does not call it.
func New(db *sql.DB, schema, table string) dialect.Database {
	schema = cmp.Or(schema, "public")
	d := sqlkit.Postgres
	in := func(suffix string) string { return d.Qualified(schema, table+suffix) }
	of := sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table}
	return &database{db: db, of: of, Statements: dialect.NewStatements(files, map[string]string{
		"table": in(""), "recent": d.Quote(table + "_recent"), "named": d.Quote(table + "_named"),
		"recent_in": in("_recent"), "named_in": in("_named"), "now": "pg_catalog.statement_timestamp()",
	}, "columns", "host_is_old", "lease_is_old")}
}

type database struct {
	db *sql.DB
	of sqlmigrate.Schema // without statements
	dialect.Statements
}

func (p *database) String() string { return "postgres" }

func (p *database) Write(ctx context.Context, rows func() []dialect.Row, host string) (a dialect.Answer, err error) {
	text := p.File("write", nil)
	err = dialect.QueryRow(ctx, p.db, func() (string, []any) {
		return text, []any{sqlkit.InJSON(rows()), host}
	}, &a.HostKnown, &a.Clock)
	return a, err
}

func (p *database) Query(ctx context.Context, statement string, values map[string]int64,
	args ...any) ([]dialect.Row, error) {
	return dialect.QueryRows(ctx, p.db, p.File(statement, values), args)
}

func (p *database) Sweep(ctx context.Context, values map[string]int64) (int64, error) {
	text := p.File("sweep", values)
	result, err := dialect.Exec(ctx, p.db, func() (string, []any) { return text, nil })
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (p *database) Tables() sqlmigrate.Tables {
	s := p.of
	s.Migrations = [][]string{sqlmigrate.Statements(p.File("schema", nil))}
	s.Repeat = sqlmigrate.Statements(p.File("indexes", nil))
	return dialect.Tables(s, p.db)
}
