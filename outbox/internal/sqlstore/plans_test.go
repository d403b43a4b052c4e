package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// crowded fills the tables as after weeks of work: many dispatched or dead messages, some of which
// have the keys of pending messages; few due messages, and few that wait. numbers returns a query
// with a column i that counts from 1 to n.
func crowded(t testing.TB, s subject, ended int, id, now, ago func(i string) string, numbers func(n int) string) {
	t.Helper()
	row := func(from, state, attempts, key, next, finished string) string {
		return "INSERT INTO tickslot_outbox (message_id, topic, " + quotedKey(s) + ", key_hash, payload, headers, " +
			"state, attempts, next_attempt_at, finished_at) SELECT " + id("i") +
			", CASE WHEN i % 2 = 0 THEN 'orders' ELSE 'mails' END, " + key + ", i, 'p', '{}', " +
			strings.Join([]string{state, attempts, next, finished}, ", ") + " FROM (" + from + ") AS n"
	}
	key := "CONCAT('key', i % 100)"
	if s.server == nil {
		key = "'key' || (i % 100)"
	}
	s.exec(t,
		row(numbers(ended), "CASE WHEN i % 3 = 0 THEN 'dead' ELSE 'dispatched' END", "1", key, ago("i"), ago("i")),
		"INSERT INTO tickslot_outbox_attempts (message, attempt, at, took, node, outcome, error) "+
			"SELECT seq, 1, created_at, 1, 'w', 'ok', '' FROM tickslot_outbox",
		"INSERT INTO tickslot_outbox_inbox (consumer, message_id, received_at) SELECT 'c', message_id, finished_at "+
			"FROM tickslot_outbox",
		row(strings.ReplaceAll(numbers(50), " AS i", "+1000000 AS i"), "'pending'", "0", key, now(""), "NULL"),
		row(strings.ReplaceAll(numbers(20), " AS i", "+2000000 AS i"), "'pending'", "1", "''", now("1"), "NULL"))
}

func quotedKey(s subject) string {
	if s.server != nil && strings.Contains(s.server.DSN("", "", ""), "tcp(") {
		return "`key`"
	}
	return "key"
}

// The regular statements of a relay find their rows by the indexes, no matter how many messages
// have ended. That holds with and without statistics, and with generic and custom plans.
//
// Fails when an index is missing, or when a condition no longer matches the condition of its index.
func TestPlansOfPostgres(t *testing.T) {
	t.Parallel()
	s := postgresOn(t, quickPostgres(t), "")
	made, db := s.migrated(t)
	ended := 100_000
	if testkit.Rounds(t, 1, 2) == 1 {
		ended = 10_000
	}
	s.exec(t, "ALTER TABLE tickslot_outbox SET (autovacuum_enabled = off)")
	crowded(t, s, ended,
		func(i string) string { return "md5(" + i + "::text)::uuid" },
		func(wait string) string {
			if wait != "" {
				return "now() + interval '1 hour'"
			}
			return "now()"
		},
		func(i string) string { return "now() - " + i + " * interval '1 second'" },
		func(n int) string { return fmt.Sprintf("SELECT n AS i FROM generate_series(1, %d) AS n", n) })
	for _, statistics := range []string{"without", "with", "old"} {
		switch statistics {
		case "with":
			s.exec(t, "VACUUM ANALYZE")
		case "old": // a key that does not exist
			s.exec(t, "INSERT INTO tickslot_outbox (message_id, topic, key, key_hash, payload, headers) SELECT "+
				"md5('hot' || i)::uuid, 'orders', 'hot', 1, 'p', '{}' FROM generate_series(1, 5000) AS i")
		}
		for _, mode := range []string{customPlan, genericPlan} {
			for file, list := range made.Explained() {
				plan, err := explainPostgres(t.Context(), db, list[0], mode, false)
				if err != nil {
					t.Errorf("%s: %v", file, err)
					continue
				}
				checkPlan(t, fmt.Sprintf("%s, %s statistics, %s", file, statistics, mode), plan)
			}
		}
	}
}

// A key with thousands of messages is read only once, even before there are statistics.
//
// Fails when the search for earlier messages that hold back a message reads all pending messages
// before it.
func TestPlanOfAHotKeyOnPostgres(t *testing.T) {
	t.Parallel()
	s := postgresOn(t, quickPostgres(t), "")
	made, db := s.migrated(t)
	s.exec(t, "ALTER TABLE tickslot_outbox SET (autovacuum_enabled = off)",
		"INSERT INTO tickslot_outbox (message_id, topic, key, key_hash, payload, headers) SELECT "+
			"md5(i::text)::uuid, 'orders', 'hot', 1, 'p', '{}' FROM generate_series(1, 20000) AS i")
	for _, file := range []string{"due", "due of all topics"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the statement takes less than a second
		plan, err := explainPostgres(ctx, db, made.Explained()[file][0], customPlan, false)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, file, plan)
	}
}

