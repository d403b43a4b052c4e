package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// errSchema is matched by errors of Migrate and Verify when tables are missing, old, or different
// from those of Schema.
var errSchema = fmt.Errorf("%w: the schema is not right", dlock.ErrSetup)

// indexes are the names of the indexes, without that of the set of tables.
var indexes = []string{"schedules_plan", "runs_tick", "runs_waiting", "runs_key", "runs_queued", "runs_running",
	"runs_ended"}

// columns are those of each table, with the names of their types in pg_type.
var columns = map[string]map[string]string{
	"schedules": types("text", "name handler spec description next_spec paused_by paused_note",
		"timestamptz", "next_due_at plan_at last_due_at paused_at paused_until seen_at created_at",
		"int8", "ticks_queued ticks_coalesced ticks_skipped ticks_paused"),
	"handlers": types("text", "name override_by override_note paused_by paused_note",
		"int4", "max_concurrency override", "timestamptz", "paused_until seen_at created_at"),
	"runs": types(
		"text", "handler schedule state key worker canceled_by canceled_note queued_by queued_note last_error "+
			"traceparent",
		"int8", "id claim", "uuid", "nonce", "int4", "attempt uncounted own_attempts max_attempts", "int2",
		"priority", "bool", "backfill",
		"timestamptz", "due_at run_at claimed_at lease_until created_at finished_at", "bytea", "payload"),
	"attempts": types("int8", "run_id claim", "int4", "attempt", "text", "worker outcome error",
		"timestamptz", "started_at finished_at"),
}

// types is given types, and the columns of each.
func types(list ...string) map[string]string {
	of := map[string]string{}
	for i := 0; i < len(list); i += 2 {
		for _, column := range strings.Fields(list[i+1]) {
			of[column] = list[i]
		}
	}
	return of
}

// Schema implements store.Store.
func (s *Store) Schema() ([]string, error) { return s.schema.Statements(), nil }

// Migrate implements store.Store.
func (s *Store) Migrate(ctx context.Context) error {
	up := func(ctx context.Context) error {
		db := stdlib.OpenDBFromPool(s.pool)
		defer db.Close()
		return s.schema.Up(ctx, db)
	}
	return sqlmigrate.Tables{Wrong: errSchema, Verify: s.Verify, Up: up, Explain: sqlkit.Explain}.Migrate(ctx)
}

// Verify implements store.Store.
func (s *Store) Verify(ctx context.Context) error {
	faults, err := s.differences(ctx)
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(s.pool)
	defer db.Close()
	return sqlmigrate.Differ(errSchema, faults, s.schema.Verify(ctx, db), sqlkit.Explain)
}

// differences returns how the tables differ from those that are needed. Additional columns are
// ignored.
func (s *Store) differences(ctx context.Context) (faults []error, err error) {
	type table struct {
		Name    string            `json:"name"`
		Columns map[string]string `json:"columns"`
	}
	var wanted []table
	all := []string{s.schema.Versions()}
	for _, name := range tables {
		wanted = append(wanted, table{s.names[name], columns[name]})
		all = append(all, s.names[name])
	}
	var names []string
	for _, name := range indexes {
		names = append(names, s.schema.Dialect.Qualified(s.schema.Schema, s.schema.Name+"_"+name))
	}
	hides := ""
	hidden, tablesOf := sqlkit.PostgresHidden(all...)
	err = s.call(ctx, s.shared, func() []statement {
		faults = nil
		return []statement{{s.texts["verify"], []any{inJSON(wanted), inJSON(names)}, func(rows pgx.Rows) error {
			var fault string
			err := rows.Scan(into(&fault))
			faults = append(faults, errors.New(fault))
			return err
		}}, {hidden, tablesOf, func(rows pgx.Rows) error { return rows.Scan(into(&hides)) }}}
	})
	return faults, cmp.Or(err, sqlkit.CheckHidden(hides))
}
