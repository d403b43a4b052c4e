package sqlite

import (
	"database/sql"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// Pool returns the pool of a Store.
func Pool(s store.Store) *sql.DB { return s.(*Store).db }
