package sqlregistry

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed sql
var files embed.FS

// texts are the statements of one database on one table.
type texts struct {
	folder string
	names  map[string]string
}

// newTexts fills in the files that others include.
func newTexts(folder string, names map[string]string, parts ...string) texts {
	t := texts{folder, maps.Clone(names)}
	t.names["runs_per_timer"] = strconv.Itoa(cluster.RunsPerTimer)
	t.names["max_events"] = strconv.Itoa(cluster.MaxEvents)
	for _, part := range parts {
		t.names[part] = t.file(part, nil)
	}
	return t
}

// file returns a statement in which {name} is replaced by its value. Numbers are part of the text:
// they are the same from call to call, and not all databases take them as arguments everywhere.
func (t texts) file(name string, values map[string]int64) string {
	text, err := files.ReadFile("sql/" + t.folder + "/" + name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	numbers := make(map[string]string, len(values))
	for name, value := range values {
		numbers[name] = strconv.FormatInt(value, 10)
	}
	return sqlmigrate.Fill(sqlmigrate.Fill(strings.TrimSpace(string(text)), t.names), numbers)
}

// repeat executes a statement again if it conflicted with another transaction. Every statement may
// be executed twice: the second time it changes nothing.
func repeat(ctx context.Context, call func() error) error {
	for {
		err := call()
		state := sqlkit.State(err)
		conflict := state == "40001" || state == "40P01" || sqlkit.MySQLNumber(err) == "1020"
		if !conflict || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Millisecond):
		}
	}
}

// queryRow executes a statement that returns one row.
func queryRow(ctx context.Context, db *sql.DB, statement func() (string, []any), dest ...any) error {
	return repeat(ctx, func() error {
		return sqlkit.With(ctx, db, func(conn *sql.Conn) error {
			text, args := statement()
			return sqlkit.QueryRow(ctx, conn, text, args, dest...)
		})
	})
}

// queryRows executes a statement that returns rows of the table.
func queryRows(ctx context.Context, db *sql.DB, text string, args []any) (list []row, err error) {
	err = repeat(ctx, func() error {
		list = nil
		return sqlkit.With(ctx, db, func(conn *sql.Conn) error {
			return sqlkit.EachRow(ctx, conn, text, args, func(rows *sql.Rows) error {
				list = append(list, row{})
				return rows.Scan(list[len(list)-1].columns()...)
			})
		})
	})
	return list, err
}

// exec executes a statement that returns no rows.
func exec(ctx context.Context, db *sql.DB, statement func() (string, []any)) (result sql.Result, err error) {
	err = repeat(ctx, func() error {
		return sqlkit.With(ctx, db, func(conn *sql.Conn) (err error) {
			text, args := statement()
			result, err = conn.ExecContext(ctx, text, args...)
			return err
		})
	})
	return result, err
}

// sortRows puts the newest events and runs first, and hosts and leases in the order of their ids.
func sortRows(list []row) {
	slices.SortFunc(list, func(a, b row) int {
		if a.Happened == nil || b.Happened == nil {
			return cmp.Or(cmp.Compare(a.Sort, b.Sort), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(cmp.Compare(a.Sort, b.Sort), cmp.Compare(*a.Happened, *b.Happened), cmp.Compare(b.ID, a.ID))
	})
}

// A kind is what a column stores. Each database has its own type for it.
type kind int

const (
	kindSort kind = iota
	kindID
	kindName
	kindNode
	kindWords
	kindInt
	kindBig
	kindTime
	kindData
	kindDetail
)

// columns are those of the table.
var columns = []struct {
	name string
	kind kind
}{
	{"sort", kindSort}, {"id", kindID}, {"lock_name", kindName}, {"node_id", kindNode}, {"machine", kindWords},
	{"pid", kindBig}, {"holder_id", kindWords}, {"kind", kindWords}, {"slot", kindInt}, {"slots", kindInt},
	{"fence", kindBig}, {"grant_id", kindWords}, {"acquired_at", kindTime}, {"renewed_at", kindTime},
	{"expires_at", kindTime}, {"released_at", kindTime}, {"happened_at", kindTime}, {"ttl", kindBig},
	{"up_for", kindBig}, {"data", kindData}, {"detail", kindDetail},
}

// columnsAs returns the columns with the types of a database.
func columnsAs(types map[kind]string) []sqlkit.Column {
	list := make([]sqlkit.Column, len(columns))
	for i, c := range columns {
		list[i] = sqlkit.Column{Name: c.name, Type: types[c.kind]}
	}
	return list
}

// maxWait returns for how long a statement may wait for a lock in the database: nine tenths of the
// time that the caller has left, so that it still gets the error, and no statement goes on for long
// after it has given up.
func maxWait(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return sqlkit.LastResort
	}
	return max(time.Millisecond, min(time.Until(deadline)*9/10, time.Minute))
}
