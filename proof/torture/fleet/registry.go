//go:build linux && amd64

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry/pgxregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

const (
	registryTTL     = 3 * time.Second
	registryTimeout = registryTTL / 5
	// slowness is the duration of a slow registry's calls, longer than any call waits.
	slowness = 5 * time.Second
	// sightEvery is how often a host logs the registered hosts. sightLimit is how long it may take
	// after the last fault until each host sees all others.
	sightEvery = time.Second
	sightLimit = 15 * time.Second
	// calmFault and calmPause time the faults of the registry while all else is well.
	calmFault = 2 * time.Second
	calmPause = 500 * time.Millisecond
)

// registryFaults affect the registry of all hosts at once.
var registryFaults = []string{"registry_dropped", "registry_full", "registry_slow", "registry_gone"}

// A registryDoor is a connection to the registry.
type registryDoor struct {
	store cluster.Store
	drop  func(ctx context.Context) error // deletes all data of the registry
	mend  func(ctx context.Context) error // makes it work again
	close func()
}

func openRegistry(spec StoreSpec) (*registryDoor, error) {
	const prefix = "registry"
	switch spec.Kind {
	case "redis":
		client := redis.NewClient(&redis.Options{Password: servertest.Canary, Addr: spec.Addrs[0]})
		return redisRegistry(client, prefix), nil
	case "sentinel":
		return redisRegistry(redis.NewFailoverClient(&redis.FailoverOptions{Password: servertest.Canary,
			MasterName: spec.Master, SentinelAddrs: spec.Addrs, Dialer: dialVia(spec.Via)}), prefix), nil
	case "cluster":
		return redisRegistry(redis.NewClusterClient(&redis.ClusterOptions{Password: servertest.Canary,
			Addrs: spec.Addrs, Dialer: dialVia(spec.Via)}), prefix), nil
	case "postgres":
		config, err := pgxpool.ParseConfig(spec.DSN)
		if err != nil {
			return nil, err
		}
		config.MaxConns = 2
		pool, err := pgxpool.NewWithConfig(context.Background(), config)
		if err != nil {
			return nil, err
		}
		db := stdlib.OpenDBFromPool(pool)
		store := pgxregistry.New(pool, sqlregistry.Options{})
		door := sqlRegistry(db, store)
		door.close = func() {
			_ = store.Close()
			db.Close()
			pool.Close()
		}
		return door, nil
	case "mariadb":
		db, err := sql.Open("mysql", spec.DSN)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(2)
		return sqlRegistry(db, sqlregistry.MySQL(db, sqlregistry.Options{})), nil
	default: // the locks' file: a writer there blocks the others
		db, err := openFile(spec.DSN)
		if err != nil {
			return nil, err
		}
		return sqlRegistry(db, sqlregistry.SQLite(db, sqlregistry.Options{})), nil
	}
}

func redisRegistry(client redis.UniversalClient, prefix string) *registryDoor {
	store := redisregistry.New(client, redisregistry.Options{Prefix: prefix})
	drop := func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, "{"+prefix+":slot:registry}:*").Result()
		if err == nil && len(keys) > 0 {
			err = node.Del(ctx, keys...).Err()
		}
		return err
	}
	return &registryDoor{
		store: store,
		drop: func(ctx context.Context) error {
			if c, ok := client.(*redis.ClusterClient); ok {
				return c.ForEachMaster(ctx, drop)
			}
			return drop(ctx, client.(*redis.Client))
		},
		mend:  func(context.Context) error { return nil }, // the next heartbeat restores what is missing
		close: func() { store.Close(); client.Close() },
	}
}

func sqlRegistry(db *sql.DB, store *sqlregistry.Store) *registryDoor {
	return &registryDoor{
		store: store,
		drop: func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+sqlregistry.DefaultTableName)
			return err
		},
		mend:  store.Migrate,
		close: func() { db.Close() },
	}
}

// A registryHost is the registry of one host.
type registryHost struct {
	*cluster.Registry
	store *fragile
	door  *registryDoor
	log   *torture.Log
	sight string // the file that logs the hosts it sees
	stop  context.CancelFunc
	ended chan error
	looks sync.WaitGroup
}

func startRegistry(spec Spec, lock dlock.DistributedLock, holder dlock.Holder,
	log *torture.Log) (*registryHost, error) {
	door, err := openRegistry(*spec.Registry)
	if err != nil {
		return nil, err
	}
	h := &registryHost{door: door, log: log, store: &fragile{Store: door.store}, sight: sightOf(spec.Dir, spec.Name),
		ended: make(chan error, 1)}
	h.Registry, err = cluster.New(cluster.Config{Store: h.store, Locks: lock, Holder: holder, TTL: registryTTL,
		StoreTimeout: registryTimeout, SnapshotAge: sightEvery / 2,
		Logger: slog.New(listener{slog.DiscardHandler, log})})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() { h.ended <- h.Run(ctx) }()
	h.looks.Go(func() { h.look(ctx) })
	return h, nil
}