// The kinds of plans of Postgres: for the given arguments, or for all arguments.
const (
	customPlan  = "force_custom_plan"
	genericPlan = "force_generic_plan"
)

// explainPostgres executes a statement, rolls it back, and returns its plan.
func explainPostgres(ctx context.Context, db interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}, s sqlstore.Explained, mode string, pin bool) (plan string, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "SET LOCAL plan_cache_mode = "+mode); err != nil {
		return "", err
	}
	if pin {
		limit, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		text, args := sqlkit.PostgresPinned(limit)
		if _, err := tx.ExecContext(ctx, text, args...); err != nil {
			return "", err
		}
	}
	rows, err := tx.QueryContext(ctx, "EXPLAIN (ANALYZE, BUFFERS) "+s.Text, s.Args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return "", err
		}
		plan += line + "\n"
	}
	return plan, rows.Err()
}

var removed = regexp.MustCompile(`Rows Removed by (?:Filter|Join Filter|Index Recheck): (\d+)`)

// checkPlan fails the test if a plan scans a whole table or index.
func checkPlan(t *testing.T, what, plan string) {
	t.Helper()
	for _, table := range []string{"tickslot_outbox ", "tickslot_outbox_attempts", "tickslot_outbox_inbox"} {
		if strings.Contains(plan, "Seq Scan on "+table) {
			t.Errorf("%s: the plan reads a whole table:\n%s", what, plan)
		}
	}
	const most = 400 // rows
	for _, m := range removed.FindAllStringSubmatch(plan, -1) {
		if n, err := strconv.Atoi(m[1]); err != nil || n > most {
			t.Errorf("%s: the plan discards %d rows:\n%s", what, n, plan)
		}
	}
}

// Thousands of messages were appended within a minute, and the database has no statistics about
// them. Fails when Due reads all waiting messages, or scans an index for each message.
func TestPlanOfABacklogPostgres(t *testing.T) {
	t.Parallel()
	s := postgresOn(t, quickPostgres(t), "")
	made, db := s.migrated(t)
	s.exec(t, "ALTER TABLE tickslot_outbox SET (autovacuum_enabled = off)",
		"INSERT INTO tickslot_outbox (message_id, topic, key, key_hash, payload, headers) SELECT md5(i::text)::uuid, "+
			"'orders', 'key' || (i % 1000), i, 'p', '{}' FROM generate_series(1, 10000) AS i")
	for _, stop := range []bool{false, true} {
		for _, mode := range []string{customPlan, genericPlan} {
			plan, err := explainPostgres(t.Context(), db, made.ExplainedDue(stop), mode, true)
			if err != nil {
				t.Fatal(err)
			}
			if n := pagesOf(t, plan); n > 700 {
				t.Errorf("stop %t, %s: the plan reads %d pages for 32 messages:\n%s", stop, mode, n, plan)
			}
		}
	}
}

var pages = regexp.MustCompile(`Buffers: shared hit=(\d+)`)

