package sqlstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Postgres returns a store on Postgres 13 or newer, in a database with the encoding UTF8, with any
// driver for database/sql. It does not call the server.
//
// Each call is one statement, and with pgx one round trip once the connection has prepared it; Due
// is some more while a long queue is in its way.
//
// connect makes a connection for Listen, which closes it; nil: there is no Listen.
func Postgres(db *sql.DB, connect func(context.Context) (*pgx.Conn, error), opts Options) (*Store, error) {
	opts, err := checked(db, opts, func(string, string) error { return nil })
	if err != nil {
		return nil, err
	}
	d := sqlmigrate.DialectPostgres
	schema := cmp.Or(opts.Schema, "public")
	p := &postgres{server: server{db: db, transact: pipelined}, connect: connect,
		tables: map[string]map[string]string{}}
	names := map[string]string{"message_id": d.Quote(opts.TableName + "_message_id")}
	for suffix, columns := range postgresColumns {
		in := d.Qualified(schema, opts.TableName+suffix)
		names[cmp.Or(suffix, "_messages")[1:]] = in
		p.tables[in] = columns
	}
	for _, suffix := range indexes {
		names[suffix] = d.Quote(opts.TableName + "_" + suffix)
		p.indexes = append(p.indexes, d.Qualified(schema, opts.TableName+"_"+suffix))
	}
	p.channel = fmt.Sprintf("tickslot_outbox_%x", sha256.Sum256([]byte(names["messages"])))[:32]
	p.texts = newTexts("postgres", names)
	return &Store{database: p, texts: p.texts, pool: db, schema: sqlmigrate.Schema{Dialect: d, Schema: schema,
		Name: opts.TableName, Table: opts.TableName, Migrations: [][]string{sqlmigrate.Statements(p.texts["schema"])},
		Repeat: sqlmigrate.Statements(p.texts["indexes"])}}, nil
}

// indexes are what their names end with.
var indexes = []string{"pending", "fresh", "topics", "retried", "dead_keys", "backoff", "finished", "received"}

// postgresColumns are those of each table, which is named by what its name ends with, with the
// names of their types in pg_type.
var postgresColumns = map[string]map[string]string{
	"": {"seq": "int8", "message_id": "uuid", "topic": "text", "key": "text", "key_hash": "int8", "payload": "bytea",
		"headers": "text", "state": "text", "attempts": "int4", "tried": "int4", "next_attempt_at": "timestamptz",
		"created_at": "timestamptz", "finished_at": "timestamptz", "last_error": "text", "note": "text"},
	"_attempts": {"message": "int8", "attempt": "int4", "at": "timestamptz", "took": "int8", "node": "text",
		"outcome": "text", "error": "text"},
	"_inbox":  {"consumer": "text", "message_id": "uuid", "received_at": "timestamptz"},
	"_layout": {"id": "int4", "shards": "int4", "epoch": "int8"},
}

type postgres struct {
	server
	connect func(context.Context) (*pgx.Conn, error)
	texts   texts
	tables  map[string]map[string]string // their columns
	indexes []string
	channel string // of NOTIFY
}

func (p *postgres) String() string { return "postgres" }

func (p *postgres) bind(text string, values params) statement {
	return bind(text, values, true, func(n int, value any) (string, any, bool) {
		typ := "text"
		switch v := value.(type) {
		case int64:
			typ = "bigint"
		case []byte:
			typ = "bytea"
		case store.ID:
			typ, value = "text::uuid", fmt.Sprintf("%x", v[:])
		case name:
			value = string(v)
		case names:
			value = list[string](v)
		case numbers:
			value = list[int64](v)
		}
		return fmt.Sprintf("$%d::%s", n, typ), value, true
	})
}

func (p *postgres) split(text string) []string { return sqlmigrate.Statements(text) }

func (p *postgres) id(id store.ID) string { return fmt.Sprintf("'%x'::uuid", id[:]) }

func (p *postgres) instant(param string) string {
	return "timestamptz 'epoch' + " + param + " * interval '1 microsecond'"
}

func (p *postgres) isThere(error, string) bool { return false } // ON CONFLICT inserts no row
func (p *postgres) isLater(err error) bool     { return sqlkit.State(err) == "40001" }
func (p *postgres) explain(err error) error    { return sqlkit.Explain(err) }

func (p *postgres) prepare(context.Context) error { return nil }

func (p *postgres) verify(ctx context.Context) (faults []error, err error) {
	return verify(ctx, p, p.texts["verify"], p.tables, p.indexes)
}

// verify asks the database for the faults of its tables.
func verify(ctx context.Context, d database, text string, tables map[string]map[string]string, indexes []string) (
	[]error, error) {
	type table struct {
		Name    string            `json:"name"`
		Columns map[string]string `json:"columns"`
	}
	var of []table
	for name, columns := range tables {
		of = append(of, table{name, columns})
	}
	s := d.bind(text, params{"tables": list(of), "indexes": list(indexes)})
	var faults []error
	err := d.read(ctx, s, func() { faults = nil }, func(rows store.Row) error {
		var fault string
		err := rows.Scan(&fault)
		faults = append(faults, errors.New(fault))
		return err
	})
	if err != nil {
		return nil, err
	}
	return faults, nil
}

func (p *postgres) notify(ctx context.Context) error {
	return p.read(ctx, p.bind(p.texts["notify"], params{"channel": p.channel}), func() {},
		func(store.Row) error { return nil })
}