// end stops Run, which must return at once, whatever the state of the registry.
func (r *registryHost) end() error {
	r.stop()
	r.looks.Wait()
	defer r.door.close()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(registryTTL):
		return errors.New("the registry's Run does not return")
	}
}

// A timed store logs which calls take so long that they cost leases, and which starts of limits
// with a rate were granted. It is below the registry, whose time it does not measure.
type timed struct {
	dlock.DistributedLock
	most time.Duration
	log  *torture.Log

	asked   sync.Map // when a token was first requested
	granted sync.Map // tokens; a repeated answer is not another start
}

func (t *timed) Unwrap() dlock.DistributedLock { return t.DistributedLock }

func (t *timed) since(from int64) {
	if last := nemesis.Mono(); last-from > int64(t.most) {
		t.log.Write(torture.Line{Kind: torture.Slow, First: from, Last: last})
	}
}

func (t *timed) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	now := nemesis.Mono()
	defer t.since(now)
	first, _ := t.asked.LoadOrStore(req.Token, now)
	g, err := t.DistributedLock.TryAcquire(ctx, req)
	if err == nil {
		for _, l := range req.Shared {
			if _, again := t.granted.LoadOrStore(req.Token, true); l.Rate > 0 && !again {
				t.log.Write(torture.Line{Kind: torture.Granted, Target: strings.TrimPrefix(l.Name, "limit:"),
					First: first.(int64), Last: nemesis.Mono()})
			}
		}
	}
	return g, err
}

func (t *timed) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	defer t.since(nemesis.Mono())
	return t.DistributedLock.Extend(ctx, ttl, grants...)
}

// A listener logs what the registry writes to its Logger.
type listener struct {
	slog.Handler
	log *torture.Log
}

func (listener) Enabled(context.Context, slog.Level) bool { return true }

func (l listener) Handle(_ context.Context, r slog.Record) error {
	kind := torture.RegistryWorks
	if r.Level >= slog.LevelWarn {
		kind = torture.RegistryFails
	}
	line := torture.Line{Kind: kind}
	r.Attrs(func(a slog.Attr) bool { line.Fault += a.Key + ": " + a.Value.String(); return true })
	l.log.Write(line)
	return nil
}

// A sight is the live hosts that one host saw at an instant.
type sight struct {
	At    int64
	Alive []string
}

func sightOf(dir, name string) string { return filepath.Join(dir, name+".sight") }

// look logs repeatedly which hosts this host sees.
func (r *registryHost) look(ctx context.Context) {
	tick := time.NewTicker(sightEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s, err := r.Snapshot(ctx)
		if err != nil {
			continue
		}
		seen := sight{At: nemesis.Mono() - int64(s.ReadAge)}
		for _, o := range s.Hosts {
			if o.State == cluster.HostAlive {
				seen.Alive = append(seen.Alive, o.Holder.Host)
			}
		}
		text, err := json.Marshal(seen)
		if err == nil {
			err = os.WriteFile(r.sight+".new", text, 0o600)
		}
		if err == nil {
			err = os.Rename(r.sight+".new", r.sight)
		}
		if err != nil {
			panic(err)
		}
	}
}

// A fragile registry fails on demand.
type fragile struct {
	cluster.Store

	mu   sync.Mutex
	kind string // of the fault, or ""
}

// suffer makes the registry fail for a while, for an order such as "registry_full 1s".
func (r *registryHost) suffer(ctx context.Context, order string) {
	kind, length, _ := strings.Cut(order, " ")
	lasts, err := time.ParseDuration(length)
	if err != nil {
		panic(err)
	}
	r.store.set(kind)
	from := nemesis.Mono()
	select {
	case <-time.After(lasts):
	case <-ctx.Done():
	}
	if kind != "registry_full" { // a full registry can still be read
		r.log.Write(torture.Line{Kind: torture.RegistryBroken, Fault: kind, Target: r.Holder().Host, First: from,
			Last: nemesis.Mono()})
	}
	r.store.set("")
}

func (f *fragile) set(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind = kind
}

