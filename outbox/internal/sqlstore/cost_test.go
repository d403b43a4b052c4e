package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// A dialect fills tables and counts the pages or rows that statements read, on one kind of
// database.
type dialect struct {
	of func(t testing.TB) subject
	// These return SQL: id returns a message ID made of a text, series returns a query for the
	// numbers from 1 to n, and later is an instant an hour from now.
	id     func(text string) string
	series func(n int) string
	now    string
	later  string
	// reads returns how many pages or index rows a statement reads.
	reads func(t *testing.T, conn *sql.Conn, st sqlstore.Explained) int
	most  int
}

var dialects = map[string]dialect{
	"Postgres": {
		of:     func(t testing.TB) subject { return postgresOn(t, quickPostgres(t), "") },
		id:     func(text string) string { return "md5(" + text + ")::uuid" },
		series: func(n int) string { return fmt.Sprintf("SELECT n AS i FROM generate_series(1, %d) AS n", n) },
		now:    "now()", later: "now() + interval '1 hour'", most: 1900, reads: pagesOfPostgres,
	},
	"MariaDB": {
		of: func(t testing.TB) subject { return mysqlOn(t, quickMariaDB(t), oneTrip) },
		id: func(text string) string { return "UNHEX(LEFT(SHA2(" + text + ", 256), 32))" },
		series: func(n int) string {
			return fmt.Sprintf("SELECT seq AS i FROM seq_1_to_%d", n) // uses the SEQUENCE engine
		},
		now: "UTC_TIMESTAMP(6)", later: "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR", most: 1900, reads: rowsOfMariaDB,
	},
	"SQLite": {
		of: sqliteFile,
		id: func(text string) string { return "CAST(printf('%-16s', " + text + ") AS BLOB)" },
		series: func(n int) string {
			return fmt.Sprintf("WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < %d) "+
				"SELECT i FROM s", n)
		},
		now: "0", later: "(unixepoch() + 3600) * 1000000", most: 1900, reads: pagesOfSQLite,
	},
}

// fill inserts n messages with the given key and state.
func (d dialect) fill(t *testing.T, s subject, name, key, state string, tried int, next string, n int) {
	t.Helper()
	finished := "NULL"
	if state != "pending" {
		finished = d.now
	}
	payload := "'p'"
	if s.server == nil {
		name, payload = "'"+name+"' || i", "x'70'"
	} else {
		name = "CONCAT('" + name + "', i)"
	}
	s.exec(t, fmt.Sprintf("INSERT INTO tickslot_outbox (message_id, topic, %s, key_hash, payload, headers, state, "+
		"attempts, tried, next_attempt_at, finished_at) SELECT %s, 'orders', %s, 1, %s, '{}', '%s', %d, %[6]d, %s, %s "+
		"FROM (%s) AS n", quotedKey(s), d.id(name), key, payload, state, tried, next, finished, d.series(n)))
}

