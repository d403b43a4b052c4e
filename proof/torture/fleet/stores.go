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

// A store is a real server, or several, and what can be done to it.
type store interface {
	timing() Timing
	// targets are the addresses that proxies are to be put in front of.
	targets() []string
	// spec says how to get there, through proxies in the order of targets, or directly if there are
	// none.
	spec(via []string) StoreSpec
	// hurt does one of storeFaults and returns when it is over. mark tells from when until when
	// leases may have been forgotten.
	hurt(f nemesis.Fault, mark func(kind string, from int64)) error
	close()
}

func startStore(kind, dir string) (store, error) {
	switch kind {
	case "redis":
		// What is written goes to the file before it is answered, and a kill -9 leaves that.
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
		s, err := sqltest.StartMariaDB(sqltest.Options{ // the machine goes on
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

// One Redis.
type redisStore struct {
	*redistest.Server
	clock *redistest.Clock
}

func (s *redisStore) timing() Timing {
	return Timing{TTL: 800 * time.Millisecond, StoreTimeout: 250 * time.Millisecond, Period: 160 * time.Millisecond}
}

func (s *redisStore) targets() []string { return []string{s.Addr()} }

func (s *redisStore) spec(via []string) StoreSpec {
	if via == nil {
		via = s.targets()
	}
	return StoreSpec{Kind: "redis", Addrs: via}
}

func (s *redisStore) close() { s.Close() }

func (s *redisStore) hurt(f nemesis.Fault, mark func(string, int64)) error {
	ctx := context.Background()
	switch f.Kind {
	case "store_kill":
		if err := s.Kill(); err != nil {
			return err
		}
		time.Sleep(f.For)
		return s.Restart()
	case torture.Wiped:
		from := nemesis.Mono()
		if err := s.Kill(); err != nil {
			return err
		}
		time.Sleep(f.For)
		err := s.RestartEmpty()
		mark(torture.Wiped, from)
		return err
	case "store_stop":
		return nemesis.Stop(s.Server.Server, f.For)
	case "store_connections_killed":
		return s.Client().Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
	case "store_client_pause":
		err := s.Client().Do(ctx, "CLIENT", "PAUSE", f.For.Milliseconds(), "ALL").Err()
		time.Sleep(f.For)
		return err
	case "store_scripts_flushed":
		return s.Client().ScriptFlush(ctx).Err()
	case "store_right_revoked": // without INFO no script knows whether the server restarted
		if err := s.Client().Do(ctx, "ACL", "SETUSER", "default", "-info").Err(); err != nil {
			return err
		}
		time.Sleep(f.For)
		return s.Client().Do(ctx, "ACL", "SETUSER", "default", "+info").Err()
	}
	return f.Unknown()
}

// A Redis Cluster: its replication is asynchronous, so that a failover may forget what was granted
// last, and a master that was stopped goes on granting for a moment when it is resumed.
type clusterStore struct{ *redistest.Cluster }

func (s *clusterStore) timing() Timing {
	return Timing{TTL: time.Second, StoreTimeout: 330 * time.Millisecond, Period: 240 * time.Millisecond}
}

func (s *clusterStore) targets() []string { return s.Addrs() }

func (s *clusterStore) spec(via []string) StoreSpec {
	spec := StoreSpec{Kind: "cluster", Addrs: s.Addrs(), Via: map[string]string{}}
	for i, to := range via {
		spec.Via[s.Addrs()[i]] = to
	}
	return spec
}

func (s *clusterStore) close() { s.Close() }

func (s *clusterStore) hurt(f nemesis.Fault, mark func(string, int64)) error {
	ctx := context.Background()
	masters, replicas := s.roles()
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
			if now, _ := s.roles(); len(now) < 3 {
				return fmt.Errorf("%d masters", len(now))
			}
			return nil
		})
		if restart := victim.Restart(); restart != nil {
			return errors.Join(err, restart)
		}
		return errors.Join(err, s.settle())
	case "failover_stop":
		if err := nemesis.Stop(victim.Server, f.For); err != nil {
			return err
		}
		return s.settle()
	case "node_stop":
		defer func() { mark(torture.Failover, from) }() // its replica may become the master when both go on
		return errors.Join(s.nodeStop(victim, f.For), s.settle())
	case "failover_graceful", "failover_forced":
		how := []any{"CLUSTER", "FAILOVER"}
		if f.Kind == "failover_forced" {
			how = append(how, "TAKEOVER")
		}
		// A replica refuses for as long as it has not heard that its master is back, which the
		// masters know before it.
		err := testkit.Poll(10*time.Second, "replica", func(ctx context.Context) error {
			return replicas[f.Pick%3].Client().Do(ctx, how...).Err()
		})
		if err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond) // it answers before it has begun
		return s.settle()
	case "store_connections_killed":
		for _, n := range s.Nodes {
			if err := n.Client().Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
				return err
			}
		}
		return nil
	}
	return f.Unknown()
}

