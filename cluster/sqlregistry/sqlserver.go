package sqlregistry

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// SQLServer returns a store on Microsoft SQL Server 2017 or newer, with any driver for database/sql
// that numbers its parameters @p1, @p2 and so on, as microsoft/go-mssqldb does. It does not call
// the server.
//
// It is EXPERIMENTAL: it has not been run against a server. Its statements follow the
// documentation, and only their texts are tested. Run cluster/clustertest on it before you rely on
// it, and tell us. It may change or be removed in any release.
func SQLServer(db *sql.DB, opts Options) *Store {
	return newStore(db, opts, anyName, func(schema, table string) database {
		d := sqlmigrate.DialectSQLServer
		in := d.Qualified(schema, table)
		names := map[string]string{"table": in, "table_text": "N'" + strings.ReplaceAll(in, "'", "''") + "'"}
		for _, sort := range []string{sortHost, sortLease, sortEvent, sortRun} {
			names[sort] = "0x" + hex.EncodeToString([]byte(sort))
		}
		for _, column := range []string{"acquired", "renewed", "expires", "released", "happened"} {
			// DATEADD takes an int
			names[column] = fmt.Sprintf("DATEADD(microsecond, -(%[1]s %% 1000000), "+
				"DATEADD(second, -(%[1]s / 1000000), @now))", column)
		}
		return &sqlserver{db: db, of: sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table},
			texts: newTexts("sqlserver", names, "columns", "host_is_old", "lease_is_old")}
	})
}

type sqlserver struct {
	db *sql.DB
	of sqlmigrate.Schema // without statements
	texts
}

func (m *sqlserver) String() string { return "sqlserver" }

// bounded returns a statement that waits for locks for as long as ctx allows. LOCK_TIMEOUT takes no
// parameter.
func (m *sqlserver) bounded(ctx context.Context, name string, values map[string]int64) string {
	return strings.ReplaceAll(m.file(name, values), "{wait}", fmt.Sprint(maxWait(ctx).Milliseconds()))
}

func (m *sqlserver) write(ctx context.Context, rows func() []row, host string) (a answer, err error) {
	err = queryRow(ctx, m.db, func() (string, []any) {
		return m.bounded(ctx, "write", nil), []any{inASCII(inHex(rows())), []byte(host)}
	}, &a.known, &a.clock)
	return a, err
}

// inHex writes the columns that are binary as hex, which no collation changes.
func inHex(rows []row) []row {
	for i := range rows { // they are a copy
		r := &rows[i]
		for _, text := range []*string{&r.Sort, &r.ID, &r.Name} {
			*text = hex.EncodeToString([]byte(*text))
		}
	}
	return rows
}

func (m *sqlserver) query(ctx context.Context, statement string, values map[string]int64, args ...any) ([]row, error) {
	for i, arg := range args {
		args[i] = []byte(arg.(string))
	}
	return queryRows(ctx, m.db, m.bounded(ctx, statement, values), args)
}

func (m *sqlserver) sweep(ctx context.Context, values map[string]int64) (deleted int64, err error) {
	err = queryRow(ctx, m.db, func() (string, []any) { return m.bounded(ctx, "sweep", values), nil }, &deleted)
	return deleted, err
}

func (m *sqlserver) schema() sqlmigrate.Schema {
	s := m.of
	s.Migrations = [][]string{{m.file("schema", nil)}}
	return s
}

func (m *sqlserver) prepare(context.Context) error { return nil }

var sqlserverColumns = columnsAs(map[kind]string{kindSort: "varbinary(8)", kindID: "varbinary(255)",
	kindName: "varbinary(512)", kindNode: "nvarchar(300)", kindWords: "nvarchar(255)", kindInt: "int",
	kindBig: "bigint", kindTime: "datetime2(6)", kindData: "nvarchar(max)", kindDetail: "nvarchar(max)"})

func (m *sqlserver) verify(ctx context.Context) (faults []error, err error) {
	var text, key string
	var indexes int
	table := m.names["table"]
	if err := queryRow(ctx, m.db, func() (string, []any) { return m.file("verify", nil), []any{table} },
		&text, &key, &indexes); err != nil {
		return nil, err
	}
	var list []struct{ Name, Type string }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	if len(list) == 0 {
		return []error{fmt.Errorf("there is no table %s", table)}, nil
	}
	has := map[string]string{}
	for _, c := range list {
		has[c.Name] = c.Type
	}
	faults = sqlkit.CheckColumns(table, has, sqlserverColumns)
	if key != "sort,id" {
		faults = append(faults, fmt.Errorf("the primary key of %s is (%s), and has to be (sort, id)", table, key))
	}
	if indexes != 2 {
		faults = append(faults, errors.New("an index is missing"))
	}
	return faults, nil
}
