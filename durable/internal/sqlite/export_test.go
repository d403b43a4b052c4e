package sqlite

import (
	"database/sql"
	"maps"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// Pool returns the pool of a Store.
func Pool(s store.Store) *sql.DB { return s.(*Store).file.DB }

// Statements returns all statements by name, except those of Migrate.
func Statements(s *Store) map[string]string {
	all := maps.Clone(s.texts)
	for _, part := range []string{"schema", "indexes", "columns", "now", "holds_key"} {
		delete(all, part)
	}
	return all
}
