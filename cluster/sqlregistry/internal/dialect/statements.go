package dialect

import (
	"context"
	"database/sql"
	"embed"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// Statements are those of one database on one table.
type Statements struct {
	files embed.FS
	Names map[string]string // what replaces {name}
}

// NewStatements returns the statements in files. parts are files that others include by their name.
func NewStatements(files embed.FS, names map[string]string, parts ...string) Statements {
	s := Statements{files, maps.Clone(names)}
	s.Names["runs_per_timer"] = strconv.Itoa(cluster.RunsPerTimer)
	s.Names["max_events"] = strconv.Itoa(cluster.MaxEvents)
	for _, part := range parts {
		s.Names[part] = s.File(part, nil)
	}
	return s
}

// File returns a statement in which {name} is replaced by its value. Numbers are part of the text:
// they are the same from call to call, and not all databases take them as arguments everywhere.
func (s Statements) File(name string, values map[string]int64) string {
	text, err := s.files.ReadFile(name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	numbers := make(map[string]string, len(values))
	for name, value := range values {
		numbers[name] = strconv.FormatInt(value, 10)
	}
	return sqlmigrate.Fill(sqlmigrate.Fill(strings.TrimSpace(string(text)), s.Names), numbers)
}

// Tables are those of a schema on a server.
func Tables(s sqlmigrate.Schema, db *sql.DB) sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: s, Read: sqlmigrate.ReadDB(s.Dialect, db),
		Up: func(ctx context.Context) error { return s.Up(ctx, db) }}
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

// QueryRow executes a statement that returns one row.
func QueryRow(ctx context.Context, db *sql.DB, statement func() (string, []any), dest ...any) error {
	return repeat(ctx, func() error {
		return sqlkit.With(ctx, db, func(conn *sql.Conn) error {
			text, args := statement()
			return sqlkit.QueryRow(ctx, conn, text, args, dest...)
		})
	})
}

// QueryRows executes a statement that returns rows of the table.
func QueryRows(ctx context.Context, db *sql.DB, text string, args []any) (list []Row, err error) {
	err = repeat(ctx, func() error {
		list = nil
		return sqlkit.With(ctx, db, func(conn *sql.Conn) error {
			return sqlkit.EachRow(ctx, conn, text, args, func(rows *sql.Rows) error {
				list = append(list, Row{})
				return rows.Scan(list[len(list)-1].Columns()...)
			})
		})
	})
	return list, err
}

// Exec executes a statement that returns no rows.
func Exec(ctx context.Context, db *sql.DB, statement func() (string, []any)) (result sql.Result, err error) {
	err = repeat(ctx, func() error {
		return sqlkit.With(ctx, db, func(conn *sql.Conn) (err error) {
			text, args := statement()
			result, err = conn.ExecContext(ctx, text, args...)
			return err
		})
	})
	return result, err
}

// MaxWait returns for how long a statement may wait for a lock in the database: nine tenths of the
// time that the caller has left, so that it still gets the error, and no statement goes on for long
// after it has given up.
func MaxWait(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return sqlkit.LastResort
	}
	return max(time.Millisecond, min(time.Until(deadline)*9/10, time.Minute))
}
