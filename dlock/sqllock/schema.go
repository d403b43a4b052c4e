package sqllock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tickslot/tickslot/dlock"
)

// Migrate creates the table, its indexes and its routines, unless they are there. It may be called by every host at every start, by
// several at the same time, and once it has been done by a user who may not create anything. It does not alter a table of that name
// that somebody else made: then it returns an error that matches ErrSchema.
func (s *Store) Migrate(ctx context.Context) error {
	missing := s.Verify(ctx)
	if !errors.Is(missing, ErrSchema) {
		return missing
	}
	if err := s.db.migrate(ctx); err != nil {
		return fmt.Errorf("%w\nand Migrate failed: %w", missing, explain(err))
	}
	return s.Verify(ctx)
}

// Verify returns nil if the schema is as Migrate leaves it, and an error that matches ErrSchema if it is not. Call it when the
// program starts, if somebody else applies the schema.
func (s *Store) Verify(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	err := s.db.verify(ctx)
	if err != nil && !errors.Is(err, ErrSchema) {
		return explain(err)
	}
	return cmp.Or(s.checkFormat(ctx), err)
}

// tableFormat is the number of the format in which this version keeps its rows. A version that keeps them in a way that this one would misread
// has to write a larger number, in its Migrate, into orders_version of the row with slot -1 and no name, which is the name of nothing. Every acquire
// reads that row, so that of two versions on one table only those grant that understand it. The number stands in the files that
// acquire, too. Columns and routines that are only added need no new number.
const tableFormat = 1

// checkFormat returns an error if a later version has made the table its own. Where there is no table it returns nil.
func (s *Store) checkFormat(ctx context.Context) error {
	answer, err := s.db.inspect(ctx, `[""]`)
	if err != nil {
		return nil // verify says what is wrong
	}
	var rows []controlRow
	if err := json.Unmarshal([]byte(answer), &rows); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	for _, r := range rows {
		if err := laterFormat(r.Version); err != nil {
			return explain(err)
		}
	}
	return nil
}

func laterFormat(format int64) error {
	if format <= tableFormat {
		return nil
	}
	return fmt.Errorf("%w: a later version of tickslot uses the table, with format %d, and this one knows format %d: update this host", dlock.ErrSetup, format, tableFormat)
}

// Schema returns what Migrate executes, one statement each, for those who apply their own migrations.
func (s *Store) Schema() ([]string, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s.db.schema(), nil
}

// A wantedColumn is a column as the schema makes it, in the words of the catalogue of the database.
type wantedColumn struct{ name, typ string }

// checkColumns compares the columns of a table with those that are needed. Further columns do no harm.
func checkColumns(table string, has map[string]string, want []wantedColumn) []error {
	var errs []error
	for _, c := range want {
		switch typ := has[c.name]; {
		case typ == "":
			errs = append(errs, fmt.Errorf("%s has no column %s", table, c.name))
		case !strings.EqualFold(typ, c.typ):
			errs = append(errs, fmt.Errorf("column %s of %s is %s, and has to be %s", c.name, table, typ, c.typ))
		}
	}
	return errs
}

// wrongSchema joins what is wrong, or returns nil.
func wrongSchema(errs ...error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: call Migrate, or execute Schema:\n%w", ErrSchema, err)
}

// fill puts names into the text of a statement: {table} and the like.
func fill(text string, names map[string]string) string {
	pairs := make([]string, 0, 2*len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		pairs = append(pairs, "{"+name+"}", names[name])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// statements splits a script at the semicolons that end a line.
func statements(script string) []string {
	var list []string
	for part := range strings.SplitSeq(script, ";\n") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// quote puts an identifier into quotes, in which the closing one is doubled.
func quote(open, close, name string) string {
	return open + strings.ReplaceAll(name, close, close+close) + close
}

// qualified is a name in its schema, if there is one.
func qualified(schema, name string, quoted func(string) string) string {
	if schema == "" {
		return quoted(name)
	}
	return quoted(schema) + "." + quoted(name)
}

// Cleanup deletes the rows that nobody has used for Options.Retention, in small batches, and returns when it has seen all. It may be called by
// any host at any time, so it makes a good timer:
//
//	timer.Timer{Name: "cleanup-locks", Schedule: schedule.Every(24 * time.Hour), Run: lock.Cleanup}
//
// A row whose fence is ahead of the clock is kept: without it the fences of that slot would not go on growing. What concerns a
// whole name goes one Cleanup later than its last slot.
func (s *Store) Cleanup(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	var after row
	for {
		p, err := s.db.cleanup(ctx, micros(s.retention), after, cleanupBatch)
		if err != nil {
			return fmt.Errorf("cleanup: %w", explain(err))
		}
		if p.seen < cleanupBatch {
			return nil
		}
		if p.last.compare(after) <= 0 {
			return fmt.Errorf("cleanup: %w: row %v after %v", errAnswer, p.last, after)
		}
		after = p.last
	}
}

// cleanupBatch rows are looked at in one transaction.
const cleanupBatch = 500

// A row is the primary key of one. The zero row stands before all others: resource_name is never empty.
type row struct {
	resource string
	slot     int
}

func (r row) compare(other row) int {
	return cmp.Or(cmp.Compare(r.resource, other.resource), cmp.Compare(r.slot, other.slot))
}

// A page is what one batch of Cleanup did.
type page struct {
	seen    int // rows looked at
	deleted int
	last    row // the last one looked at
}
