package sqlmigrate

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// ErrPending is matched by errors of Verify if migrations have not been applied.
var ErrPending = errors.New("the schema is not up to date")

// A Schema describes the tables of one package, with the names from its options.
type Schema struct {
	Dialect sqlkit.Dialect
	Schema  string // of the version table; "" for the connection's default
	Name    string // of the set of tables; the version table is Name_migrations

	// Table is the table that migration 1 creates, without quotes. If it was dropped, or was
	// missing from a restored backup, Up starts again with migration 1. If Table is "", Up does not
	// check.
	Table string

	// AnySettings says that the statements work with any database encoding on Postgres, and with
	// any session settings on MySQL.
	AnySettings bool

	// Migrations are the statements of migrations 1, 2, ….
	Migrations [][]string

	// Repeat are statements that create anything else that is missing.
	Repeat []string
}

// Versions returns the quoted name of the version table.
func (s Schema) Versions() string { return s.Dialect.Qualified(s.Schema, s.Name+"_migrations") }

// Statements returns what Up executes on an empty database, without locks. Executed one after the
// other, they have the same result as Up. The first statement of each migration begins with a
// comment that contains its number. Users who upgrade manually execute the statements after the
// highest version in the version table.
func (s Schema) Statements() []string {
	list := []string{s.createVersions()}
	for i, statements := range s.Migrations {
		for j, statement := range statements {
			if j == 0 {
				statement = fmt.Sprintf("-- Migration %d of %s.\n%s", i+1, s.Name, statement)
			}
			list = append(list, statement)
		}
		list = append(list, s.record(int64(i+1)))
	}
	return append(list, s.Repeat...)
}

// Up applies the missing migrations in order and then executes Repeat. When a migration fails, the
// earlier ones remain, and the next Up continues from there.
func (s Schema) Up(ctx context.Context, db *sql.DB) error {
	return bounded(ctx, func() error {
		var locked error
		for {
			err := s.up(ctx, db)
			if s.Dialect != sqlkit.SQLite || !sqlkit.SQLiteLocked(err) {
				if err != nil && ctx.Err() != nil && locked != nil {
					return locked // the reason why no time was left
				}
				return err
			}
			locked = sqlkit.LockedTooLong(err)
			select {
			case <-ctx.Done():
				return locked
			case <-time.After(lockedPause/2 + rand.N(lockedPause)):
			}
		}
	})
}

// UpFile is like Up, for SQLite. It first switches the file to a write-ahead log, so that readers
// and writers do not wait for each other. This is not part of the schema, because it cannot be done
// within a transaction.
func (s Schema) UpFile(ctx context.Context, f *sqlkit.File) error {
	_, err := sqlkit.Do(ctx, f, func(conn *sql.Conn) (none struct{}, _ error) {
		_, err := conn.ExecContext(context.Background(), "PRAGMA main.journal_mode = wal")
		return none, err
	})
	if err != nil {
		return err
	}
	return s.Up(ctx, f.DB)
}

// Passes reports whether an error of Up says nothing about the schema: another session had locked
// it, or the database did not answer, and the next Up may succeed.
func Passes(err error) bool {
	return errors.Is(err, errBusy) || sqlkit.Passes(err)
}

// lockedPause is the average pause before retrying a locked file.
const lockedPause = 5 * time.Millisecond

func (s Schema) up(ctx context.Context, db *sql.DB) error {
	if err := s.always(ctx, db, []string{s.createVersions()}); err != nil {
		return err
	}
	if s.Table != "" {
		if err := s.always(ctx, db, []string{s.forget()}); err != nil {
			return err
		}
	}
	if err := s.once(ctx, db, s.Migrations); err != nil || len(s.Repeat) == 0 {
		return err
	}
	return s.always(ctx, db, s.Repeat)
}

