// Package mysql implements dialect.Database on MySQL and MariaDB.
package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore/internal/dialect"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

//go:embed *.sql
var files embed.FS

// New returns the database of an outbox. It does not call it.
func New(db *sql.DB, schema, table string) dialect.Database {
	m := &database{of: sqlmigrate.Schema{Dialect: sqlkit.MySQL, Schema: schema, Name: table, Table: table}}
	m.Server = dialect.Server{DB: db, Bound: m.bound}
	names := map[string]string{}
	for _, suffix := range dialect.Tables {
		names[cmp.Or(suffix, "_messages")[1:]] = m.of.Dialect.Qualified(schema, table+suffix)
	}
	m.texts = dialect.NewTexts(files, names)
	return m
}

type database struct {
	dialect.Without
	dialect.Server
	of    sqlmigrate.Schema // without statements
	texts dialect.Texts
}

func (m *database) String() string       { return "mysql" }
func (m *database) Texts() dialect.Texts { return m.texts }

func (m *database) Tables() sqlmigrate.Tables {
	s := m.of
	s.Migrations = [][]string{sqlmigrate.Statements(m.texts["schema"])}
	s.Repeat = sqlmigrate.Statements(m.texts["indexes"])
	return m.Server.Tables(s)
}

// Bind writes numbers, names and ids into the text, so that the server chooses indexes by them, and
// text as bytes, because the server converts text from the connection's character set.
func (m *database) Bind(text string, values dialect.Params) dialect.Statement {
	return dialect.Bind(text, values, false, func(_ int, value any) (string, any, bool) {
		switch v := value.(type) {
		case int64:
			return strconv.FormatInt(v, 10), nil, false
		case store.ID:
			return m.ID(v), nil, false
		case dialect.Name:
			return inHex(string(v)), nil, false
		case dialect.Names:
			all := []string{inHex("\x00")} // which no name has: a list must not be empty
			for _, name := range v {
				all = append(all, inHex(name))
			}
			return strings.Join(all, ", "), nil, false
		case dialect.Numbers:
			all := []string{"0"} // which no row has
			for _, n := range v {
				all = append(all, strconv.FormatInt(n, 10))
			}
			return strings.Join(all, ", "), nil, false
		case string:
			return "?", []byte(v), true
		}
		return "?", value, true
	})
}

func inHex(text string) string { return fmt.Sprintf("x'%x'", text) }

// bound returns a statement that ends a little before ctx does. MariaDB executes the text of the
// first comment, which MySQL ignores. MySQL obeys the hints of the second, which MariaDB ignores.
// MariaDB checks a row whenever it changes: of one that somebody has inserted without checks, the
// result could never be written. MySQL has no such rows.
func (m *database) bound(ctx context.Context, text string) string {
	limit := sqlkit.LastResort
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Millisecond, min(time.Until(deadline)*9/10, time.Minute))
	}
	ms, s := limit.Milliseconds(), max(1, int64(limit/time.Second))
	return strings.NewReplacer(
		"{bounded}", fmt.Sprintf(
			"/*M! SET STATEMENT max_statement_time = %d / 1000, check_constraint_checks = 0 FOR */", ms),
		"{hint}", fmt.Sprintf("/*+ SET_VAR(lock_wait_timeout = %d) MAX_EXECUTION_TIME(%d) */", s, ms),
	).Replace(text)
}

func (m *database) Split(text string) []string { return sqlmigrate.Statements(text) }

func (m *database) ID(id store.ID) string { return fmt.Sprintf("x'%x'", id[:]) }

func (m *database) Instant(param string) string {
	return "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL " + param + " MICROSECOND"
}

// IsThere goes by the number and by the name of the index: what else is in the text depends on the
// language of the server.
func (m *database) IsThere(err error, index string) bool {
	if sqlkit.MySQLNumber(err) != "1062" {
		return false
	}
	if index == dialect.IndexOfRecords {
		index = "PRIMARY"
	}
	return strings.Contains(err.Error(), "'"+index+"'") || strings.Contains(err.Error(), "."+index+"'")
}

func (m *database) IsLater(err error) bool  { return dialect.Repeats(err) }
func (m *database) Explain(err error) error { return sqlkit.Explain(err) }
