package sqltest

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// ShowRowLocks is the body of a trigger for each row that RowLocks is to see: the statement waits
// there until RowLocks has looked.
const ShowRowLocks = "DO " +
	"GET_LOCK(CONCAT('rows 1 ', DATABASE()), 60), RELEASE_LOCK(CONCAT('rows 1 ', DATABASE())), " +
	"GET_LOCK(CONCAT('rows 2 ', DATABASE()), 60), RELEASE_LOCK(CONCAT('rows 2 ', DATABASE()))"

// RowLocks calls do, and returns the locks on rows of a database of MySQL that were held whenever a
// trigger ran ShowRowLocks: "table.index mode: key". The key may be missing, because the server
// does not wait for the row's page. db is a pool of root.
//
// A trigger passes two locks, of which RowLocks always holds at least one. It looks while it holds
// the second, after it has let the trigger pass the first.
func RowLocks(t testing.TB, db *sql.DB, database string, do func()) []string {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := func(f, lock string) {
		t.Helper()
		wait := map[string]string{"GET_LOCK": ", 60"}[f]
		var done int
		err := conn.QueryRowContext(t.Context(), "SELECT COALESCE("+f+"(?"+wait+"), 0)", lock+database).Scan(&done)
		if err != nil || done != 1 {
			t.Fatalf("%s(%s): %d, %v", f, lock, done, err)
		}
	}
	call("GET_LOCK", "rows 1 ")
	over, seen := make(chan struct{}), map[string]bool{}
	defer func() { <-over }() // do uses t
	defer func() { conn.ExecContext(t.Context(), "DO RELEASE_ALL_LOCKS()") }()
	go func() {
		defer close(over)
		do()
	}()
	for {
		call("GET_LOCK", "rows 2 ")
		call("RELEASE_LOCK", "rows 1 ")
		call("GET_LOCK", "rows 1 ")
		rows, err := conn.QueryContext(t.Context(), "SELECT OBJECT_NAME, INDEX_NAME, LOCK_MODE, "+
			"COALESCE(LOCK_DATA, '') FROM performance_schema.data_locks "+
			"WHERE OBJECT_SCHEMA = ? AND LOCK_TYPE = 'RECORD'", database)
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
		call("RELEASE_LOCK", "rows 2 ")
		select {
		case <-over:
			return slices.Sorted(maps.Keys(seen))
		case <-time.After(5 * time.Millisecond):
		}
	}
}