// always executes statements through goose, like a migration, but does not record them.
func (s Schema) always(ctx context.Context, db *sql.DB, statements []string) error {
	st := store{s, s.Versions()}
	return st.run(ctx, db, true, []migration{func(ctx context.Context, tx *sql.Tx) error {
		// On SQLite, the statement that creates the version table takes the lock of the file.
		if s.Dialect != sqlkit.SQLite || statements[0] != s.createVersions() {
			if err := s.lock(ctx, tx); err != nil {
				return err
			}
		}
		return s.execute(ctx, tx, statements)
	}})
}

// once applies the migrations that are not recorded yet, through goose.
func (s Schema) once(ctx context.Context, db *sql.DB, migrations [][]string) error {
	st := store{s, s.Versions()}
	list := make([]migration, len(migrations))
	for i, statements := range migrations {
		version := int64(i + 1)
		list[i] = func(ctx context.Context, tx *sql.Tx) error {
			if err := s.lock(ctx, tx); err != nil {
				return err
			}
			// goose has checked this before the lock was held.
			if done, err := st.isApplied(ctx, tx, version); done || err != nil {
				return err
			}
			if err := s.execute(ctx, tx, statements); err != nil {
				return fmt.Errorf("migration %d of %s: %w", version, s.Name, err)
			}
			return nil
		}
	}
	return st.run(ctx, db, false, list)
}

func (s Schema) execute(ctx context.Context, tx *sql.Tx, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil && !s.existsAlready(err) {
			return err
		}
	}
	return nil
}

// migration is the function that goose calls in a transaction.
type migration = func(context.Context, *sql.Tx) error

// run runs migrations through goose.
func (s store) run(ctx context.Context, db *sql.DB, unrecorded bool, migrations []migration) error {
	var failed error // without the text that goose adds to it
	list := make([]*goose.Migration, len(migrations))
	for i, m := range migrations {
		list[i] = goose.NewGoMigration(int64(i+1), &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			failed = m(ctx, tx)
			return failed
		}}, nil)
	}
	options := []goose.ProviderOption{goose.WithStore(s), goose.WithGoMigrations(list...),
		goose.WithDisableGlobalRegistry(true), // the application may also use goose
		goose.WithDisableVersioning(unrecorded)}
	if s.Dialect == sqlkit.MySQL {
		options = append(options, goose.WithSessionLocker(&mysqlLock{key: key(s.versions)}))
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, nil, options...)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return cmp.Or(failed, err)
}

// pending returns nil if all migrations are recorded, and otherwise an error that matches
// ErrPending.
func (s Schema) pending(ctx context.Context, read Reader) error {
	var latest int64
	err := read(ctx, s.latestQuery(), nil, func() {}, func(r Row) error { return r.Scan(&latest) })
	switch {
	case isMissing(err):
		return fmt.Errorf("%w: there is no table %s", ErrPending, s.Versions())
	case err != nil:
		return fmt.Errorf("reading %s: %w", s.Versions(), err)
	case latest < int64(len(s.Migrations)):
		return fmt.Errorf("%w: %s has migrations up to %d recorded, of %d", ErrPending, s.Versions(), latest,
			len(s.Migrations))
	}
	return nil
}

// latestQuery returns a query that selects the number of the latest recorded migration.
func (s Schema) latestQuery() string {
	return "SELECT COALESCE(MAX(version), 0) FROM " + s.Versions()
}

// bounded calls call and returns when ctx ends, even if a driver does not.
func bounded(ctx context.Context, call func() error) error {
	done := guard.Go("driver", call)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done: // this error is more specific
		return err
	case <-time.After(grace):
		return fmt.Errorf("the database did not answer: %w", ctx.Err())
	}
}

// grace is how long bounded waits for a driver that observes the context itself.
const grace = 50 * time.Millisecond

// Statements splits a script at semicolons at the end of a line.
func Statements(script string) []string {
	var list []string
	for part := range strings.SplitSeq(script, ";\n") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, strings.TrimSuffix(part, ";"))
		}
	}
	return list
}
