package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/examples/internal/demo"
)

// openers are the kinds of stores, by URL scheme. Their errors never quote the URL, which may
// contain a password.
var openers = map[string]struct {
	format string // format of the URL
	open   func(ctx context.Context, url string) (*demo.Store, error)
}{
	"redis":    {"redis://user:password@host:6379/0", redisStore},
	"rediss":   {"rediss://user:password@host:6379/0", redisStore},
	"postgres": {"postgres://user:password@host:5432/database", postgresStore},
	"mysql":    {"mysql://user:password@host:3306/database", mysqlStore},
	"sqlite":   {"sqlite:FILE", sqliteStore},
}

func openStore(ctx context.Context, url string) (*demo.Store, error) {
	scheme, _, _ := strings.Cut(url, ":")
	kind, ok := openers[scheme]
	if !ok {
		return nil, errors.New("-store: use sqlite:FILE, or a URL that begins with redis://, rediss://, postgres:// " +
			"or mysql://")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	store, err := kind.open(ctx, url)
	switch {
	case errors.Is(err, errBadURL):
		return nil, errors.New("-store: the URL must look like " + kind.format)
	case errors.Is(err, errNoAnswer):
		return nil, errors.New("-store: it does not answer: is it running, and are address, user, password and " +
			"database right?")
	}
	return store, err
}

var (
	errBadURL   = errors.New("bad URL")
	errNoAnswer = errors.New("no answer")
)

// prefix is different each time, so that two demonstrations on one store do not share slots.
func prefix() string { return fmt.Sprintf("stores-%s:", strings.ToLower(rand.Text()[:8])) }

func redisStore(ctx context.Context, url string) (*demo.Store, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, errBadURL
	}
	options.DialTimeout = demo.StoreTimeout
	client := redis.NewClient(options)
	defer client.Close()
	if client.Ping(ctx).Err() != nil {
		return nil, errNoAnswer
	}
	lockOptions := redislock.Options{
		Prefix: prefix(),
		// A restarted Redis grants nothing for this long, because it may have lost leases that are
		// still held. It must not be shorter than the leases.
		QuarantineTTL: demo.LeaseTTL,
	}
	return &demo.Store{
		Connect: func() (dlock.DistributedLock, func() error, error) {
			client := redis.NewClient(options)
			store := redislock.New(client, lockOptions)
			return store, func() error { return errors.Join(store.Close(), client.Close()) }, nil
		},
	}, nil
}

func postgresStore(ctx context.Context, url string) (*demo.Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errBadURL
	}
	opts := sqllock.Options{Prefix: prefix()}
	return sqlStore(ctx, func() (*sqllock.Store, func() error, error) {
		pool, err := pgxpool.NewWithConfig(context.Background(), config.Copy())
		if err != nil {
			return nil, nil, errBadURL
		}
		store := pgxlock.New(pool, opts)
		return store, func() error { defer pool.Close(); return store.Close() }, nil
	})
}

func mysqlStore(ctx context.Context, text string) (*demo.Store, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return nil, errBadURL
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.InterpolateParams = true // one round trip per call instead of two
	config.Logger = &mysql.NopLogger{}
	if u.Port() == "" {
		config.Addr += ":3306"
	}
	config.Timeout = demo.StoreTimeout // for connecting
	dsn := config.FormatDSN()
	if u.RawQuery != "" { // such as tls=true
		dsn += "&" + u.RawQuery
	}
	if _, err := mysql.ParseDSN(dsn); err != nil {
		return nil, errBadURL
	}
	return databaseStore(ctx, "mysql", dsn, sqllock.MySQL)
}

func sqliteStore(ctx context.Context, url string) (*demo.Store, error) {
	_, file, _ := strings.Cut(url, ":")
	if file == "" || strings.Contains(file, ":memory:") {
		return nil, errBadURL
	}
	store, err := databaseStore(ctx, "sqlite", file, sqllock.SQLite)
	if errors.Is(err, errNoAnswer) {
		return nil, errors.New("-store: the file cannot be opened, or created: does its directory exist, and may " +
			"this user write there?")
	}
	return store, err
}

// databaseStore gives every host its own *sql.DB, as separate processes would have.
func databaseStore(ctx context.Context, driver, dsn string,
	newStore func(*sql.DB, sqllock.Options) *sqllock.Store) (*demo.Store, error) {
	opts := sqllock.Options{Prefix: prefix()}
	return sqlStore(ctx, func() (*sqllock.Store, func() error, error) {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return nil, nil, errBadURL
		}
		store := newStore(db, opts)
		return store, func() error { return errors.Join(store.Close(), db.Close()) }, nil
	})
}

// sqlStore creates the table if it does not exist. Each call of connect opens a new client.
func sqlStore(ctx context.Context, connect func() (*sqllock.Store, func() error, error)) (*demo.Store, error) {
	first, disconnect, err := connect()
	if err != nil {
		return nil, err
	}
	defer disconnect()
	switch err := first.Migrate(ctx); {
	case errors.Is(err, sqllock.ErrSchema):
		return nil, fmt.Errorf("-store: %w", err) // nothing is open yet, so it contains no password
	case err != nil:
		return nil, errNoAnswer
	}
	return &demo.Store{
		Connect: func() (dlock.DistributedLock, func() error, error) { return connect() },
	}, nil
}
