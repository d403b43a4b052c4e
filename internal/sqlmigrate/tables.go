package sqlmigrate

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Tables are a product's tables in a database, for its Migrate and Verify.
type Tables struct {
	Schema Schema
	Read   Reader       // for the catalog
	File   *sqlkit.File // on SQLite, so that Verify can check that it is usable; otherwise nil

	// Wrong is matched by errors that report missing, outdated or different tables. Their texts
	// begin with that of Wrong.
	Wrong error
	// Besides returns further faults. It may be nil.
	Besides func(ctx context.Context) ([]error, error)
	// Up executes what is missing.
	Up func(ctx context.Context) error
	// Explain adds the name of the product to a database error, and how to repair its cause.
	Explain func(error) error
}

// Migrate executes what is missing. If nothing is missing, even a user without the right to create
// anything can call it. If Up fails permanently, the error also says what is missing. A transient
// error, for example because the database does not answer, does not match Wrong.
func (t Tables) Migrate(ctx context.Context) error {
	missing := t.Verify(ctx)
	if !errors.Is(missing, t.Wrong) {
		return missing
	}
	switch err := t.Up(ctx); {
	case Passes(err):
		return t.Explain(fmt.Errorf("migrate: %w", err))
	case err != nil:
		return fmt.Errorf("%w\nand Migrate failed: %w", missing, t.Explain(err))
	}
	return t.Verify(ctx)
}

// Verify returns nil if the tables are as the schema declares them, and otherwise an error that
// matches Wrong.
func (t Tables) Verify(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return t.Explain(err)
	}
	if err := t.usable(ctx); err != nil {
		return t.Explain(err)
	}
	var besides []error
	if t.Besides != nil { // finds servers that cannot answer the next query
		var err error
		if besides, err = t.Besides(ctx); err != nil {
			return t.Explain(err)
		}
	}
	faults, err := t.Schema.differences(ctx, t.Read)
	if err != nil {
		return t.Explain(err)
	}
	faults = append(faults, besides...)
	switch pending := t.Schema.pending(ctx, t.Read); {
	case errors.Is(pending, ErrPending):
		faults = append(faults, pending)
	case pending != nil && len(faults) == 0:
		return t.Explain(pending)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w: call Migrate, or execute Schema:\n%w", t.Wrong, err)
	}
	if err := t.writable(ctx); err != nil {
		return t.Explain(err)
	}
	return nil
}

// usable returns an error if each connection has its own file, or if other paths lead to the file.
func (t Tables) usable(ctx context.Context) error {
	if t.File == nil {
		return nil
	}
	const exists = "SELECT EXISTS (SELECT 1 FROM main.sqlite_master WHERE name = ?1 COLLATE NOCASE)"
	_, err := sqlkit.InTime(ctx, func(ctx context.Context) (none struct{}, _ error) {
		err := t.File.Shared(ctx, exists, t.Schema.Name+"_migrations")
		return none, cmp.Or(err, t.File.OnePath()) // a file system may hang too
	})
	return err
}

// writable returns an error if the file cannot be written. Otherwise the first write would report
// that as an outage.
func (t Tables) writable(ctx context.Context) error {
	if t.File == nil {
		return nil
	}
	_, err := sqlkit.Do(ctx, t.File, func(conn *sql.Conn) (none struct{}, _ error) {
		_, err := conn.ExecContext(context.Background(), t.Schema.touch())
		if sqlkit.SQLiteLocked(err) {
			return none, nil // another connection writes, so the file is writable
		}
		return none, err
	})
	return err
}
