// Package sqlite implements store.Store on a SQLite file, for the processes of one machine, with
// any driver for database/sql.
//
// SQLite has one write lock per file, and each writing method is one transaction that holds it from
// the beginning. So other transactions lock no rows, and data that a method has read cannot change
// before it writes.
//
// Processes cannot wake each other: a worker finds runs queued by another process by polling.
// Notify wakes the callers of Listen on the same Store.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed sql/*.sql
var files embed.FS

// Store implements store.Store.
type Store struct {
	file   *sqlkit.File
	schema sqlmigrate.Schema
	runs   string       // quoted name of the table of runs
	texts  sqlkit.Texts // the statements

	mu        sync.Mutex
	listeners map[chan none]bool // each channel has a buffer of one
	behind    map[string]string  // by handler: the partition after which the next claim begins
}

var _ store.Store = (*Store)(nil)

// maxTableName is the same limit as on Postgres, so that a name is valid on both databases.
const maxTableName = 40

// New returns a store for the tables whose names begin with table, or an error with the faults of
// its arguments. schema must be empty. New does not open the file.
func New(db *sql.DB, table, schema string) (*Store, error) {
	d := sqlkit.SQLite
	err := d.CheckNames(sqlkit.TableNames{Table: table, Schema: schema, MaxTable: maxTableName, NoPool: db == nil})
	if err != nil {
		return nil, err
	}
	names := map[string]string{
		"ahead":   fmt.Sprint(store.MaxAhead.Microseconds()),
		"max_per": fmt.Sprint(store.MaxPer.Microseconds()), "first": strconv.Itoa(store.FirstAttempts),
		"last": strconv.Itoa(store.LastAttempts), "runs_name": d.Quote(table + "_runs"),
		"schedules_name": d.Quote(table + "_schedules"), "plan_in": d.Qualified("main", table+"_schedules_plan"),
	}
	for _, suffix := range []string{"schedules", "runs", "attempts", "handlers"} {
		names[suffix] = d.Qualified("main", table+"_"+suffix) // "main" excludes temporary tables of that name
	}
	for _, suffix := range []string{"tick", "waits", "key", "claim", "partition", "running", "dead", "ended",
		"history", "retried"} {
		names[suffix+"_in"] = d.Qualified("main", table+"_runs_"+suffix)
	}
	texts := sqlkit.ReadTexts(files, d, names)
	return &Store{file: sqlkit.NewFile(db), runs: names["runs"], texts: texts,
		listeners: map[chan none]bool{}, behind: map[string]string{},
		schema: sqlmigrate.Schema{Dialect: d, Schema: "main", Name: table, Table: table + "_runs",
			Migrations: [][]string{sqlmigrate.Statements(texts["schema"])},
			Repeat:     sqlmigrate.Statements(texts["indexes"])}}, nil
}

func (s *Store) String() string { return "sqlite" }

// Schema implements store.Store. It omits journal_mode, because migration tools execute statements
// within a transaction, where that setting cannot be changed.
func (s *Store) Schema() ([]string, error) { return s.schema.Statements(), nil }

// errSchema is matched by errors of Migrate and Verify when tables are missing, old, or different
// from those of Schema.
var errSchema = fmt.Errorf("%w: the schema is not right", dlock.ErrSetup)

// Migrate implements store.Store.
func (s *Store) Migrate(ctx context.Context) error { return s.tables().Migrate(ctx) }

// Verify implements store.Store.
func (s *Store) Verify(ctx context.Context) error { return s.tables().Verify(ctx) }

// tables returns the tables that Migrate creates and Verify compares.
func (s *Store) tables() sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: s.schema, Read: sqlmigrate.ReadFile(s.file), File: s.file, Wrong: errSchema,
		Up: func(ctx context.Context) error { return s.schema.UpFile(ctx, s.file) }, Explain: sqlkit.ExplainSQLite}
}

// Notify implements store.Worker, within this process.
func (s *Store) Notify(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for heard := range s.listeners {
		select {
		case heard <- none{}:
		default: // an earlier wake-up is pending
		}
	}
	return nil
}

// Listen implements store.Worker, within this process.
func (s *Store) Listen(ctx context.Context, woken func()) error {
	heard := make(chan none, 1)
	s.mu.Lock()
	s.listeners[heard] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, heard)
	}()
	for {
		woken()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-heard:
		}
	}
}

// roundUp rounds a duration up to the milliseconds of SQLite's clock. A lease ends when the clock
// is past its start plus this duration, so it never ends while its holder still trusts it.
func roundUp(d time.Duration) int64 { return (d.Microseconds() + 999) / 1000 * 1000 }

// micros returns an instant in µs, or nil for the zero time.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// orNil returns a text, or nil if it is empty.
func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// at scans an instant. NULL becomes the zero time.
type at struct{ to *time.Time }

// Scan implements sql.Scanner.
func (a at) Scan(value any) error {
	var micros sql.NullInt64
	if err := micros.Scan(value); err != nil {
		return err
	}
	*a.to = time.Time{}
	if micros.Valid {
		*a.to = time.UnixMicro(micros.Int64).UTC()
	}
	return nil
}

// text scans a text. NULL becomes "".
type text struct{ to *string }

// Scan implements sql.Scanner.
func (t text) Scan(value any) error {
	var s sql.NullString
	err := s.Scan(value)
	*t.to = s.String
	return err
}
