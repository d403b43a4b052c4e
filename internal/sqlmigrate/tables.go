package sqlmigrate

import (
	"context"
	"errors"
	"fmt"
)

// Tables are what a product keeps in a database, for its Migrate and Verify.
type Tables struct {
	// Wrong is matched by errors that say that tables are missing, old, or different from those of
	// the schema; their texts begin with its own.
	Wrong error
	// Verify returns an error that matches Wrong if that is so.
	Verify func(ctx context.Context) error
	// Up executes what is missing.
	Up func(ctx context.Context) error
	// Explain adds to an error of Up who says it, and what to do about it.
	Explain func(error) error
}

// Migrate executes what is missing, if anything is: once everything is there, also a user who may
// not create anything can call it. If Up fails for good, the error says what is missing, too. One
// that passes, such as that of a database that does not answer, does not match Wrong.
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

// Differ returns an error that matches wrong if there are faults, which say how the tables differ
// from those of the schema, or if pending, which Schema.Verify has returned, says that a migration
// was not applied. What else pending says is explained.
func Differ(wrong error, faults []error, pending error, explain func(error) error) error {
	switch {
	case errors.Is(pending, ErrPending):
		faults = append(faults, pending)
	case pending != nil && len(faults) == 0:
		return explain(pending)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w: call Migrate, or execute Schema:\n%w", wrong, err)
	}
	return nil
}
