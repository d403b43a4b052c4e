package sqllock

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// Migrate creates the table or upgrades an older version's table, and creates missing indexes and
// routines. Any number of hosts may call it, concurrently and at every start. If nothing is
// missing, the user needs no privilege to create anything. Migrate accepts a table that has
// everything this version needs, even a newer version's table. If the table differs in another way,
// Migrate does not change it and returns an error that matches ErrSchema. If the table or file is
// locked, or the database does not answer, the error does not match ErrSchema.
//
// Migrate returns when ctx ends, even if the database does not answer. It may then have done part
// of the work; the next call continues from there.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	return s.tables().Migrate(ctx)
}

// tables returns the tables that Migrate creates and Verify compares.
func (s *Store) tables() sqlmigrate.Tables {
	t := s.db.Tables()
	t.Wrong, t.Explain = ErrSchema, explain
	besides := t.Besides
	t.Besides = func(ctx context.Context) (faults []error, err error) {
		if besides != nil {
			faults, err = besides(ctx)
		}
		return faults, cmp.Or(err, s.checkFormat(ctx))
	}
	return t
}

// Verify returns nil if the schema is the one that Migrate creates, in this version or a newer one.
// Otherwise it returns an error that matches ErrSchema. Call it at startup if another tool applies
// the schema.
func (s *Store) Verify(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	return s.tables().Verify(ctx)
}

// checkFormat returns an error if a later version has changed the format of the table. It returns
// nil if there is no table.
func (s *Store) checkFormat(ctx context.Context) error {
	answer, err := s.db.Inspect(ctx, `[""]`, false)
	if err != nil {
		return nil // verify reports the fault
	}
	var rows []store.Control
	if err := json.Unmarshal([]byte(answer), &rows); err != nil {
		return fmt.Errorf("%w: %w", store.ErrAnswer, err)
	}
	for _, r := range rows {
		if err := store.CheckFormat(r.Version); err != nil {
			return err
		}
	}
	return nil
}

// Schema returns the statements that Migrate executes on an empty database, including the records
// of the applied migrations. It is for users who apply their own migrations. Each migration begins
// with a comment that has its number.
func (s *Store) Schema() ([]string, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s.db.Tables().Schema.Statements(), nil
}

// Cleanup deletes rows that have been idle for Options.Retention, in small batches, and returns
// when it has seen all rows. Any host may call it at any time, so it can be a timer:
//
//	timer.Timer{Name: "cleanup", Schedule: schedule.Every(24 * time.Hour), Run: store.Cleanup}
//
// It keeps a row whose fence is ahead of the clock, because without it the fences of that slot
// would no longer grow. The row of a name (slot -1) is deleted one Cleanup after its last slot.
func (s *Store) Cleanup(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	var after store.Row
	for {
		p, err := s.db.Cleanup(ctx, micros(s.retention), after, cleanupBatch)
		if err != nil {
			return fmt.Errorf("cleanup: %w", explain(err))
		}
		if p.Seen < cleanupBatch {
			return nil
		}
		if p.Last.Compare(after) <= 0 {
			return fmt.Errorf("cleanup: %w: row %v after %v", store.ErrAnswer, p.Last, after)
		}
		after = p.Last
	}
}

// cleanupBatch is how many rows one transaction of Cleanup examines.
const cleanupBatch = 500
