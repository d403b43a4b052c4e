// Package sqlite implements store.Store on a SQLite file, for the processes of one machine, with
// any driver for database/sql.
//
// SQLite has one write lock per file, and a method that writes is one transaction that has it from
// its begin. So there are no rows that others have locked, and what a method decides in Go from
// what it has read is still so when it writes.
//
// Processes cannot wake each other: what another one has queued is found by polling. Notify wakes
// the callers of Listen on the same Store.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed *.sql
var files embed.FS

// now is the current time in µs, exact to the millisecond. SQLite's clock is the machine's; it is
// constant within a statement. julianday is the oldest function with milliseconds; round removes
// the error of its float64.
const now = "(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"

// Store implements store.Store.
type Store struct {
	file   *sqlkit.File
	schema sqlmigrate.Schema
	names  map[string]string
	texts  map[string]string // the statements, by the names of their files

	mu        sync.Mutex
	listeners map[chan none]bool // each has a buffer of one
}

var _ store.Store = (*Store)(nil)

// maxTableName is what Postgres allows, so that a name fits both.
const maxTableName = 40

// New returns the store of the tables whose names begin with table, and a fault of its
// arguments. It does not open the file.
func New(db *sql.DB, table string) (*Store, error) {
	var faults []error
	// Braces are the placeholders of the statements.
	if table == "" || !utf8.ValidString(table) || strings.ContainsFunc(table, unicode.IsControl) ||
		len(table) > maxTableName || strings.ContainsAny(table, "{}") {
		faults = append(faults, fmt.Errorf(
			"%w: TableName %q: use text without braces and control characters, at most %d bytes",
			dlock.ErrSetup, table, maxTableName))
	}
	if strings.HasPrefix(strings.ToLower(table), "sqlite_") {
		faults = append(faults, fmt.Errorf("%w: TableName %q: SQLite keeps names that begin with sqlite_ to "+
			"itself", dlock.ErrSetup, table))
	}
	if db == nil {
		faults = append(faults, fmt.Errorf("%w: no *sql.DB: pass one", dlock.ErrSetup))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	d := sqlkit.SQLite
	s := &Store{
		file:  sqlkit.NewFile(db),
		names: map[string]string{"now": now, "ahead": fmt.Sprint(store.MaxAhead.Microseconds())},
		texts: map[string]string{}, listeners: map[chan none]bool{},
	}
	for _, suffix := range []string{"schedules", "runs", "attempts", "handlers"} {
		s.names[suffix] = d.Qualified("main", table+"_"+suffix) // not a temporary table of that name
	}
	s.names["runs_name"] = d.Quote(table + "_runs")
	s.names["schedules_name"] = d.Quote(table + "_schedules")
	s.names["plan_in"] = d.Qualified("main", table+"_schedules_plan")
	for _, suffix := range []string{"tick", "waits", "key", "claim", "running", "dead", "ended"} {
		index := table + "_runs_" + suffix
		s.names[suffix+"_in"] = d.Qualified("main", index)
	}
	all, err := fs.Glob(files, "*.sql")
	for _, name := range all {
		text, readErr := files.ReadFile(name)
		err = cmp.Or(err, readErr)
		s.texts[strings.TrimSuffix(name, ".sql")] = strings.TrimSpace(string(text))
	}
	if err != nil {
		panic(err) // they are embedded
	}
	s.names["run"] = s.texts["run"]
	s.names["first"], s.names["last"] = strconv.Itoa(store.FirstAttempts), strconv.Itoa(store.LastAttempts)
	for name, text := range s.texts {
		s.texts[name] = s.fill(text)
	}
	s.schema = sqlmigrate.Schema{Dialect: d, Schema: "main", Name: table, Table: table + "_runs",
		Migrations: [][]string{sqlmigrate.Statements(s.texts["schema"])},
		Repeat:     sqlmigrate.Statements(s.texts["indexes"])}
	return s, nil
}

// fill fills the names of the tables into a statement.
func (s *Store) fill(text string) string { return sqlmigrate.Fill(text, s.names) }

func (s *Store) String() string { return "sqlite" }

// Schema implements store.Store. It leaves out journal_mode, which cannot be changed within a
// transaction, where migration tools would execute it.
func (s *Store) Schema() ([]string, error) { return s.schema.Statements(), nil }

// errSchema is matched by errors of Migrate and Verify when tables are missing, old, or different
// from those of Schema.
var errSchema = fmt.Errorf("%w: the schema is not right", dlock.ErrSetup)

// Migrate implements store.Store.
func (s *Store) Migrate(ctx context.Context) error { return s.tables().Migrate(ctx) }

// Verify implements store.Store.
func (s *Store) Verify(ctx context.Context) error { return s.tables().Verify(ctx) }

// tables are what Migrate creates and Verify compares.
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
		default: // it has not looked yet since the last one
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

// roundUp rounds up to the milliseconds of SQLite's clock. A lease ends when the clock shows more
// than its start plus this, so it is never shorter than its holder trusts it.
func roundUp(d time.Duration) int64 { return (d.Microseconds() + 999) / 1000 * 1000 }

// micros is an instant in µs, nil for the zero time.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// orNil is a text, nil for an empty one.
func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// at scans an instant; nothing is the zero time.
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

// text scans a text; nothing is the empty one.
type text struct{ to *string }

// Scan implements sql.Scanner.
func (t text) Scan(value any) error {
	var s sql.NullString
	err := s.Scan(value)
	*t.to = s.String
	return err
}
