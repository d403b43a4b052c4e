package sqlregistry

import (
	"context"
	"database/sql"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

type sqlite struct {
	statements
	file *sqlkit.File
}

// local is the context of all statements. On SQLite only waiting for locks takes long, and Go does
// that waiting, so no statement needs to be interrupted.
var local = context.Background()

func (s sqlite) write(ctx context.Context, rows func() []row, host string) (answer, error) {
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (a answer, err error) {
		list := rows()
		p := batch(list, host)
		counts := counts(list)
		if counts {
			st := s.bind(ctx, "counts", p)
			if err := sqlkit.QueryRow(local, conn, st.Text, st.Args, &counts); err != nil {
				return a, err
			}
		}
		st := s.bind(ctx, "write", p)
		if _, err := conn.ExecContext(local, st.Text, st.Args...); err != nil {
			return a, err
		}
		if counts {
			st = s.bind(ctx, "count", p)
			if _, err := conn.ExecContext(local, st.Text, st.Args...); err != nil {
				return a, err
			}
		}
		st = s.bind(ctx, "known", p)
		err = sqlkit.QueryRow(local, conn, st.Text, st.Args, &a.hostKnown, &a.clock)
		return a, err
	})
}

func (s sqlite) query(ctx context.Context, name string, p sqlkit.Params) ([]row, error) {
	st := s.bind(ctx, name, p)
	return sqlkit.Do(ctx, s.file, func(conn *sql.Conn) ([]row, error) { return rowsOn(local, conn, st) })
}

func (s sqlite) sweep(ctx context.Context, p sqlkit.Params) (int64, error) {
	st := s.bind(ctx, "sweep", p)
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (int64, error) { return deletedOn(local, conn, st) })
}

func (s sqlite) tables() sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: s.schema, Read: sqlmigrate.ReadFile(s.file), File: s.file,
		Up: func(ctx context.Context) error { return s.schema.UpFile(ctx, s.file) }}
}
