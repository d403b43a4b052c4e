package sqlstore

import (
	"context"
	"database/sql"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// file is a database in a SQLite file.
type file struct{ *sqlkit.File }

func (f file) do(ctx context.Context, w way, list []sqlkit.Statement, begin func(), row func(store.Row) error) error {
	call := func(conn *sql.Conn) (none struct{}, _ error) {
		begin()
		// No statement needs to be interrupted, because only locks take long in SQLite, and Go code
		// waits for the locks.
		return none, oneByOne(context.Background(), conn, list, row)
	}
	in := sqlkit.Write[struct{}]
	if w == reading {
		in = sqlkit.Do
	}
	_, err := in(ctx, f.File, call)
	return err
}
