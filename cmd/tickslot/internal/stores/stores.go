// Package stores opens the parts of a fleet's store named by a URL: the locks, the registry, the
// durable runs and the outbox.
//
// Its errors never quote the URL, which may contain a password, and Hide removes passwords from
// drivers' errors. Nothing is created: a SQLite file that does not exist is an error, except with
// Options.Create.
package stores

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
)

// dialTimeout bounds a connection attempt, so that a wrong address causes an error instead of a
// long wait.
const dialTimeout = 3 * time.Second

// Options are what a URL does not contain. They must equal those of the hosts.
type Options struct {
	URL string
	// CA is a file with PEM certificates against which server certificates are checked, except for
	// SQLite. Default: the CAs that this machine trusts.
	CA string
	// Cert and Key are PEM files with the certificate of this client and its key. Default: none.
	Cert, Key string
	// Prefix is redislock.Options.Prefix or sqllock.Options.Prefix.
	Prefix string
	// Tagged says that the hosts use redislock.KeysTagged. Default false; always true on a Cluster.
	Tagged bool
	// RegistryPrefix is redisregistry.Options.Prefix. If nil, Prefix is used.
	RegistryPrefix *string
	// Schema is the schema of all tables. Default: the default of sqllock.Options.
	Schema string
	// LocksTable and the other fields are names of tables. Default: those of the packages.
	LocksTable, RegistryTable, DurableTable, OutboxTable string
	// Create permits creating a SQLite file. Default false.
	Create bool
}

// Tables is a part that keeps tables.
type Tables interface {
	Migrate(ctx context.Context) error
	Verify(ctx context.Context) error
	Schema() ([]string, error)
}

// A Part is a part of tickslot that keeps tables in the database.
type Part struct {
	Name string // locks, registry, durable or outbox
	Tables
	needs []need
}

// A Store is an opened URL. Parts that this kind of store does not have are nil.
type Store struct {
	Kind     string // redis, postgres, mysql or sqlite
	Name     string // for people: the kind and the location
	Locks    dlock.DistributedLock
	Registry cluster.Store
	Durable  *durable.Store
	Outbox   *outbox.Outbox
	Parts    []Part // in the order in which they are migrated; empty on Redis

	// The client; one of these is set, on Postgres two.
	Redis redis.UniversalClient
	Pool  *pgxpool.Pool
	DB    *sql.DB

	scheme  string
	ca      string         // path of the CA file
	roots   *x509.CertPool // from ca; nil if none is named
	tls     bool
	pair    *tls.Certificate // of the client; nil if none is named
	cert    string           // its files
	key     string
	schema  string
	secrets []string
	closers []func() error
}

// Close closes all connections.
func (s *Store) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// Ping makes one round trip.
func (s *Store) Ping(ctx context.Context) error {
	switch {
	case s.Redis != nil:
		return pingRedis(ctx, s.Redis)
	case s.Pool != nil:
		return s.Pool.Ping(ctx)
	}
	var one int
	return s.DB.QueryRowContext(ctx, "SELECT 1").Scan(&one)
}

// formats shows the form of URLs by scheme. User and password precede the host.
var formats = map[string]string{
	"redis":  "redis://host:6379/0",
	"rediss": "rediss://host:6379/0",

	"redis-sentinel":  "redis-sentinel://host1:26379,host2:26379/0?master=NAME",
	"rediss-sentinel": "rediss-sentinel://host1:26379,host2:26379/0?master=NAME",
	"redis-cluster":   "redis-cluster://host1:6379,host2:6379",
	"rediss-cluster":  "rediss-cluster://host1:6379,host2:6379",

	"postgres":   "postgres://host:5432/database",
	"postgresql": "postgresql://host:5432/database",
	"mysql":      "mysql://host:3306/database",
	"sqlite":     "sqlite:FILE",
}

// ErrNoURL is returned by Open without a URL.
var ErrNoURL = errors.New("no store is named: set TICKSLOT_STORE, or --store, to redis://…, " +
	"redis-sentinel://…, redis-cluster://…, postgres://…, mysql://… or sqlite:FILE")

var (
	errBadURL = errors.New("bad URL")
	errNoFile = errors.New("the SQLite file is not there, or cannot be read: \"tickslot migrate up\" creates it")
)

// Open opens the store. It does not call a server.
func Open(options Options) (*Store, error) {
	if options.URL == "" {
		return nil, ErrNoURL
	}
	scheme, _, _ := strings.Cut(options.URL, ":")
	format, ok := formats[scheme]
	if !ok {
		return nil, errors.New("the URL of the store must begin with redis://, redis-sentinel://, redis-cluster://, " +
			"postgres:// or mysql:// (rediss… with TLS), or be sqlite:FILE")
	}
	s := &Store{scheme: scheme}
	if err := s.readCA(options.CA); err != nil {
		return nil, err
	}
	if err := s.readCert(options.Cert, options.Key); err != nil {
		return nil, err
	}
	err := errBadURL
	switch rest := options.URL[len(scheme):]; {
	case scheme == "sqlite":
		err = s.openSQLite(options)
	case !strings.HasPrefix(rest, "://"): // drivers read redis:host as this machine
	case scheme == "mysql":
		err = s.openMySQL(options)
	case strings.HasPrefix(scheme, "postgres"):
		err = s.openPostgres(options)
	case rest == "://", strings.HasPrefix(rest, ":///"): // without a host
	default:
		err = s.openRedis(options)
	}
	if err == nil {
		return s, nil
	}
	_ = s.Close() // nothing was sent
	if errors.Is(err, errBadURL) {
		if rest := options.URL[len(scheme):]; scheme != "sqlite" && !strings.HasPrefix(rest, "://") {
			return nil, errors.New("the URL of the store lacks its slashes: it must look like " + format)
		}
		err = errors.New("the URL of the store must look like " + format + ", a user and a password before the host")
	}
	return nil, err
}
