// Package postgres implements dialect.Database on Postgres.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"encoding/json"
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
	schema = cmp.Or(schema, "public")
	d := sqlmigrate.DialectPostgres
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

func (p *database) Schema() sqlmigrate.Schema {
	s := p.of
	s.Migrations = [][]string{sqlmigrate.Statements(p.File("schema", nil))}
	s.Repeat = sqlmigrate.Statements(p.File("indexes", nil))
	return s
}

func (p *database) Prepare(context.Context) error { return nil }

// columns have the type names of pg_type.
var columns = dialect.ColumnsAs(map[dialect.Kind]string{
	dialect.KindSort: "text", dialect.KindID: "text", dialect.KindName: "text", dialect.KindNode: "text",
	dialect.KindWords: "text", dialect.KindInt: "int4", dialect.KindBig: "int8",
	dialect.KindTime: "timestamptz", dialect.KindData: "text", dialect.KindDetail: "text",
})

func (p *database) Verify(ctx context.Context) (faults []error, err error) {
	var typ, list, key, encoding string
	var indexes int
	n := p.Names
	text := p.File("verify", nil)
	if err := dialect.QueryRow(ctx, p.db, func() (string, []any) {
		return text, []any{n["table"], n["recent_in"], n["named_in"]}
	}, &typ, &list, &key, &indexes, &encoding); err != nil {
		return nil, err
	}
	hides := ""
	if err := dialect.QueryRow(ctx, p.db, func() (string, []any) {
		return sqlkit.PostgresHidden(n["table"], p.of.Versions())
	}, &hides); err != nil {
		return nil, err
	}
	if err := sqlkit.CheckHidden(hides); err != nil {
		return nil, err
	}
	if typ == "" {
		return []error{fmt.Errorf("there is no table %s, or this user may not use its schema", n["table"])}, nil
	}
	has := map[string]string{}
	if err := json.Unmarshal([]byte(list), &has); err != nil {
		return nil, fmt.Errorf("%w: %w", dialect.ErrAnswer, err)
	}
	faults = sqlkit.CheckColumns(n["table"], has, columns)
	if key != "sort,id" {
		faults = append(faults, fmt.Errorf("the primary key of %s is (%s), and has to be (sort, id)", n["table"], key))
	}
	if indexes != 2 {
		faults = append(faults, fmt.Errorf("an index is missing, %s or %s, or something else has that name",
			n["recent_in"], n["named_in"]))
	}
	if !strings.EqualFold(encoding, "UTF8") {
		faults = append(faults, fmt.Errorf("the encoding of the database is %s, which has not all characters: use one "+
			"with UTF8", encoding))
	}
	return faults, nil
}