// roles asks every node what it takes itself for.
func (s *clusterStore) roles() (masters, replicas []*redistest.Server) {
	for _, n := range s.Nodes {
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

// settle waits until each master has a replica that is in sync.
func (s *clusterStore) settle() error {
	return testkit.Poll(30*time.Second, "cluster", func(ctx context.Context) error {
		masters, replicas := s.roles()
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

// One Postgres.
type postgresStore struct{ *sqltest.Server }

func (s *postgresStore) timing() Timing {
	return Timing{TTL: 1200 * time.Millisecond, StoreTimeout: 400 * time.Millisecond, Period: 280 * time.Millisecond,
		Lingers: 3}
}

func (s *postgresStore) targets() []string { return []string{s.Addr()} }

func (s *postgresStore) spec(via []string) StoreSpec {
	dsn := s.DSN("", "", "")
	if via != nil {
		dsn = strings.Replace(dsn, s.Addr(), via[0], 1)
	}
	return StoreSpec{Kind: "postgres", DSN: dsn}
}

func (s *postgresStore) migrate() error { return migrate(s.spec(nil), s.timing()) }

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

func (s *postgresStore) close() { s.Close() }

func (s *postgresStore) hurt(f nemesis.Fault, _ func(string, int64)) error {
	if f.Kind != "store_table_missing" {
		return nemesis.Postgres(s.Server, f, sqllock.DefaultTableName, "slot >= 0")
	}
	const away = sqllock.DefaultTableName + "_away"
	if _, err := s.Exec("", "ALTER TABLE "+sqllock.DefaultTableName+" RENAME TO "+away); err != nil {
		return err
	}
	time.Sleep(f.For)
	_, err := s.Exec("", "ALTER TABLE "+away+" RENAME TO "+sqllock.DefaultTableName)
	return err
}

// One MariaDB.
type mariaStore struct{ *sqltest.Server }

// mariaDatabase is the database of the locks: MariaDB has none that is always there.
const mariaDatabase = "torture"

// A call that does not end in time costs a connection, and a new one takes long on a busy machine.
func (s *mariaStore) timing() Timing {
	return Timing{TTL: 2400 * time.Millisecond, StoreTimeout: 800 * time.Millisecond, Period: 400 * time.Millisecond,
		Lingers: 3}
}

func (s *mariaStore) targets() []string { return []string{s.Addr()} }
func (s *mariaStore) close()            { s.Close() }

func (s *mariaStore) spec(via []string) StoreSpec {
	dsn := s.DSN("", "", mariaDatabase) + "?interpolateParams=true&wait_timeout=10"
	if via != nil {
		dsn = strings.Replace(dsn, s.Addr(), via[0], 1)
	}
	return StoreSpec{Kind: "mariadb", DSN: dsn}
}

func (s *mariaStore) hurt(f nemesis.Fault, _ func(string, int64)) error {
	return nemesis.MariaDB(s.Server, f, mariaDatabase, sqllock.DefaultTableName, "slot >= 0")
}

// A SQLite file that all processes share.
type fileStore struct{ path, dir string }

func (s *fileStore) timing() Timing {
	return Timing{TTL: 1800 * time.Millisecond, StoreTimeout: 600 * time.Millisecond, Period: 440 * time.Millisecond}
}

func (s *fileStore) targets() []string       { return nil }
func (s *fileStore) spec([]string) StoreSpec { return StoreSpec{Kind: "sqlite", DSN: s.path} }
func (s *fileStore) migrate() error          { return migrate(s.spec(nil), s.timing()) }

func (s *fileStore) close() { _ = os.Remove(s.path) }

func (s *fileStore) hurt(f nemesis.Fault, _ func(string, int64)) error {
	switch f.Kind {
	// somebody else has the lock of the file, and gives it back or dies in the middle of a
	// transaction
	case "file_locked", "writer_killed":
		name := fmt.Sprint("writer-", nemesis.Mono())
		p, err := nemesis.Spawn("", s.dir, name, Spec{Role: "writer", Name: name, Dir: s.dir,
			Store: []StoreSpec{s.spec(nil)}})
		if err != nil {
			return err
		}
		time.Sleep(100*time.Millisecond + f.For)
		if f.Kind == "writer_killed" {
			p.Kill()
			return nil
		}
		return p.End(10 * time.Second)
	}
	return f.Unknown()
}

// runWriter locks the file until it is told to end, and undoes what it wrote.
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
