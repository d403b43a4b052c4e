package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/testkit"
)

// crowded fills the tables as after weeks of work: many ended runs, of which a few are old; some
// delayed runs, one of them with the highest priority; and few due or running runs.
func (d database) crowded(t testing.TB, s *Store, ended, delayed int) {
	t.Helper()
	runs, attempts := s.names["runs"], s.names["attempts"]
	d.exec(t,
		fmt.Sprintf("INSERT INTO %s (handler, run_at, state, attempt, max_attempts, finished_at, payload) SELECT "+
			"'orders', now() - i * interval '1 second', (ARRAY['succeeded', 'dead', 'canceled'])[1 + i %% 3], 1, 3, "+
			"now() - i * interval '1 second', '{}' FROM generate_series(1, %d) AS i", runs, ended),
		fmt.Sprintf("INSERT INTO %s SELECT id, 1, 'w', now(), now(), 'ok', '' FROM %s", attempts, runs),
		fmt.Sprintf("INSERT INTO %s (handler, run_at, priority) SELECT 'orders', now() + i * interval '1 hour', "+
			"i %% 3 - 1 FROM generate_series(1, %d) AS i", runs, delayed),
		fmt.Sprintf("INSERT INTO %s (handler, run_at) SELECT 'orders', now() FROM generate_series(1, 50) AS i", runs),
		fmt.Sprintf("INSERT INTO %s (handler, run_at, state, attempt, max_attempts, worker, claimed_at, lease_until) "+
			"SELECT 'orders', now(), 'running', 1, 3, 'w', now(), now() + interval '1 s' * (i - 5) "+
			"FROM generate_series(1, 20) AS i", runs),
		fmt.Sprintf("INSERT INTO %s (name, spec, next_spec, next_due_at, seen_at) SELECT 'schedule' || i, '1', '1', "+
			"now() + (i - 3) * interval '1 minute', now() FROM generate_series(1, 150) AS i", s.names["schedules"]),
		fmt.Sprintf("INSERT INTO %s (name, max_concurrency, seen_at) VALUES ('', 0, now()), ('orders', 100, now())",
			s.names["handlers"]))
}

// The regular statements of a worker find their rows by the partial indexes, no matter how many
// runs have ended or are delayed. That holds with and without statistics, and with generic and
// custom plans.
//
// Fails when an index is missing, or when the condition of a statement no longer matches the
// condition of its index.
func TestPlansUseTheIndexes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	d.exec(t, "ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()")
	d.crowded(t, s, testkit.Rounds(t, 3000, 100_000), testkit.Rounds(t, 500, 10_000))
	handlers := handlersJSON([]store.Handler{{Name: "orders", MaxAttempts: 3, MaxConcurrency: 100}, {Name: "mails"}})
	var keys []keyJSON
	for i := range 16 {
		keys = append(keys, keyJSON{int64(110_051 + i), 1, 0})
	}
	var results []resultJSON
	for _, key := range keys {
		results = append(results, resultJSON{key, store.OutcomeOK, store.StateSucceeded, "", 0, 0})
	}
	plans := []planJSON{{Name: "schedule1", Spec: "1", NextSpec: "1", Runs: []runJSON{{}}}}
	week := int64(7 * 24 * time.Hour / time.Microsecond)
	statements := map[string][]any{
		"due": {"-infinity", "", 1000}, "materialize": {inJSON(plans)}, "claim_lock": {handlers, 50, 500},
		"claim": {handlers, 50, 16, "w", 1e6, 1, claimSlack, store.MaxClaimedBytes, noneBehind,
			5_000_000, store.WorkerKey("w")},
		"renew": {inJSON(keys), "w", int64(1e6)}, "finish": {inJSON(results), "w"}, "reclaim": {100, "lost", 5},
		"sweep": {week / 20, week / 10, week / 10, week, 100}, "register": {handlers, store.WorkerKey("w")},
		"cancel":        {110_030, "", ""},
		"list_handlers": {week}, "list_histories": {store.MaxOutcomes, store.MaxFailures},
		"flow": {int64(300_000_000), int64(21_600_000_000), 1000},
	}
	for _, states := range [][]store.State{{store.StateQueued}, {store.StateRunning, store.StateQueued},
		{store.StateRunning}, {store.StateDead, store.StateRunning}} {
		name := fmt.Sprint("list ", states)
		s.texts[name], statements[name] = s.listing(store.Filter{States: states}, 1000)
	}
	for _, statistics := range []bool{false, true} {
		if statistics {
			d.exec(t, "ANALYZE")
		}
		for _, generic := range []bool{false, true} {
			for name, args := range statements {
				plan, err := s.explainPlan(t.Context(), name, args, generic)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				most := 400                         // there are fewer schedules than this
				if strings.Contains(name, "dead") { // a listing of runs reads a third of the newest runs
					most = 15_000
				}
				checkPlan(t, fmt.Sprintf("%s, statistics %t, generic %t", name, statistics, generic), plan, most)
			}
		}
	}
}

