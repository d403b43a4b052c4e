// Package postgres keeps durable runs in a Postgres database, 13 or newer.
//
// Each call is one transaction, sent and answered as a whole, in one round trip. So a client that
// stops in the middle of a call holds no lock that others wait for. Each call sets the isolation
// level and the time-outs of its transaction, so that neither the server's defaults nor a PgBouncer
// in transaction mode make a difference.
//
// Workers use a few connections that belong to the store and have the settings of the application's
// pool. So no lease is lost when handlers use all connections of the pool. Other calls take a
// connection of the pool.
package postgres

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

//go:embed sql/*.sql
var files embed.FS

// Options are the names of the tables.
type Options struct {
	TableName string // prefix of the names of the tables
	Schema    string // default "public"
}

// maxTableName leaves room for the suffixes of tables and indexes within the 63 bytes to which
// Postgres truncates names.
const maxTableName = 40

// tables are the names of the tables, without TableName.
var tables = []string{"schedules", "handlers", "runs", "attempts"}

// claimSlack is how many more runs of a handler than wanted a claim initially reads, because other
// transactions may claim or lock some of them at the same time. If that is not enough, claims read
// claimWider times as many, up to maxClaimSlack.
const (
	claimSlack    = 64
	claimWider    = 8
	maxClaimSlack = 1 << 17
)

// maxPartitions is how many partitions of a handler a claim looks at, in addition to the partitions
// of the runs that have been due longest.
const maxPartitions = 500

const noneBehind = "{}" // stored when the claim has seen all partitions

// maxCounted is the maximum number of queued runs of a handler that are counted.
const maxCounted = 100_000

// maxSorted is how many runs of a state are sorted to list the newest; more runs count as a
// backlog. maxScanned is how many of the newest runs of all states are read to find the newest of a
// backlog. If the backlog is older than these, the read was in vain and the whole backlog is
// sorted.
const (
	maxSorted  = 10_000
	maxScanned = 100_000
)

// Store implements store.Store.
type Store struct {
	pool    *pgxpool.Pool
	own     *connections
	schema  sqlmigrate.Schema
	names   map[string]string // quoted names of tables and indexes
	texts   sqlkit.Texts      // the statements
	channel string            // channel of NOTIFY

	claimLock int64        // the number of the lock between claims and overrides
	slack     atomic.Int64 // how many more runs than wanted the next claim reads
	// skipUntil is the time, in ns, until which claims do not wait for the rows of limits, because
	// another session keeps one locked.
	skipUntil atomic.Int64
	// behind is JSON with an entry for each handler whose partitions the latest claim has not all
	// seen: the partition after which the next claim begins.
	behind atomic.Value
}

var _ store.Store = (*Store)(nil)

// New checks the options and returns a Store. It does not call the server.
func New(pool *pgxpool.Pool, opts Options) (*Store, error) {
	d := sqlkit.Postgres
	opts.Schema = cmp.Or(opts.Schema, "public")
	err := d.CheckNames(sqlkit.TableNames{Table: opts.TableName, Schema: opts.Schema, MaxTable: maxTableName})
	if pool == nil {
		err = errors.Join(err, fmt.Errorf("%w: no pool: pass a *pgxpool.Pool", dlock.ErrSetup))
	}
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool, own: newConnections(pool), names: map[string]string{}}
	for _, name := range tables {
		s.names[name] = d.Qualified(opts.Schema, opts.TableName+"_"+name)
	}
	for _, name := range indexes {
		s.names[name] = d.Quote(opts.TableName + "_" + name)
	}
	s.read()
	s.schema = sqlmigrate.Schema{Dialect: d, Schema: opts.Schema, Name: opts.TableName, Table: opts.TableName + "_runs",
		Migrations: [][]string{sqlmigrate.Statements(s.texts["schema"])},
		Repeat:     sqlmigrate.Statements(s.texts["indexes"])}
	hash := sha256.Sum256([]byte(s.names["runs"]))
	s.channel = fmt.Sprintf("tickslot_durable_%x", hash)[:33]
	s.claimLock = int64(binary.BigEndian.Uint64(hash[16:]))
	s.slack.Store(claimSlack)
	s.behind.Store(noneBehind)
	return s, nil
}

func (s *Store) String() string { return "postgres" }

// Close closes the store's own connections.
func (s *Store) Close() { s.own.close() }

// read reads the statements and puts the names into them.
func (s *Store) read() {
	values := maps.Clone(s.names)
	maps.Copy(values, map[string]string{
		"max_counted": strconv.Itoa(maxCounted),
		"max_sorted":  strconv.Itoa(maxSorted),
		"max_scanned": strconv.Itoa(maxScanned),
		"ahead":       fmt.Sprintf("interval '%d s'", store.MaxAhead/time.Second),
		"ahead_us":    strconv.FormatInt(store.MaxAhead.Microseconds(), 10),
		"unseen_us":   strconv.FormatInt(store.UnseenAfter.Microseconds(), 10),
		"max_peers":   strconv.Itoa(store.MaxPeers),
		"max_per":     strconv.FormatInt(store.MaxPer.Microseconds(), 10),
		"first":       strconv.Itoa(store.FirstAttempts),
		"last":        strconv.Itoa(store.LastAttempts),
		"skip":        "",
		"partitions":  strconv.Itoa(maxPartitions),
	})
	waiting := sqlkit.ReadTexts(files, sqlkit.Postgres, values)
	values["skip"] = " SKIP LOCKED"
	s.texts = sqlkit.ReadTexts(files, sqlkit.Postgres, values)
	s.texts["renew_and_wait"], s.texts["claim_lock_and_wait"] = waiting["renew"], waiting["claim_lock"]
	for name, of := range map[string]string{"reclaim": "reclaimed", "finish": "finished"} {
		s.texts[name] = strings.ReplaceAll(s.texts[name], "{of}", of) // in forget_attempts
	}
}

// instant returns a time in a format that Postgres reads, or "" for the zero time.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
}

// orNull returns nil for an empty text, which Postgres would refuse as a time in JSON.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
