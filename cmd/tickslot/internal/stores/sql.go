package stores

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver for sqlite:FILE

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry/pgxregistry"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
)

// maxConns is the maximum number of connections that a command opens per pool.
const maxConns = 2

func (s *Store) openPostgres(o Options) error {
	address, err := s.withCA(o.URL)
	if err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return errBadURL
	}
	s.tls = config.ConnConfig.TLSConfig != nil
	config.MaxConns = maxConns
	if params := config.ConnConfig.RuntimeParams; params["application_name"] == "" {
		params["application_name"] = "tickslot"
	}
	config.ConnConfig.ConnectTimeout = dialTimeout
	if config.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
		// A pooler that gives each transaction another connection keeps no prepared statements.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	s.keepSecret(config.ConnConfig.Password)
	s.Pool, err = pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return errBadURL
	}
	s.closers = append(s.closers, func() error { s.Pool.Close(); return nil })
	s.DB = stdlib.OpenDBFromPool(s.Pool)
	s.closers = append(s.closers, s.DB.Close)
	locks := pgxlock.New(s.Pool, o.locks())
	s.closers = append(s.closers, locks.Close)
	s.Durable = pgxdurable.New(s.Pool, o.durable())
	s.Outbox = pgxoutbox.New(s.Pool, o.outbox())
	at := config.ConnConfig
	s.Name = fmt.Sprintf("Postgres %s:%d/%s", at.Host, at.Port, at.Database)
	registry := pgxregistry.New(s.Pool, o.registry())
	s.closers = append(s.closers, registry.Close)
	s.set(o, "postgres", locks, registry)
	return nil
}

func (s *Store) openMySQL(o Options) error {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return errBadURL
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.InterpolateParams = true // one round trip per call instead of two
	if u.Port() == "" {
		config.Addr += ":3306"
	}
	config.Timeout = dialTimeout
	s.keepSecret(config.Passwd)
	dsn := config.FormatDSN()
	if u.RawQuery != "" { // such as tls=true
		dsn += "&" + u.RawQuery
	}
	config, err = mysql.ParseDSN(dsn)
	if err != nil {
		return errBadURL
	}
	if (s.roots != nil || s.pair != nil) && config.TLSConfig == "" { // the URL does not say whether to use TLS
		config.TLS = &tls.Config{}
	}
	if err := s.trust(config.TLS); err != nil {
		return err
	}
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return errBadURL
	}
	s.DB = sql.OpenDB(connector)
	s.DB.SetMaxOpenConns(maxConns)
	s.DB.SetMaxIdleConns(maxConns)
	s.closers = append(s.closers, s.DB.Close)
	locks := sqllock.MySQL(s.DB, o.locks())
	s.closers = append(s.closers, locks.Close)
	s.Outbox = outbox.MySQL(s.DB, o.outbox())
	s.Name = "MySQL " + config.Addr + "/" + config.DBName
	s.set(o, "mysql", locks, sqlregistry.MySQL(s.DB, o.registry()))
	return nil
}

func (s *Store) openSQLite(o Options) error {
	_, file, _ := strings.Cut(o.URL, ":")
	path, _, _ := strings.Cut(strings.TrimPrefix(file, "file:"), "?")
	if path == "" || strings.Contains(file, ":memory:") {
		return errBadURL
	}
	if info, err := os.Stat(path); !o.Create && (err != nil || info.IsDir()) {
		return errNoFile // opening would create it
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return errBadURL
	}
	db.SetMaxOpenConns(maxConns)
	s.DB = db
	s.closers = append(s.closers, db.Close)
	locks := sqllock.SQLite(db, o.locks())
	s.closers = append(s.closers, locks.Close)
	s.Durable = durable.SQLite(db, o.durable())
	s.Outbox = outbox.SQLite(db, o.outbox())
	s.Name = "SQLite " + path
	s.set(o, "sqlite", locks, sqlregistry.SQLite(db, o.registry()))
	return nil
}

// set assembles the parts.
func (s *Store) set(o Options, kind string, locks *sqllock.Store, registry *sqlregistry.Store) {
	s.Kind, s.Locks, s.Registry, s.schema = kind, locks, registry, o.Schema
	needs := o.needs(kind)
	add := func(name string, tables Tables) { s.Parts = append(s.Parts, Part{name, tables, needs[name]}) }
	add("locks", locks)
	add("registry", registry)
	if s.Durable != nil {
		add("durable", s.Durable)
	}
	add("outbox", s.Outbox)
	s.closers = append(s.closers, s.Outbox.Close)
}

func (o Options) locks() sqllock.Options {
	return sqllock.Options{Prefix: o.Prefix, TableName: o.LocksTable, Schema: o.Schema}
}

func (o Options) registry() sqlregistry.Options {
	return sqlregistry.Options{TableName: o.RegistryTable, Schema: o.Schema}
}

func (o Options) durable() durable.Options {
	return durable.Options{TableName: o.DurableTable, Schema: o.Schema}
}

func (o Options) outbox() outbox.Options {
	return outbox.Options{TableName: o.OutboxTable, Schema: o.Schema}
}