// pin gives a transaction the settings of the store's transactions.
func pin(ctx context.Context, tx pgx.Tx) error {
	limit, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	text, args := sqlkit.PostgresPinned(limit)
	_, err := tx.Exec(ctx, text, args...)
	return err
}

// explainPlan executes a statement, rolls it back, and returns its plan.
func (s *Store) explainPlan(ctx context.Context, name string, args []any, generic bool) (plan string, err error) {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, tx.Rollback(context.Background())) }()
	mode := "force_custom_plan"
	if generic {
		mode = "force_generic_plan"
	}
	if err := pin(ctx, tx); err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, "SET LOCAL plan_cache_mode = "+mode); err != nil {
		return "", err
	}
	rows, err := tx.Query(ctx, "EXPLAIN (ANALYZE, BUFFERS) "+s.texts[name], args...)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n"), err
}

var removed = regexp.MustCompile(`Rows Removed by (?:Filter|Join Filter|Index Recheck): (\d+)`)

// checkPlan fails the test if a plan scans a whole table, or if one of its steps discards more than
// most rows.
func checkPlan(t *testing.T, what, plan string, most int) {
	t.Helper()
	if strings.Contains(plan, "Seq Scan on durable_runs") || strings.Contains(plan, "Seq Scan on durable_attempts") ||
		strings.Contains(plan, "Bitmap Heap Scan on durable_runs") {
		t.Errorf("%s: the plan reads a whole table:\n%s", what, plan)
	}
	for _, m := range removed.FindAllStringSubmatch(plan, -1) {
		if n, err := strconv.Atoi(m[1]); err != nil || n > most {
			t.Errorf("%s: the plan discards %d rows:\n%s", what, n, plan)
		}
	}
}

// A backlog is counted only up to a maximum, but the run that has been due longest is always found,
// regardless of its priority.
//
// Fails when the cost of the regular counting grows with the backlog.
func TestBacklogIsCountedUpToANumber(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	s.texts["list_handlers"] = strings.ReplaceAll(s.texts["list_handlers"], fmt.Sprint("LIMIT ", maxCounted),
		"LIMIT 30")
	d.exec(t, "INSERT INTO durable_runs (handler, run_at, priority) SELECT 'h' || i % 2, "+
		"'2020-01-01 00:00:00Z'::timestamptz + i * interval '1 s', 1 - i / 20 FROM generate_series(1, 59) AS i",
		"INSERT INTO durable_runs (handler, run_at) VALUES ('later', now() + interval '1 hour')")
	stats, err := s.Stats(t.Context(), time.Hour)
	first := time.Date(2020, 1, 1, 0, 0, 1, 0, time.UTC)
	if err != nil || len(stats.ByHandler) != 3 || !stats.OldestDue.Equal(first) {
		t.Fatalf("%+v, %v", stats, err)
	}
	for i, want := range []struct {
		queued int64
		oldest time.Time
	}{{29, first.Add(time.Second)}, {30, first}, {1, time.Time{}}} {
		if h := stats.ByHandler[i]; h.Queued != want.queued || !h.OldestDue.Equal(want.oldest) {
			t.Errorf("%+v, want %+v", h, want)
		}
	}
	d.exec(t, "INSERT INTO durable_runs (handler, run_at) VALUES ('h1', now())")
	if stats, err = s.Stats(t.Context(), time.Hour); err != nil || stats.ByHandler[1].Queued != 30 {
		t.Errorf("%+v, %v, want at most 30", stats, err)
	}
}

