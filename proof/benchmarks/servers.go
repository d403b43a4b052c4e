package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// poolSize is the size of every Redis connection pool: the maximum number of workers, so that none
// waits for a connection.
const poolSize = 64

var ctx = context.Background()

// A redisServer is the one Redis of a run. It stores nothing on disk.
type redisServer struct {
	*redistest.Server
	admin *redis.Client
}

func startRedis() (*redisServer, error) {
	s, err := redistest.Start(redistest.Options{})
	if err != nil {
		return nil, err
	}
	r := &redisServer{Server: s}
	r.admin = r.client()
	return r, nil
}

// client returns a client with go-redis defaults except the pool size.
func (r *redisServer) client() *redis.Client { return newClient(r.Addr()) }

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, Password: servertest.Canary, PoolSize: poolSize})
}

// flush deletes all data.
func (r *redisServer) flush() error { return r.admin.FlushAll(ctx).Err() }

// agedFor deletes all data, and waits until the server's uptime allows leases of this length on new
// names.
func (r *redisServer) agedFor(ttl time.Duration) func() error {
	return func() error {
		if err := r.flush(); err != nil {
			return err
		}
		return testkit.Poll(ttl+10*time.Second, "uptime", func(context.Context) error {
			up, err := r.figure("server", "uptime_in_seconds")
			if err == nil && up < ttl.Seconds()+2 {
				err = fmt.Errorf("%.0f s", up)
			}
			return err
		})
	}
}

// figure returns a figure from a section of INFO.
func (r *redisServer) figure(section, name string) (float64, error) {
	info, err := r.admin.Info(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("INFO %s does not tell %s", section, name)
}

// commands is a proof: each attempt and each release is at least one command.
func (r *redisServer) commands() proof {
	return proof{count: func() (float64, error) {
		return r.figure("stats", "total_commands_processed")
	}, attempt: 1, grant: 1, used: r.cpu}
}

// cpu returns the CPU time of the server, in seconds.
func (r *redisServer) cpu() (float64, error) {
	user, err := r.figure("cpu", "used_cpu_user")
	if err != nil {
		return 0, err
	}
	sys, err := r.figure("cpu", "used_cpu_sys")
	return user + sys, err
}

// longest is the length of the longest leases, for slots that are held all the time. A server
// grants such a lease on a new name only once its uptime exceeds that length, so each name is first
// made known with a short lease.
const longest = 2 * time.Hour

func (r *redisServer) store(opts redislock.Options) *redislock.Store {
	if opts.QuarantineTTL == 0 {
		opts.QuarantineTTL = longest
	}
	opts.PoolSize = poolSize
	return redislock.New(r.admin, opts)
}

// known makes names known to the server by acquiring and releasing a short lease of each.
func (r *redisServer) known(slots int, names ...string) error {
	short := r.store(redislock.Options{QuarantineTTL: time.Second})
	defer short.Close()
	for _, name := range names {
		var g driver.Grant
		err := testkit.Poll(10*time.Second, name, func(ctx context.Context) (err error) {
			g, err = short.TryAcquire(ctx, driver.Request{Name: name, Slots: slots, Token: "known", TTL: time.Second})
			if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok && no.Reason == dlock.ReasonFull {
				return nil // the case before its control has left the name
			}
			return err
		})
		if err == nil && g.Token != "" {
			_, err = short.Release(ctx, g)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hold acquires this many slots of a name and never releases them.
func hold(store dlock.DistributedLock, name string, slots, held int) error {
	const workers = 16
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < held && errs[w] == nil; i += workers {
				_, errs[w] = store.TryAcquire(ctx, driver.Request{Name: name, Slots: slots, Token: fmt.Sprint("held",
					i),
					TTL: longest})
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// A postgresServer is the one Postgres of a run. It writes commits to disk.
type postgresServer struct {
	*sqltest.Server
	dsn   string
	admin *pgxpool.Pool
}

func startPostgres() (*postgresServer, error) {
	s, err := sqltest.StartPostgres(sqltest.Options{})
	if err != nil {
		return nil, err
	}
	p := &postgresServer{Server: s, dsn: s.DSN("", "", "postgres")}
	p.admin, err = p.pool(2)
	return p, err
}

func (p *postgresServer) pool(size int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(p.dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(size)
	return pgxpool.NewWithConfig(ctx, config)
}

// wal is a proof: a grant and its release each leave a record in the log, and a refusal leaves
// none.
func (p *postgresServer) wal() proof {
	return proof{count: func() (bytes float64, err error) {
		err = p.admin.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8").Scan(&bytes)
		return bytes, err
	}, grant: 100}
}

// An etcdServer runs in this process, in its own directory.
type etcdServer struct {
	*embed.Etcd
	dir    string
	client *clientv3.Client
}

func startEtcd() (*etcdServer, error) {
	dir, err := os.MkdirTemp("", "tickslot-etcd-")
	if err != nil {
		return nil, err
	}
	config := embed.NewConfig()
	config.Dir, config.LogLevel = dir, "fatal"
	anyPort, err := url.Parse("http://127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config.ListenClientUrls, config.ListenPeerUrls = []url.URL{*anyPort}, []url.URL{*anyPort}
	e := &etcdServer{dir: dir}
	if e.Etcd, err = embed.StartEtcd(config); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		return nil, errors.Join(errors.New("etcd is not ready after 30 s"), e.stop())
	}
	e.client, err = clientv3.New(clientv3.Config{Endpoints: []string{e.Clients[0].Addr().String()},
		DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

func (e *etcdServer) stop() error {
	var err error
	if e.client != nil {
		err = e.client.Close()
	}
	e.Etcd.Close()
	return errors.Join(err, os.RemoveAll(e.dir))
}

// revisions is a proof: acquiring and releasing a mutex are one revision each.
func (e *etcdServer) revisions() proof {
	return proof{count: func() (float64, error) {
		answer, err := e.client.Get(ctx, "revision")
		if err != nil {
			return 0, err
		}
		return float64(answer.Header.Revision), nil
	}, attempt: 1, grant: 1}
}
