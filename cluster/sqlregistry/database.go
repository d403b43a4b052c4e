package sqlregistry

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed sql/*.sql
var files embed.FS

// A database executes the statements of a store.
type database interface {
	// String returns the name of the dialect, such as "postgres" or "mysql".
	String() string
	// write writes rows. It calls rows before each attempt, because the ages of rows grow while it
	// waits. host is the ID of the host whose heartbeat is among the rows, or "" if there is none.
	write(ctx context.Context, rows func() []row, host string) (answer, error)
	// query returns the rows of the statement read, timer_runs or buckets.
	query(ctx context.Context, name string, p sqlkit.Params) ([]row, error)
	// sweep deletes old rows and returns their number.
	sweep(ctx context.Context, p sqlkit.Params) (int64, error)
	// tables describes what Migrate creates and Verify compares. The store adds Wrong and Explain.
	tables() sqlmigrate.Tables
}

// An answer is what the database returns for a batch.
type answer struct {
	hostKnown bool  // the host has a row
	clock     int64 // the database's time, in µs since 1970; 0 if unknown
}

// newDatabase returns the database of a registry without calling the server.
func newDatabase(d sqlkit.Dialect, db *sql.DB, opts Options) database {
	switch d {
	case sqlkit.Postgres:
		return server{newStatements(d, cmp.Or(opts.Schema, "public"), opts.TableName), db}
	case sqlkit.MySQL:
		return mysql{server{newStatements(d, opts.Schema, opts.TableName), db}}
	case sqlkit.SQLite:
		return sqlite{newStatements(d, "main", opts.TableName), sqlkit.NewFile(db)}
	}
	return sqlserver{server{newStatements(d, opts.Schema, opts.TableName), db}}
}

// statements holds the statements for one table of a database.
type statements struct {
	sqlkit.Dialect
	texts  sqlkit.Texts
	schema sqlmigrate.Schema
}

func newStatements(d sqlkit.Dialect, schema, table string) statements {
	in := func(suffix string) string { return d.Qualified(schema, table+suffix) }
	texts := sqlkit.ReadTexts(files, d, map[string]string{
		"table": in(""), "name": d.Quote(table), "table_text": "N" + sqlkit.Text(in("")),
		"recent": d.Quote(table + "_recent"), "named": d.Quote(table + "_named"),
		"recent_in": in("_recent"), "named_in": in("_named"),
		"runs_per_timer": strconv.Itoa(cluster.RunsPerTimer), "max_events": strconv.Itoa(cluster.MaxEvents),
		"max_outcomes": strconv.Itoa(cluster.OutcomesPerTimer),
	})
	return statements{d, texts, sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table,
		Migrations: [][]string{sqlmigrate.Statements(texts["schema"])},
		Repeat:     sqlmigrate.Statements(texts["indexes"])}}
}

// bind binds parameters to a statement. If the database has a limit for lock waits, bind sets it to
// the time that ctx has left.
func (s statements) bind(ctx context.Context, name string, p sqlkit.Params) sqlkit.Statement {
	p = maps.Clone(p)
	wait := sqlkit.MaxWait(ctx, time.Minute)
	p["wait_ms"], p["wait_s"] = sqlkit.InText(wait.Milliseconds()), sqlkit.InText(max(1, int64(wait/time.Second)))
	return s.Bind(s.texts[name], p)
}

// batch returns the parameters of the statement write.
func batch(rows []row, host string) sqlkit.Params {
	p := sqlkit.Params{"rows": sqlkit.InJSON(rows), "host_id": sqlkit.Name(host)}
	for i := range rows {
		if r := &rows[i]; r.Sort == sortHost {
			p["number"], p["up_for"] = r.Fence, *r.UpFor
		}
	}
	return p
}

// counts reports whether rows contains rows that are written only if the batch is counted.
func counts(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return r.counted() })
}
