package sqllock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock/sqllock/internal/dialect"
)

// Migrate creates the table, its indexes and its routines, unless they are there. It may be called
// by every host at every start, by several at the same time, and once it has been done by a user
// who may not create anything. It does not alter a table of that name that somebody else made: then
// it returns an error that matches ErrSchema.
func (s *Store) Migrate(ctx context.Context) error {
	missing := s.Verify(ctx)
	if !errors.Is(missing, ErrSchema) {
		return missing
	}
	if err := s.db.Migrate(ctx); err != nil {
		return fmt.Errorf("%w\nand Migrate failed: %w", missing, explain(err))
	}
	return s.Verify(ctx)
}

// Verify returns nil if the schema is as Migrate leaves it, and an error that matches ErrSchema if
// it is not. Call it when the program starts, if somebody else applies the schema.
func (s *Store) Verify(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	err := s.db.Verify(ctx)
	if err != nil && !errors.Is(err, ErrSchema) {
		return explain(err)
	}
	return cmp.Or(s.checkFormat(ctx), err)
}

// checkFormat returns an error if a later version has made the table its own. Where there is no
// table it returns nil.
func (s *Store) checkFormat(ctx context.Context) error {
	answer, err := s.db.Inspect(ctx, `[""]`)
	if err != nil {
		return nil // verify says what is wrong
	}
	var rows []dialect.Control
	if err := json.Unmarshal([]byte(answer), &rows); err != nil {
		return fmt.Errorf("%w: %w", dialect.ErrAnswer, err)
	}
	for _, r := range rows {
		if err := dialect.CheckFormat(r.Version); err != nil {
			return explain(err)
		}
	}
	return nil
}

// Schema returns what Migrate executes, one statement each, for those who apply their own
// migrations.
func (s *Store) Schema() ([]string, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s.db.Schema(), nil
}

// Cleanup deletes the rows that nobody has used for Options.Retention, in small batches, and
// returns when it has seen all. It may be called by any host at any time, so it makes a good timer:
//
//	timer.Timer{Name: "cleanup-locks", Schedule: schedule.Every(24 * time.Hour), Run: lock.Cleanup}
//
// A row whose fence is ahead of the clock is kept: without it the fences of that slot would not go
// on growing. What concerns a whole name goes one Cleanup later than its last slot.
func (s *Store) Cleanup(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	var after dialect.Row
	for {
		p, err := s.db.Cleanup(ctx, micros(s.retention), after, cleanupBatch)
		if err != nil {
			return fmt.Errorf("cleanup: %w", explain(err))
		}
		if p.Seen < cleanupBatch {
			return nil
		}
		if p.Last.Compare(after) <= 0 {
			return fmt.Errorf("cleanup: %w: row %v after %v", dialect.ErrAnswer, p.Last, after)
		}
		after = p.Last
	}
}

// cleanupBatch rows are looked at in one transaction.
const cleanupBatch = 500
