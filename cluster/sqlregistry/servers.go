package sqlregistry

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// A server is a Postgres database. The other servers embed it.
type server struct {
	statements
	db *sql.DB
}

// call executes a statement. If the statement conflicts with another transaction, call executes it
// again, which is safe because repeating it changes nothing.
func (s server) call(ctx context.Context, execute func(*sql.Conn) error) error {
	return sqlkit.Repeat(ctx, func() error { return sqlkit.With(ctx, s.db, execute) })
}

func (s server) write(ctx context.Context, rows func() []row, host string) (a answer, err error) {
	err = s.call(ctx, func(conn *sql.Conn) error {
		st := s.bind(ctx, "write", batch(rows(), host))
		return sqlkit.QueryRow(ctx, conn, st.Text, st.Args, &a.hostKnown, &a.clock)
	})
	return a, err
}

func (s server) query(ctx context.Context, name string, p sqlkit.Params) (list []row, err error) {
	err = s.call(ctx, func(conn *sql.Conn) (err error) {
		list, err = rowsOn(ctx, conn, s.bind(ctx, name, p))
		return err
	})
	return list, err
}

// rowsOn executes a statement on conn and returns its rows.
func rowsOn(ctx context.Context, conn *sql.Conn, st sqlkit.Statement) (list []row, err error) {
	err = sqlkit.EachRow(ctx, conn, st.Text, st.Args, func(rows *sql.Rows) error {
		list = append(list, row{})
		return rows.Scan(list[len(list)-1].columns()...)
	})
	return list, err
}

func (s server) sweep(ctx context.Context, p sqlkit.Params) (deleted int64, err error) {
	err = s.call(ctx, func(conn *sql.Conn) (err error) {
		deleted, err = deletedOn(ctx, conn, s.bind(ctx, "sweep", p))
		return err
	})
	return deleted, err
}

// deletedOn executes a statement on conn and returns how many rows it deleted.
func deletedOn(ctx context.Context, conn *sql.Conn, st sqlkit.Statement) (int64, error) {
	result, err := conn.ExecContext(ctx, st.Text, st.Args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s server) tables() sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: s.schema, Read: sqlmigrate.ReadDB(s.Dialect, s.db),
		Up: func(ctx context.Context) error { return s.schema.Up(ctx, s.db) }}
}

type mysql struct{ server }

func (m mysql) write(ctx context.Context, rows func() []row, host string) (a answer, err error) {
	err = m.call(ctx, func(conn *sql.Conn) error {
		list := rows()
		st := m.bind(ctx, writing(list), batch(list, host))
		result, err := conn.ExecContext(ctx, st.Text, st.Args...)
		if err != nil {
			return err
		}
		id, err := result.LastInsertId() // carries the answer: see the statement
		a = answer{hostKnown: id%2 == 1, clock: id / 2}
		return err
	})
	return a, err
}

func (m mysql) tables() sqlmigrate.Tables {
	t := m.server.tables()
	t.Besides = m.besides
	return t
}

// besides returns faults of server settings that break only these statements.
func (m mysql) besides(ctx context.Context) ([]error, error) {
	var simultaneous bool
	err := m.call(ctx, func(conn *sql.Conn) error {
		return sqlkit.QueryRow(ctx, conn, m.texts["simultaneous"], nil, &simultaneous)
	})
	if err != nil || !simultaneous {
		return nil, err
	}
	return []error{errors.New("the sql_mode contains SIMULTANEOUS_ASSIGNMENT, which prevents writing rows: " +
		"remove it")}, nil
}

// writing returns the name of the statement that writes rows. Only write_counted first locks the
// row of the host.
func writing(rows []row) string {
	if counts(rows) {
		return "write_counted"
	}
	return "write"
}

type sqlserver struct{ server }

func (s sqlserver) write(ctx context.Context, rows func() []row, host string) (a answer, err error) {
	err = s.call(ctx, func(conn *sql.Conn) error {
		list := rows()
		name, p := writing(list), batch(list, host)
		p["rows"] = sqlkit.InJSON(inHex(list))
		st := s.bind(ctx, name, p)
		return sqlkit.QueryRow(ctx, conn, st.Text, st.Args, &a.hostKnown, &a.clock)
	})
	return a, err
}

// inHex encodes the binary columns as hex, which no collation changes.
func inHex(rows []row) []row {
	for i := range rows { // rows is a copy
		r := &rows[i]
		for _, text := range []*string{&r.Sort, &r.ID, &r.Name} {
			*text = hex.EncodeToString([]byte(*text))
		}
	}
	return rows
}

func (s sqlserver) query(ctx context.Context, name string, p sqlkit.Params) ([]row, error) {
	if timer, ok := p["timer"].(string); ok {
		p["timer"] = sqlkit.Name(timer)
	}
	return s.server.query(ctx, name, p)
}

func (s sqlserver) sweep(ctx context.Context, p sqlkit.Params) (deleted int64, err error) {
	err = s.call(ctx, func(conn *sql.Conn) error {
		st := s.bind(ctx, "sweep", p)
		return sqlkit.QueryRow(ctx, conn, st.Text, st.Args, &deleted)
	})
	return deleted, err
}