// fault returns the error of a call.
func (f *fragile) fault(ctx context.Context, writes bool) error {
	f.mu.Lock()
	kind := f.kind
	f.mu.Unlock()
	switch {
	case kind == "registry_full" && writes:
		return errors.New("no space is left")
	case kind == "registry_gone":
		return errors.New("nobody is there")
	case kind == "registry_slow":
		select {
		case <-time.After(slowness):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (f *fragile) Write(ctx context.Context, b cluster.Batch) (cluster.Written, error) {
	if err := f.fault(ctx, true); err != nil {
		return cluster.Written{}, err
	}
	return f.Store.Write(ctx, b)
}

func (f *fragile) Read(ctx context.Context, q cluster.Query) (cluster.Rows, error) {
	if err := f.fault(ctx, false); err != nil {
		return cluster.Rows{}, err
	}
	return f.Store.Read(ctx, q)
}

func (f *fragile) Sweep(ctx context.Context, r cluster.Retention, limit int) (int, error) {
	if err := f.fault(ctx, true); err != nil {
		return 0, err
	}
	return f.Store.Sweep(ctx, r, limit)
}

// hurtRegistry performs one of registryFaults and returns when it is over.
func (t *tormentor) hurtRegistry(f nemesis.Fault) error {
	broken := func(from int64) {
		t.log.Write(torture.Line{Kind: torture.RegistryBroken, Fault: f.Kind, First: from, Last: nemesis.Mono()})
	}
	network := len(t.store.targets()) > 0
	switch {
	case f.Kind == "registry_dropped":
		return t.dropRegistry(f.For, broken)
	case f.Kind == "registry_slow" && network:
		t.eachWay(func(p *servertest.Proxy) { p.Delay(slowness / 2) })
		from := nemesis.Mono()
		time.Sleep(f.For)
		broken(from)
		t.eachWay(func(p *servertest.Proxy) { p.Delay(0) })
	case f.Kind == "registry_gone" && network:
		t.eachWay((*servertest.Proxy).Cut)
		from := nemesis.Mono()
		time.Sleep(f.For)
		broken(from)
		var errs []error
		t.eachWay(func(p *servertest.Proxy) { errs = append(errs, p.Mend()) })
		return errors.Join(errs...)
	default: // the hosts simulate faults that cannot be caused from outside
		var all sync.WaitGroup
		for _, m := range t.members {
			all.Go(func() { // later if another fault is acting on it
				m.mu.Lock()
				m.proc.Tell("registry %s %v", f.Kind, f.For)
				m.mu.Unlock()
			})
		}
		time.Sleep(f.For)
		all.Wait()
	}
	return nil
}

func (t *tormentor) eachWay(do func(p *servertest.Proxy)) {
	for _, m := range t.members {
		for _, p := range m.toRegistry {
			do(p)
		}
	}
}

// dropRegistry deletes all data of the registry. If the server is down at that moment, it will be
// back soon.
func (t *tormentor) dropRegistry(lasts time.Duration, broken func(from int64)) error {
	if err := testkit.Poll(30*time.Second, "drop the registry", t.registry.drop); err != nil {
		return err
	}
	from := nemesis.Mono()
	time.Sleep(lasts)
	// On Redis, the next heartbeat creates the registry.
	if t.kind == "postgres" || t.kind == "mariadb" || t.kind == "sqlite" {
		broken(from)
	}
	return testkit.Poll(30*time.Second, "mend the registry", t.registry.mend)
}

// calm disturbs only the registry.
func (t *tormentor) calm(ctx context.Context) {
	for _, kind := range registryFaults {
		if ctx.Err() == nil {
			t.do(nemesis.Fault{Target: "registry", Kind: kind, For: calmFault})
			time.Sleep(calmPause)
		}
	}
}

// lookRegistered counts hosts that do not see all others, or see hosts that do not exist.
func (t *tormentor) lookRegistered() {
	healed := nemesis.Mono()
	var shows, live []string
	for _, m := range t.members {
		live = append(live, m.proc.Name)
		if t.ours(m) {
			shows = append(shows, m.proc.Name)
		}
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, m := range t.members {
		if !t.ours(m) {
			continue
		}
		all.Go(func() {
			err := testkit.Poll(sightLimit, "see all hosts", func() error {
				var s sight
				text, err := os.ReadFile(sightOf(t.dir, m.proc.Name))
				if err == nil {
					err = json.Unmarshal(text, &s)
				}
				switch {
				case err != nil:
					return err
				case s.At < healed:
					return fmt.Errorf("what it saw %v before", time.Duration(healed-s.At))
				}
				for _, name := range shows {
					if !slices.Contains(s.Alive, name) {
						return fmt.Errorf("it does not see %s, but %v", name, s.Alive)
					}
				}
				for _, name := range s.Alive {
					if !slices.Contains(live, name) {
						return fmt.Errorf("it sees %s, which has ended", name)
					}
				}
				return nil
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				t.blind = append(t.blind, fmt.Sprintf("%s: %v", m.proc.Name, err))
			}
		})
	}
	all.Wait()
}

// ours reports whether a member runs this build, which has a registry.
func (t *tormentor) ours(m *member) bool { return t.other == "" || m.number%2 == 0 }
