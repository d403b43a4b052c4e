//go:build linux && amd64

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// A store is one or several real servers, and their faults.
type store interface {
	timing() Timing
	// targets returns the addresses that need proxies.
	targets() []string
	// spec returns the connection, through proxies in the order of targets, or direct if there are
	// none.
	spec(via []string) StoreSpec
	// hurt performs one of storeFaults and returns when it is over. mark logs the time in which
	// leases may have been lost.
	hurt(f nemesis.Fault, mark func(kind string, from int64)) error
	close()
}

func startStore(kind, dir string) (store, error) {
	switch kind {
	case "redis":
		// Data is written to the file before each answer, so it survives kill -9.
		s, clock, err := redistest.StartWithClock(dir, redistest.Options{Persistence: redistest.AOF,
			Args: []string{"--appendfsync", "no"}})
		return &redisStore{s, clock}, err
	case "sentinel":
		s, err := redistest.StartSentinel(redistest.SentinelOptions{Sentinels: 3, Relays: true})
		return &sentinelStore{s}, err
	case "cluster":
		c, err := redistest.StartClusterWithReplicas(3, 1)
		return &clusterStore{c}, err
	case "postgres":
		s, err := sqltest.StartPostgres(sqltest.Options{Settings: []string{"fsync=off"}}) // the machine goes on
		if err != nil {
			return nil, err
		}
		p := &postgresStore{s}
		if err := p.migrate(); err != nil {
			p.close()
			return nil, err
		}
		return p, nil
	case "mariadb":
		s, err := sqltest.StartMariaDB(sqltest.Options{ // the machine itself does not crash
			Settings: []string{"innodb-flush-log-at-trx-commit=2"}})
		if err != nil {
			return nil, err
		}
		m := &mariaStore{s}
		if _, err = s.Exec("", "CREATE DATABASE "+mariaDatabase); err == nil {
			err = migrate(m.spec(nil), m.timing())
		}
		if err != nil {
			m.close()
			return nil, err
		}
		return m, nil
	case "sqlite":
		f := &fileStore{filepath.Join(dir, "locks.db"), dir}
		return f, f.migrate()
	default:
		return nil, fmt.Errorf("no store %q: use redis, sentinel, cluster, postgres, mariadb or sqlite", kind)
	}
}

// A redisStore is a single Redis.
type redisStore struct {
	*redistest.Server
	clock *redistest.Clock
}

func (r *redisStore) timing() Timing {
	return Timing{TTL: 800 * time.Millisecond, StoreTimeout: 250 * time.Millisecond, Period: 160 * time.Millisecond}
}

func (r *redisStore) targets() []string { return []string{r.Addr()} }

func (r *redisStore) spec(via []string) StoreSpec {
	if via == nil {
		via = r.targets()
	}
	return StoreSpec{Kind: "redis", Addrs: via}
}

func (r *redisStore) close() { r.Close() }

func (r *redisStore) hurt(f nemesis.Fault, mark func(string, int64)) error {
	ctx := context.Background()
	switch f.Kind {
	case "store_kill":
		if err := r.Kill(); err != nil {
			return err
		}
		time.Sleep(f.For)
		return r.Restart()
	case torture.Wiped:
		from := nemesis.Mono()
		if err := r.Kill(); err != nil {
			return err
		}
		time.Sleep(f.For)
		err := r.RestartEmpty()
		mark(torture.Wiped, from)
		return err
	case "store_stop":
		return nemesis.Stop(r.Server.Server, f.For)
	case "store_connections_killed":
		return r.Client().Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
	case "store_client_pause":
		err := r.Client().Do(ctx, "CLIENT", "PAUSE", f.For.Milliseconds(), "ALL").Err()
		time.Sleep(f.For)
		return err
	case "store_scripts_flushed":
		return r.Client().ScriptFlush(ctx).Err()
	case "store_right_revoked": // without INFO, scripts cannot detect a restart
		if err := r.Client().Do(ctx, "ACL", "SETUSER", "default", "-info").Err(); err != nil {
			return err
		}
		time.Sleep(f.For)
		return r.Client().Do(ctx, "ACL", "SETUSER", "default", "+info").Err()
	}
	return f.Unknown()
}

// A clusterStore is a Redis Cluster. Its replication is asynchronous, so a failover may lose the
// last grants, and a paused master continues to grant for a moment when it resumes.
type clusterStore struct{ *redistest.Cluster }