// pagesOf returns the number of page reads of a plan.
func pagesOf(t *testing.T, plan string) int {
	t.Helper()
	m := pages.FindStringSubmatch(plan)
	if m == nil {
		t.Fatalf("the plan does not say how many pages it reads:\n%s", plan)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The statements use the indexes without statistics, which SQLite has only after an application has
// called ANALYZE.
func TestPlansOfSQLite(t *testing.T) {
	t.Parallel()
	s := sqliteFile(t)
	made, db := s.migrated(t)
	small := []string{"SCAN k", "SCAN u", "SCAN t", "SCAN o", "SCAN e", "SCAN r", "SCAN l", "SCAN d"} // not tables
	walks := regexp.MustCompile(`^SCAN (?:[a-z]|tickslot_outbox\w*)$`)
	for file, list := range made.Explained() {
		if file == "messages" || file == "flow" {
			continue // a page from the end of the table
		}
		for _, st := range list {
			for _, line := range explainSQLite(t, db, st) {
				if walks.MatchString(line) && !slices.Contains(small, line) {
					t.Errorf("%s: the plan reads a whole table: %s in\n%s", file, line, st.Text)
				}
			}
		}
	}
}

func explainSQLite(t *testing.T, db *sql.DB, s sqlstore.Explained) (lines []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+s.Text, s.Args...)
	if err != nil {
		t.Errorf("%s: %v", s.Text, err)
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var line string
		if err := rows.Scan(&id, &parent, &unused, &line); err != nil {
			t.Error(err)
		}
		lines = append(lines, line)
	}
	return lines
}

// MariaDB and MySQL do not read a whole large table. For topics without a sink, they read only the
// messages of those topics. They find the rows that they lock in the table of messages by its
// primary key, no matter how small the table is. They lock all rows that they read, so they would
// otherwise wait even for uncommitted rows of a producer.
func TestPlansOfMySQL(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for name, server := range map[string]func(testing.TB) *sqltest.Server{
		"MariaDB": quickMariaDB, "MySQL": quickMySQL} {
		for _, rows := range []int{0, 20, 10_000} {
			t.Run(fmt.Sprint(name, " ", rows), func(t *testing.T) {
				t.Parallel()
				plansOfMySQL(t, mysqlOn(t, server(t), oneTrip), rows)
			})
		}
	}
}

func plansOfMySQL(t *testing.T, s subject, rows int) {
	made, db := s.migrated(t)
	crowdedMySQL(t, s, rows, "SECOND")
	for _, statistics := range []bool{false, true} {
		if statistics {
			s.exec(t, "ANALYZE TABLE tickslot_outbox, tickslot_outbox_attempts, tickslot_outbox_inbox")
		}
		for file, list := range made.Explained() {
			for _, st := range list {
				if strings.HasPrefix(st.Text, "SELECT ROW_COUNT") || file == "messages" {
					continue
				}
				for _, row := range explainMySQL(t, db, st) {
					what := fmt.Sprintf("%s, statistics %t: %s", file, statistics, row)
					locks := strings.Contains(st.Text, "FOR UPDATE") || !strings.Contains(st.Text, "SELECT {hint}")
					if locks && row.table == "m" && file == "mark" && (row.typ != "eq_ref" || row.key != "PRIMARY") {
						t.Errorf("%s: the statement locks more rows than it marks", what)
					}
					if rows < 1000 { // reading a whole small table may be cheapest
						continue
					}
					if len(row.table) == 1 && row.typ == "ALL" && !strings.ContainsAny(row.table, "xonulvbkfrw") {
						t.Errorf("%s: the statement reads a whole table", what)
					}
					if row.table == "t" && row.typ != "range" && row.typ != "ref" {
						t.Errorf("%s: it reads all pending messages, not only those without a sink or a place",
							what)
					}
				}
			}
		}
	}
}

// crowdedMySQL is crowded for MySQL. Message i ended i units ago.
func crowdedMySQL(t testing.TB, s subject, ended int, unit string) {
	t.Helper()
	crowded(t, s, ended,
		func(i string) string { return "UNHEX(LEFT(SHA2(" + i + ", 256), 32))" },
		func(wait string) string {
			if wait != "" {
				return "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR"
			}
			return "UTC_TIMESTAMP(6)"
		},
		func(i string) string { return "UTC_TIMESTAMP(6) - INTERVAL " + i + " " + unit },
		numbersMySQL)
}

// numbersMySQL returns a query for the numbers up to n. n is at most 10,000.
func numbersMySQL(n int) string {
	digits := "(SELECT 0 AS d"
	for d := range 9 {
		digits += fmt.Sprint(" UNION ALL SELECT ", d+1)
	}
	digits += ")"
	return fmt.Sprintf("SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 1 AS i FROM %s AS a, %[1]s AS b, "+
		"%[1]s AS c, %[1]s AS e LIMIT %[2]d", digits, n)
}

// A mysqlPlan is a row of EXPLAIN.
type mysqlPlan struct{ table, typ, key, extra string }

func explainMySQL(t *testing.T, db *sql.DB, s sqlstore.Explained) (plan []mysqlPlan) {
	t.Helper()
	text := strings.ReplaceAll(strings.ReplaceAll(s.Text, "{bounded}", ""), "{hint}", "")
	rows, err := db.QueryContext(t.Context(), "EXPLAIN "+text, s.Args...)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return nil
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values, dest := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		var p mysqlPlan
		for i, column := range columns {
			switch column {
			case "table":
				p.table = values[i].String
			case "type":
				p.typ = values[i].String
			case "key":
				p.key = values[i].String
			case "Extra":
				p.extra = values[i].String
			}
		}
		plan = append(plan, p)
	}
	return plan
}
