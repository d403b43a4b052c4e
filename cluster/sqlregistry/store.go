package sqlregistry

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// DefaultTableName is the table name of a store whose Options set none.
const DefaultTableName = "tickslot_registry"

// maxTableName leaves room for index suffixes within the 63 bytes of a name that Postgres keeps.
const maxTableName = 50

// Options are the settings of a store. The zero value is valid.
type Options struct {
	// TableName is the name of the table and the prefix of its index names. It is quoted, so any
	// text without braces is valid. At most 50 bytes. Default "tickslot_registry".
	TableName string

	// Schema is the schema (Postgres, SQL Server) or database (MySQL) of the table. SQLite has
	// none. At most 63 bytes. Default "public" on Postgres, regardless of the search_path;
	// elsewhere the schema or database of the connection.
	Schema string
}

// Store implements cluster.Store on a table of an SQL database. Create one with Postgres, MySQL,
// SQLite or SQLServer.
type Store struct {
	db    database
	close func() error // closes the store's own pool; nil if it has none
	fault error

	closed atomic.Bool
}

var _ cluster.Store = (*Store)(nil)

// ErrSchema is matched by errors of Verify and Migrate when the table is missing, outdated, or
// differs from Schema. It matches dlock.ErrSetup.
var ErrSchema = fmt.Errorf("sqlregistry: %w: the schema is not right", dlock.ErrSetup)

func newStore(d sqlkit.Dialect, db *sql.DB, opts Options) *Store {
	p := Pool{DB: db}
	if db == nil {
		p.Fault = errors.New("no *sql.DB: pass one")
	}
	return newOn(d, p, opts)
}

func newOn(d sqlkit.Dialect, p Pool, opts Options) *Store {
	opts.TableName = cmp.Or(opts.TableName, DefaultTableName)
	fault := d.CheckNames(sqlkit.TableNames{Product: "sqlregistry", Table: opts.TableName, Schema: opts.Schema,
		MaxTable: maxTableName})
	if p.Fault != nil {
		fault = errors.Join(fault, fmt.Errorf("sqlregistry: %w: %w", dlock.ErrSetup, p.Fault))
	}
	return &Store{db: newDatabase(d, p.DB, opts), close: p.Close, fault: fault}
}

// Close closes the connections that the store itself opened, but not the pool passed to its
// constructor. Call it after Run of the Registry has returned. Later calls fail with an error that
// matches dlock.ErrClosed.
func (s *Store) Close() error {
	if s == nil || s.closed.Swap(true) || s.close == nil {
		return nil
	}
	return s.close()
}

// Check returns the faults of the options without calling the server. All methods return these
// faults.
func (s *Store) Check() error {
	if s == nil || s.db == nil {
		return fmt.Errorf("sqlregistry: %w: an empty *Store: make one with Postgres, MySQL, SQLite or SQLServer",
			dlock.ErrSetup)
	}
	if s.fault == nil && s.closed.Load() {
		return errClosed
	}
	return s.fault
}

var errClosed = fmt.Errorf("sqlregistry: %w", dlock.ErrClosed)

func (s *Store) String() string {
	if s == nil || s.db == nil {
		return "sql"
	}
	return s.db.String()
}

// ready returns an error if the options are faulty or the store is closed.
func (s *Store) ready(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	return ctx.Err()
}

// Write implements cluster.Store.
func (s *Store) Write(ctx context.Context, b cluster.Batch) (cluster.Written, error) {
	if err := s.ready(ctx); err != nil {
		return cluster.Written{}, err
	}
	began := time.Now()
	rows := rowsOf(b)
	if len(rows) == 0 {
		return cluster.Written{}, nil
	}
	host := ""
	if b.Host != nil {
		host = hostID(b.Host.Holder)
	}
	a, err := s.db.write(ctx, func() []row { return later(rows, time.Since(began)) }, host)
	if err != nil {
		return cluster.Written{}, explain(err)
	}
	w := cluster.Written{HostUnknown: b.Host != nil && b.Host.Detail == nil && !a.hostKnown}
	if a.clock > 0 {
		w.At = time.UnixMicro(a.clock)
	}
	return w, nil
}

// Read implements cluster.Store.
func (s *Store) Read(ctx context.Context, q cluster.Query) (rows cluster.Rows, err error) {
	if err := s.ready(ctx); err != nil {
		return rows, err
	}
	list, err := s.db.query(ctx, "read", sqlkit.Params{
		"events": sqlkit.InText(min(max(q.Events, 0), cluster.MaxEvents)), "runs": sqlkit.InText(max(q.Runs, 0)),
		"timers": sqlkit.InText(max(q.Timers, 0))})
	if err != nil {
		return rows, explain(err)
	}
	sortRows(list)
	for i := range list {
		addTo(&rows, &list[i])
	}
	return rows, nil
}

// Runs implements cluster.Store.
func (s *Store) Runs(ctx context.Context, timer string) ([]cluster.Run, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	list, err := s.db.query(ctx, "timer_runs", sqlkit.Params{"timer": cut(timer, maxName)})
	if err != nil {
		return nil, explain(err)
	}
	sortRows(list)
	var rows cluster.Rows
	for i := range list {
		addTo(&rows, &list[i])
	}
	return rows.Runs, nil
}

// Buckets implements cluster.Store.
func (s *Store) Buckets(ctx context.Context, timer string) ([]cluster.Bucket, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	list, err := s.db.query(ctx, "buckets", sqlkit.Params{"timer": cut(timer, maxName)})
	if err != nil {
		return nil, explain(err)
	}
	return bucketsOf(timer, list), nil
}

// Sweep implements cluster.Store. It also deletes the runs of a timer beyond cluster.RunsPerTimer,
// and events beyond cluster.MaxEvents.
func (s *Store) Sweep(ctx context.Context, r cluster.Retention, limit int) (deleted int, err error) {
	if err := s.ready(ctx); err != nil || limit <= 0 {
		return 0, err
	}
	age := func(d time.Duration) sqlkit.InText { return sqlkit.InText(*micros(d)) }
	n, err := s.db.sweep(ctx, sqlkit.Params{"limit": sqlkit.InText(limit), "hosts": age(r.Hosts),
		"leases": age(r.Leases), "events": age(r.Events), "runs": age(r.Runs),
		"fine":   age(cluster.FineRetention + cluster.FineBucket),
		"coarse": age(cluster.CoarseRetention + cluster.CoarseBucket)})
	if err != nil {
		return 0, explain(err)
	}
	return int(n), nil
}

// Schema returns the statements that Migrate executes, for programs that apply their own
// migrations.
func (s *Store) Schema() ([]string, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s.tables().Schema.Statements(), nil
}

// Migrate creates or upgrades the table and its indexes, and records applied migrations in a second
// table. Any number of hosts may call it, concurrently and at every start. Once nothing is missing,
// the user needs no right to create anything. Migrate does not alter a table that was created
// differently: it returns an error that matches ErrSchema. If the table or the file is locked, or
// the database does not answer, the error does not match ErrSchema.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	return s.tables().Migrate(ctx)
}

func (s *Store) tables() sqlmigrate.Tables {
	t := s.db.tables()
	t.Wrong, t.Explain = ErrSchema, explain
	return t
}

// Verify returns nil if the table is as Migrate leaves it, and otherwise an error that matches
// ErrSchema. Call it at start-up if another tool applies the schema.
func (s *Store) Verify(ctx context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	return s.tables().Verify(ctx)
}

// explain adds to a driver's error how to repair its cause.
func explain(err error) error { return fmt.Errorf("sqlregistry: %w", sqlkit.Explain(err)) }