// The newest runs of a backlog, or of dead letters that are kept forever, are found without reading
// all of them. They are also found if the backlog is older than many other runs, or if few runs are
// in the state.
//
// Fails when a listing reads the whole backlog, or leaves out older runs.
func TestBacklogIsListedFromItsEnd(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	s.texts["of_state"] = strings.NewReplacer(fmt.Sprint(" ", maxSorted), " 100", fmt.Sprint(" ", maxScanned), " 5000").
		Replace(s.texts["of_state"])
	const all, limit = 20_000, 50
	check := func(what string, which store.Filter, step, most int) {
		t.Helper()
		first := int64(all)
		if which.BeforeID > 0 {
			first = which.BeforeID - 1
		}
		runs, err := s.Runs(t.Context(), which, limit)
		if err != nil || len(runs) != min(limit, int(first)/step) {
			t.Fatalf("%s: %d runs, %v", what, len(runs), err)
		}
		for i, run := range runs {
			if want := first - int64(i*step); run.ID != want {
				t.Fatalf("%s: run %d is %d, want %d", what, i, run.ID, want)
			}
		}
		text, args := s.listing(which, limit)
		s.texts["list"] = text
		plan, err := s.explainPlan(t.Context(), "list", args, false)
		if err != nil {
			t.Fatal(err)
		}
		if n := pagesRead(t, plan); most > 0 && n > most {
			t.Errorf("%s: the plan reads %d pages, want at most %d:\n%s", what, n, most, plan)
		}
	}
	for _, state := range []store.State{store.StateQueued, store.StateDead} {
		d.exec(t, "TRUNCATE durable_runs RESTART IDENTITY CASCADE",
			fmt.Sprintf("INSERT INTO durable_runs (handler, state, run_at, finished_at) SELECT CASE i %% 1000 WHEN 0 "+
				"THEN 'rare' ELSE 'orders' END, '%s', now() - i * interval '1 s', CASE '%[1]s' WHEN 'dead' THEN "+
				"now() - i * interval '1 s' END FROM generate_series(1, %d) AS i", state, all), "ANALYZE durable_runs")
		which := store.Filter{States: []store.State{state}}
		check(fmt.Sprint(state, ", the newest"), which, 1, 100)
		which.BeforeID = 10_000
		check(fmt.Sprint(state, ", a later page"), which, 1, 100)
		check(fmt.Sprint(state, ", few"), store.Filter{States: which.States, Handler: "rare"}, 1000, 0)
		d.exec(t, "INSERT INTO durable_runs (handler, run_at, state, finished_at) "+
			"SELECT 'orders', now(), 'succeeded', now() FROM generate_series(1, 6000)")
		check(fmt.Sprint(state, ", older than others"), store.Filter{States: which.States}, 1, 0)
	}
}

// A statement about a few runs reads few pages, even if the statistics say that most rows are
// queued or running, and no matter how many runs have ended.
//
// Fails when a plan joins the few rows with a whole index because it expects many rows.
func TestBatchesReadFewPages(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	d := newDatabase(t)
	s := d.migrated(t)
	d.exec(t, "ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()")
	const many = 30_000
	statements := onBatch(25_001)
	statements["reclaim"], statements["sweep"], statements["requeue"] = []any{16, "lost", 5}, []any{1, 1, 1, 1, 16},
		[]any{"ann", "", 16}
	for what, states := range map[string]string{"a backlog": "'succeeded', 'queued', 'queued'",
		"a big fleet": "'succeeded', 'running', 'running'", "a history": "'succeeded', 'succeeded', 'dead'"} {
		d.exec(t, "TRUNCATE durable_runs RESTART IDENTITY CASCADE",
			fmt.Sprintf("INSERT INTO durable_runs (handler, run_at, state, attempt, max_attempts, worker, claimed_at, "+
				"lease_until, finished_at) SELECT 'orders', now() - interval '1 h', state, 1, 3, 'w', now(), "+
				"CASE state WHEN 'running' THEN now() + interval '1 h' END, "+
				"CASE WHEN state IN ('succeeded', 'dead') THEN now() END "+
				"FROM (SELECT (ARRAY[%s])[1 + i * 3 / %d] AS state FROM generate_series(0, %d - 1) AS i) AS rows",
				states, many, many),
			"INSERT INTO durable_attempts SELECT id, 1, 'w', now(), now(), 'ok', '' FROM durable_runs "+
				"WHERE finished_at IS NOT NULL", "ANALYZE",
			"UPDATE durable_runs SET state = 'running', lease_until = now() + interval '1 h', finished_at = NULL, "+
				"attempt = 1 WHERE id >= 25001 AND id % 100 = 1",
			"DELETE FROM durable_attempts WHERE run_id >= 25001 AND run_id % 100 = 1",
			"UPDATE durable_runs SET lease_until = now() WHERE state = 'running' AND id % 200 = 1")
		for name, args := range statements {
			for _, generic := range []bool{false, true} {
				plan, err := s.explainPlan(t.Context(), name, args, generic)
				if err != nil {
					t.Fatal(err)
				}
				most := 500 // includes the index entries that the statement writes
				if name == "reclaim" {
					most = 850 // reclaim reads all runs in progress, because no index contains their leases
				}
				if n := pagesRead(t, plan); n > most {
					t.Errorf("%s of %s, generic %t: the plan reads %d pages:\n%s", name, what, generic, n, plan)
				}
			}
		}
	}
}