func (c *clusterStore) timing() Timing {
	return Timing{TTL: time.Second, StoreTimeout: 330 * time.Millisecond, Period: 240 * time.Millisecond}
}

func (c *clusterStore) targets() []string { return c.Addrs() }

func (c *clusterStore) spec(via []string) StoreSpec {
	spec := StoreSpec{Kind: "cluster", Addrs: c.Addrs(), Via: map[string]string{}}
	for i, to := range via {
		spec.Via[c.Addrs()[i]] = to
	}
	return spec
}

func (c *clusterStore) close() { c.Close() }

func (c *clusterStore) hurt(f nemesis.Fault, mark func(string, int64)) error {
	ctx := context.Background()
	masters, replicas := c.roles()
	if len(masters) != 3 || len(replicas) != 3 {
		return fmt.Errorf("the cluster has %d masters and %d replicas", len(masters), len(replicas))
	}
	victim := masters[f.Pick%3]
	from := nemesis.Mono()
	if strings.HasPrefix(f.Kind, "failover") {
		defer func() { mark(torture.Failover, from) }()
	}
	switch f.Kind {
	case "failover_kill":
		if err := victim.Kill(); err != nil {
			return err
		}
		err := testkit.Poll(20*time.Second, "failover", func(context.Context) error {
			if now, _ := c.roles(); len(now) < 3 {
				return fmt.Errorf("%d masters", len(now))
			}
			return nil
		})
		if restart := victim.Restart(); restart != nil {
			return errors.Join(err, restart)
		}
		return errors.Join(err, c.settle())
	case "failover_stop":
		if err := nemesis.Stop(victim.Server, f.For); err != nil {
			return err
		}
		return c.settle()
	case "node_stop":
		defer func() { mark(torture.Failover, from) }() // its replica may become the master when both resume
		return errors.Join(c.nodeStop(victim, f.For), c.settle())
	case "failover_graceful", "failover_forced":
		how := []any{"CLUSTER", "FAILOVER"}
		if f.Kind == "failover_forced" {
			how = append(how, "TAKEOVER")
		}
		// A replica refuses until it has heard that its master is back, which the masters know
		// earlier.
		err := testkit.Poll(10*time.Second, "replica", func(ctx context.Context) error {
			return replicas[f.Pick%3].Client().Do(ctx, how...).Err()
		})
		if err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond) // it answers before it has started to
		return c.settle()
	case "store_connections_killed":
		for _, n := range c.Nodes {
			if err := n.Client().Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
				return err
			}
		}
		return nil
	}
	return f.Unknown()
}

// roles asks every node for its own role.
func (c *clusterStore) roles() (masters, replicas []*redistest.Server) {
	for _, n := range c.Nodes {
		if n.Pid() == 0 {
			continue
		}
		info, err := n.Client().Info(context.Background(), "replication").Result()
		switch {
		case err != nil:
		case strings.Contains(info, "role:master"):
			masters = append(masters, n)
		default:
			replicas = append(replicas, n)
		}
	}
	return masters, replicas
}

// settle waits until each master has a replica in sync.
func (c *clusterStore) settle() error {
	return testkit.Poll(30*time.Second, "cluster", func(ctx context.Context) error {
		masters, replicas := c.roles()
		if len(masters) != 3 || len(replicas) != 3 {
			return fmt.Errorf("%d masters, %d replicas", len(masters), len(replicas))
		}
		for _, m := range masters {
			info, err := m.Client().Info(ctx, "replication").Result()
			if err != nil || !strings.Contains(info, "connected_slaves:1") || !strings.Contains(info, "state=online") {
				return fmt.Errorf("a master without a replica: %v", err)
			}
			state, err := m.Client().ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(state, "cluster_state:ok") {
				return fmt.Errorf("the cluster is not well: %v", err)
			}
		}
		return nil
	})
}

// A postgresStore is a single Postgres.
type postgresStore struct{ *sqltest.Server }

func (p *postgresStore) timing() Timing {
	return Timing{TTL: 1200 * time.Millisecond, StoreTimeout: 400 * time.Millisecond, Period: 280 * time.Millisecond,
		Lingers: 3}
}

func (p *postgresStore) targets() []string { return []string{p.Addr()} }

