// Package postgres implements dialect.Database on Postgres.
package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore/internal/dialect"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

//go:embed *.sql
var files embed.FS

// New returns the database of an outbox. It does not call it. connect makes a connection for
// Listen, which closes it; nil: there is no Listen.
func New(db *sql.DB, connect func(context.Context) (*pgx.Conn, error), schema, table string) dialect.Database {
	d := sqlkit.Postgres
	schema = cmp.Or(schema, "public")
	p := &database{Server: dialect.Server{DB: db, Transact: pipelined}, connect: connect,
		of: sqlmigrate.Schema{Dialect: d, Schema: schema, Name: table, Table: table},
	}
	names := map[string]string{"message_id": d.Quote(table + "_message_id")}
	for _, suffix := range dialect.Tables {
		names[cmp.Or(suffix, "_messages")[1:]] = d.Qualified(schema, table+suffix)
	}
	for _, suffix := range dialect.Indexes {
		names[suffix] = d.Quote(table + "_" + suffix)
	}
	p.channel = fmt.Sprintf("tickslot_outbox_%x", sha256.Sum256([]byte(names["messages"])))[:32]
	p.texts = dialect.NewTexts(files, names)
	return p
}

type database struct {
	dialect.Server
	connect func(context.Context) (*pgx.Conn, error)
	of      sqlmigrate.Schema // without statements
	texts   dialect.Texts
	channel string // of NOTIFY
}

func (p *database) String() string       { return "postgres" }
func (p *database) Texts() dialect.Texts { return p.texts }

func (p *database) Tables() sqlmigrate.Tables {
	s := p.of
	s.Migrations = [][]string{sqlmigrate.Statements(p.texts["schema"])}
	s.Repeat = sqlmigrate.Statements(p.texts["indexes"])
	return p.Server.Tables(s)
}

func (p *database) Bind(text string, values dialect.Params) dialect.Statement {
	return dialect.Bind(text, values, true, func(n int, value any) (string, any, bool) {
		typ := "text"
		switch v := value.(type) {
		case int64:
			typ = "bigint"
		case []byte:
			typ = "bytea"
		case store.ID:
			typ, value = "text::uuid", fmt.Sprintf("%x", v[:])
		case dialect.Name:
			value = string(v)
		case dialect.Names:
			value = dialect.List[string](v)
		case dialect.Numbers:
			value = dialect.List[int64](v)
		}
		return fmt.Sprintf("$%d::%s", n, typ), value, true
	})
}

func (p *database) Split(text string) []string { return sqlmigrate.Statements(text) }

func (p *database) ID(id store.ID) string { return fmt.Sprintf("'%x'::uuid", id[:]) }

func (p *database) Instant(param string) string {
	return "timestamptz 'epoch' + " + param + " * interval '1 microsecond'"
}

func (p *database) IsThere(error, string) bool { return false } // ON CONFLICT inserts no row
func (p *database) IsLater(err error) bool     { return sqlkit.State(err) == "40001" }
func (p *database) Explain(err error) error    { return sqlkit.Explain(err) }

func (p *database) Notify(ctx context.Context) error {
	return p.Read(ctx, p.Bind(p.texts["notify"], dialect.Params{"channel": p.channel}), func() {},
		func(store.Row) error { return nil })
}