// A full partition may have thousands of queued runs that are due before all others. A claim reads
// few of them, with and without statistics, and still finds the runs of other partitions.
//
// Fails when a claim reads all runs of a partition that has no room.
func TestFullPartitionIsNotRead(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	d.exec(t, "ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()",
		"INSERT INTO durable_runs (handler, run_at, partition_key) SELECT 'orders', now() - interval '1 h', 'full' "+
			"FROM generate_series(1, 20000)",
		"INSERT INTO durable_runs (handler, run_at, partition_key) SELECT 'orders', now(), 'other' || i "+
			"FROM generate_series(1, 12) AS i",
		"INSERT INTO durable_runs (handler, run_at, partition_key, state, attempt, worker, claimed_at, lease_until) "+
			"VALUES ('orders', now(), 'full', 'running', 1, 'w', now(), now() + interval '1 h')",
		"INSERT INTO durable_handlers (name) VALUES ('orders')")
	handlers := handlersJSON([]store.Handler{{Name: "orders", MaxAttempts: 3, MaxPerPartition: 1}})
	args := []any{handlers, 0, 16, "w", 1_000_000, 1, claimSlack, store.MaxClaimedBytes, noneBehind,
		5_000_000, store.WorkerKey("w")}
	for _, statistics := range []bool{false, true} {
		if statistics {
			d.exec(t, "ANALYZE")
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			tx, err := s.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pinned := pin(t.Context(), tx)
			_, locked := tx.Exec(t.Context(), s.texts["claim_lock"], handlers, 0, 0)
			_, set := tx.Exec(t.Context(), "SET LOCAL plan_cache_mode = "+mode)
			rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+s.texts["claim"], args...)
			if err := errors.Join(pinned, locked, set, err); err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(lines, "\n")
			checkPlan(t, fmt.Sprint(mode, ", statistics ", statistics), plan, 100)
			if n := pagesRead(t, plan); n > 1500 {
				t.Errorf("%s, statistics %t: the plan reads %d pages:\n%s", mode, statistics, n, plan)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	runs, err := s.Claim(t.Context(), store.ClaimRequest{Worker: "w", Limit: 16, TTL: time.Minute,
		Handlers: []store.Handler{{Name: "orders", MaxAttempts: 3, MaxPerPartition: 1}}})
	if err != nil || len(runs.Runs) != 12 {
		t.Errorf("%d runs are claimed, %v; want one run for each of the other partitions", len(runs.Runs), err)
	}
}

// onBatch returns the arguments of statements that claim 16 runs, or that concern 16 runs whose
// first attempt is running. These are every hundredth run, beginning with ID first.
func onBatch(first int) map[string][]any {
	var keys []keyJSON
	var results []resultJSON
	for i := range 16 {
		key := keyJSON{int64(first + 100*i), 1, 0}
		keys = append(keys, key)
		results = append(results, resultJSON{key, store.OutcomeOK, store.StateSucceeded, "", 0, 0})
	}
	handlers := handlersJSON([]store.Handler{{Name: "orders", MaxAttempts: 3}, {Name: "mails", MaxAttempts: 3}})
	return map[string][]any{
		"claim": {handlers, 0, 16, "w", 1_000_000, 1, claimSlack, store.MaxClaimedBytes, noneBehind,
			5_000_000, store.WorkerKey("w")},
		"finish": {inJSON(results), "w"},
		"renew":  {inJSON(keys), "w", int64(1_000_000)}}
}

// A plan that a connection has kept since the tables were empty also works for full tables, because
// it finds the rows of a batch by their IDs.
//
// Fails when the planner may choose to read a whole index that it believes to be empty, instead of
// looking up a few IDs.
func TestPlansOfEmptyTablesServeFullOnes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	d.exec(t, "ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()", "ANALYZE")
	statements := onBatch(15_001)
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	explain := func(name string, args []any) string {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(t.Context())
		if err := pin(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SET LOCAL plan_cache_mode = force_generic_plan"); err != nil {
			t.Fatal(err)
		}
		var places []string
		for i := range args {
			places = append(places, fmt.Sprint("$", i+1))
		}
		rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) EXECUTE kept_"+name+"("+
			strings.Join(places, ", ")+")", append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, "\n")
	}
	for name, args := range statements {
		if _, err := conn.Exec(t.Context(), "PREPARE kept_"+name+" AS "+s.texts[name]); err != nil {
			t.Fatal(err)
		}
		explain(name, args)
	}
	d.exec(t, "INSERT INTO durable_runs (handler, run_at, state, attempt, max_attempts, worker, claimed_at, "+
		"lease_until, finished_at) SELECT 'orders', now() - interval '1 h', "+
		"(ARRAY['succeeded', 'running', 'queued'])[1 + i / 10000], 1, 3, 'w', now(), "+
		"CASE i / 10000 WHEN 1 THEN now() + interval '1 h' END, CASE i / 10000 WHEN 0 THEN now() END "+
		"FROM generate_series(0, 29999) AS i",
		"INSERT INTO durable_attempts SELECT id, 1, 'w', now(), now(), 'ok', '' FROM durable_runs "+
			"WHERE finished_at IS NOT NULL")
	for name, args := range statements {
		plan := explain(name, args)
		if n := pagesRead(t, plan); n > 700 {
			t.Errorf("%s: the plan reads %d pages:\n%s", name, n, plan)
		}
	}
}