// A hundred thousand messages wait for a message of their key in back-off, and the key has as many
// dead messages. Ten thousand messages wait for the first messages of a thousand keys, and as many
// messages without a key are in back-off themselves. Due messages with other keys are found by
// reading a few hundred rows at a time, and so are the numbers for health checks.
//
// Fails when a search reads through waiting, dead or dispatched messages instead of going from key
// to key, or from one message in back-off to the next.
func TestCostBehindALongQueue(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for kind, d := range dialects {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := d.of(t)
			made, db := s.migrated(t)
			const many, fewer = 100_000, 10_000
			if kind == "Postgres" {
				s.exec(t, "ALTER TABLE tickslot_outbox SET (autovacuum_enabled = off)")
			}
			d.fill(t, s, "d", "'long'", "dispatched", 1, d.now, fewer)
			d.fill(t, s, "x", "'long'", "dead", 1, d.now, many)
			d.fill(t, s, "h", "'long'", "pending", 1, d.later, 1)
			d.fill(t, s, "q", "'long'", "pending", 0, d.now, many)
			d.fill(t, s, "k", "''", "pending", 1, d.later, fewer)
			key := func(prefix, number string) string {
				if s.server == nil {
					return "'" + prefix + "' || (" + number + ")"
				}
				return "CONCAT('" + prefix + "', " + number + ")"
			}
			// before and after the long key
			heads := fewer / 10
			d.fill(t, s, "a", key("held", "i"), "pending", 1, d.later, heads)
			d.fill(t, s, "b", key("held", "(i % "+strconv.Itoa(heads)+") + 1"), "pending", 0, d.now, fewer)
			d.fill(t, s, "o", key("other", "i"), "pending", 0, d.now, 50)
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			count := func(when string) {
				t.Helper()
				for _, stop := range []bool{false, true} {
					for _, keys := range [][]string{nil, {"long"}} {
						search, err := made.ExplainedSearch(t.Context(), stop, keys...)
						if err != nil {
							t.Fatal(err)
						}
						for file, st := range search {
							most := d.most
							if file == "stats" { // stats counts up to MaxCount
								most += 5 * store.MaxCount
							}
							if n := d.reads(t, conn, st); n > most {
								t.Errorf("%s, %s, stop %t, the caller has %q: it reads %d rows, want at most %d",
									file, when, stop, keys, n, most)
							} else {
								t.Logf("%s, %s, stop %t, the caller has %q: the statement reads %d rows",
									file, when, stop, keys, n)
							}
						}
					}
				}
			}
			count("without statistics")
			switch kind {
			case "Postgres":
				s.exec(t, "VACUUM ANALYZE")
			case "MariaDB":
				s.exec(t, "ANALYZE TABLE tickslot_outbox")
			case "SQLite":
				s.exec(t, "ANALYZE")
			}
			count("with statistics")
			began := time.Now()
			calls, found := 0, 0
			for r := (store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 32}); ; calls++ {
				due, err := made.Due(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				found += len(due.Messages)
				if r.After = due.After; r.After == "" {
					break
				}
			}
			if found != 50 || calls > 8 {
				t.Errorf("%d calls find %d messages, want all 50", calls, found)
			}
			t.Logf("%d calls of Due took %v", calls, time.Since(began))
		})
	}
}

// pagesOfPostgres returns the number of page reads of a statement.
func pagesOfPostgres(t *testing.T, conn *sql.Conn, st sqlstore.Explained) (most int) {
	t.Helper()
	for _, mode := range []string{customPlan, genericPlan} {
		plan, err := explainPostgres(t.Context(), conn, st, mode, true)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, pagesOf(t, plan))
	}
	return most
}

// rowsOfMariaDB returns the number of index steps of a statement.
func rowsOfMariaDB(t *testing.T, conn *sql.Conn, st sqlstore.Explained) int {
	t.Helper()
	steps := func() (n int) {
		t.Helper()
		err := conn.QueryRowContext(t.Context(), "SELECT SUM(variable_value) FROM information_schema.session_status "+
			"WHERE variable_name LIKE 'Handler_read%'").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := steps()
	drain(t, conn, strings.NewReplacer("{bounded}", "", "{hint}", "").Replace(st.Text), st.Args)
	return steps() - before
}

// pagesOfSQLite returns the number of page reads of a statement.
func pagesOfSQLite(t *testing.T, conn *sql.Conn, st sqlstore.Explained) (n int) {
	t.Helper()
	status := func() (n int) {
		err := conn.Raw(func(c any) error {
			for _, op := range []sqlite.DBStatusOp{sqlite.DBStatusCacheHit, sqlite.DBStatusCacheMiss} {
				now, _, err := c.(sqlite.DBStatus).Status(op, false)
				if err != nil {
					return err
				}
				n += now
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := status()
	drain(t, conn, st.Text, st.Args)
	return status() - before
}

func drain(t *testing.T, conn *sql.Conn, text string, args []any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