func (p *postgresStore) spec(via []string) StoreSpec {
	dsn := p.DSN("", "", "")
	if via != nil {
		dsn = strings.Replace(dsn, p.Addr(), via[0], 1)
	}
	return StoreSpec{Kind: "postgres", DSN: dsn}
}

func (p *postgresStore) migrate() error { return migrate(p.spec(nil), p.timing()) }

func migrate(spec StoreSpec, timing Timing) error {
	d, err := open(spec, timing)
	if err != nil {
		return err
	}
	defer d.close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return d.lock.(*sqllock.Store).Migrate(ctx)
}

func (p *postgresStore) close() { p.Close() }

func (p *postgresStore) hurt(f nemesis.Fault, _ func(string, int64)) error {
	if f.Kind != "store_table_missing" {
		return nemesis.Postgres(p.Server, f, sqllock.DefaultTableName, "slot >= 0")
	}
	const away = sqllock.DefaultTableName + "_away"
	if _, err := p.Exec("", "ALTER TABLE "+sqllock.DefaultTableName+" RENAME TO "+away); err != nil {
		return err
	}
	time.Sleep(f.For)
	_, err := p.Exec("", "ALTER TABLE "+away+" RENAME TO "+sqllock.DefaultTableName)
	return err
}

// A mariaStore is a single MariaDB.
type mariaStore struct{ *sqltest.Server }

// mariaDatabase is the database for the locks, because MariaDB has no default one.
const mariaDatabase = "torture"

// A call that times out costs a connection, and a new one takes long on a busy machine.
func (m *mariaStore) timing() Timing {
	return Timing{TTL: 2400 * time.Millisecond, StoreTimeout: 800 * time.Millisecond, Period: 400 * time.Millisecond,
		Lingers: 3}
}

func (m *mariaStore) targets() []string { return []string{m.Addr()} }
func (m *mariaStore) close()            { m.Close() }

func (m *mariaStore) spec(via []string) StoreSpec {
	dsn := m.DSN("", "", mariaDatabase) + "?interpolateParams=true&wait_timeout=10"
	if via != nil {
		dsn = strings.Replace(dsn, m.Addr(), via[0], 1)
	}
	return StoreSpec{Kind: "mariadb", DSN: dsn}
}

func (m *mariaStore) hurt(f nemesis.Fault, _ func(string, int64)) error {
	return nemesis.MariaDB(m.Server, f, mariaDatabase, sqllock.DefaultTableName, "slot >= 0")
}

// A fileStore is a SQLite file that all processes share.
type fileStore struct{ path, dir string }

func (f *fileStore) timing() Timing {
	return Timing{TTL: 1800 * time.Millisecond, StoreTimeout: 600 * time.Millisecond, Period: 440 * time.Millisecond}
}

func (f *fileStore) targets() []string       { return nil }
func (f *fileStore) spec([]string) StoreSpec { return StoreSpec{Kind: "sqlite", DSN: f.path} }
func (f *fileStore) migrate() error          { return migrate(f.spec(nil), f.timing()) }

func (f *fileStore) close() { _ = os.Remove(f.path) }

func (f *fileStore) hurt(fault nemesis.Fault, _ func(string, int64)) error {
	switch fault.Kind {
	// Another process locks the file, and unlocks it or dies during a transaction.
	case "file_locked", "writer_killed":
		name := fmt.Sprint("writer-", nemesis.Mono())
		p, err := nemesis.Spawn("", f.dir, name, Spec{Role: "writer", Name: name, Dir: f.dir,
			Store: []StoreSpec{f.spec(nil)}})
		if err != nil {
			return err
		}
		time.Sleep(100*time.Millisecond + fault.For)
		if fault.Kind == "writer_killed" {
			p.Kill()
			return nil
		}
		return p.End(10 * time.Second)
	}
	return fault.Unknown()
}

// runWriter locks the file until it is told to end, and rolls back its writes.
func runWriter(spec Spec) error {
	db, err := openFile(spec.Store[0].DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, do := range []string{"PRAGMA busy_timeout = 5000", "BEGIN IMMEDIATE",
		"DELETE FROM " + sqllock.DefaultTableName} {
		if _, err := conn.ExecContext(ctx, do); err != nil {
			return err
		}
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	_, err = conn.ExecContext(ctx, "ROLLBACK")
	return err
}