var buffers = regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`)

// pagesRead returns how many pages a plan has read.
func pagesRead(t *testing.T, plan string) (n int) {
	t.Helper()
	m := buffers.FindStringSubmatch(plan) // the first match is for the whole statement
	if m == nil {
		t.Fatal("no pages:\n" + plan)
	}
	for _, text := range m[1:] {
		pages, _ := strconv.Atoi(text)
		n += pages
	}
	return n
}

// Renewals write to no index, and autovacuum starts in time, because the tables have the settings
// of the schema.
//
// Fails when lease_until gets an index, or a setting is missing.
func TestRenewalsAreHOT(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	s := d.migrated(t)
	// One page has room for all versions of these rows, even if no old version is removed in the
	// meantime.
	const claims, rounds = 3, 4
	keys := keysOf(s.running(t, claims))
	pool := d.pool(t, "", "")
	updates := func() (all, hot int) {
		err := pool.QueryRow(t.Context(), "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables "+
			"WHERE relname = 'durable_runs'").Scan(&all, &hot)
		if err != nil {
			t.Fatal(err)
		}
		return all, hot
	}
	s.own.close() // a server session reports its statistics when it ends
	testkit.Eventually(t, testkit.Patience, "the claims are counted", func() bool {
		all, _ := updates()
		return all == claims
	})
	_, before := updates()
	for range rounds {
		if renewed, err := s.Renew(t.Context(), "w", keys, time.Minute); err != nil || len(renewed) != len(keys) {
			t.Fatal(renewed, err)
		}
	}
	s.own.close()
	testkit.Eventually(t, testkit.Patience, "the renewals are counted", func() bool {
		all, _ := updates()
		return all == claims+rounds*len(keys)
	})
	if _, hot := updates(); hot-before != rounds*len(keys) {
		t.Errorf("%d of %d renewals were HOT", hot-before, rounds*len(keys))
	}
	for table, want := range map[string]string{"runs": "fillfactor=80 autovacuum_vacuum_scale_factor=0.01",
		"attempts": "autovacuum_vacuum_insert_scale_factor=0.05", "schedules": "fillfactor=70",
		"handlers": "fillfactor=50"} {
		var options []string
		err := pool.QueryRow(t.Context(), "SELECT reloptions FROM pg_class WHERE relname = $1", "durable_"+table).
			Scan(&options)
		for _, option := range strings.Fields(want) {
			if err != nil || !slices.Contains(options, option) {
				t.Errorf("%s has no %s: %v, %v", table, option, options, err)
			}
		}
	}
}
