package sqlregistry

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// Postgres returns a store on Postgres 13 or newer, in a database with the encoding UTF8, with any
// driver for database/sql. It does not call the server.
//
// Each call is one statement. With pgx it is one round trip once the connection has prepared the
// statement, and one more if nobody has used the connection for a second, because pgx asks whether
// it is alive (stdlib.OptionShouldPing). Behind a PgBouncer in transaction mode add
// default_query_exec_mode=exec, or simple_protocol, to pgx's URL: then nothing is prepared.
//
// An application with a *pgxpool.Pool passes stdlib.OpenDBFromPool(pool), of pgx, or better the
// *sql.DB of a small pool of its own, so that neither waits for the other's connections.
func Postgres(db *sql.DB, opts Options) *Store {
	return newStore(db, opts, anyName, func(schema, table string) database {
		schema = cmp.Or(schema, "public")
		d := sqlmigrate.DialectPostgres
		in := func(suffix string) string { return d.Qualified(schema, table+suffix) }
		of := sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table}
		return &postgres{db: db, of: of, texts: newTexts("postgres", map[string]string{
			"table": in(""), "recent": d.Quote(table + "_recent"), "named": d.Quote(table + "_named"),
			"recent_in": in("_recent"), "named_in": in("_named"), "now": "pg_catalog.statement_timestamp()",
		}, "columns", "host_is_old", "lease_is_old")}
	})
}

// anyName is for databases that have names of any text.
func anyName(string, string) error { return nil }

type postgres struct {
	db *sql.DB
	of sqlmigrate.Schema // without statements
	texts
}

func (p *postgres) String() string { return "postgres" }

func (p *postgres) write(ctx context.Context, rows func() []row, host string) (a answer, err error) {
	text := p.file("write", nil)
	err = queryRow(ctx, p.db, func() (string, []any) { return text, []any{inASCII(rows()), host} }, &a.known, &a.clock)
	return a, err
}

func (p *postgres) query(ctx context.Context, statement string, values map[string]int64, args ...any) ([]row, error) {
	return queryRows(ctx, p.db, p.file(statement, values), args)
}

func (p *postgres) sweep(ctx context.Context, values map[string]int64) (int64, error) {
	text := p.file("sweep", values)
	result, err := exec(ctx, p.db, func() (string, []any) { return text, nil })
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (p *postgres) schema() sqlmigrate.Schema {
	s := p.of
	s.Migrations = [][]string{sqlmigrate.Statements(p.file("schema", nil))}
	s.Repeat = sqlmigrate.Statements(p.file("indexes", nil))
	return s
}

func (p *postgres) prepare(context.Context) error { return nil }

// postgresColumns have the type names of pg_type.
var postgresColumns = columnsAs(map[kind]string{kindSort: "text", kindID: "text", kindName: "text", kindNode: "text",
	kindWords: "text", kindInt: "int4", kindBig: "int8", kindTime: "timestamptz", kindData: "text", kindDetail: "text"})

func (p *postgres) verify(ctx context.Context) (faults []error, err error) {
	var typ, list, key, encoding string
	var indexes int
	n := p.names
	text := p.file("verify", nil)
	if err := queryRow(ctx, p.db, func() (string, []any) {
		return text, []any{n["table"], n["recent_in"], n["named_in"]}
	}, &typ, &list, &key, &indexes, &encoding); err != nil {
		return nil, err
	}
	if typ == "" {
		return []error{fmt.Errorf("there is no table %s, or this user may not use its schema", n["table"])}, nil
	}
	has := map[string]string{}
	if err := json.Unmarshal([]byte(list), &has); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	faults = sqlkit.CheckColumns(n["table"], has, postgresColumns)
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
