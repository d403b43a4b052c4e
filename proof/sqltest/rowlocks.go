package sqltest

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// RowLocks calls do, and returns each lock on a row of a database of MySQL that was seen meanwhile:
// "table.index mode: key", where the key may be missing, because the server does not wait for its
// page. A trigger that sleeps keeps the locks for long enough. db is a connection of root.
func RowLocks(t testing.TB, db *sql.DB, database string, do func()) []string {
	t.Helper()
	over, seen := make(chan struct{}), map[string]bool{}
	defer func() { <-over }() // do uses t
	go func() {
		defer close(over)
		do()
	}()
	for {
		rows, err := db.QueryContext(t.Context(), "SELECT OBJECT_NAME, INDEX_NAME, LOCK_MODE, COALESCE(LOCK_DATA, '') "+
			"FROM performance_schema.data_locks WHERE OBJECT_SCHEMA = ? AND LOCK_TYPE = 'RECORD'", database)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var table, index, mode, key string
			if err := rows.Scan(&table, &index, &mode, &key); err != nil {
				t.Fatal(err)
			}
			seen[fmt.Sprintf("%s.%s %s: %s", table, index, mode, key)] = true
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-over:
			return slices.Sorted(maps.Keys(seen))
		case <-time.After(5 * time.Millisecond):
		}
	}
}
