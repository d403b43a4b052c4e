//go:build linux

package nemesis

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/torture"
)

// drainTime is how long a process may take to stop, because its work may ignore its context.
const drainTime = 20 * time.Second

// A Way tells a process how to connect to the database.
type Way struct {
	DSN      string // of a server, or the SQLite file
	Prepares bool   // whether statements are prepared, which is impossible behind PgBouncer
}

// A Database is a real server or a file, and its faults.
type Database struct {
	kind    string
	server  *sqltest.Server // nil for a file
	bouncer *sqltest.Server // nil if there is none
	file    string
	dir     string

	hurting sync.Mutex // held during a fault
}

// databaseName is the database on MariaDB, which has no default one.
const databaseName = "torture"

// DatabaseFaults are the faults of each kind of database.
var DatabaseFaults = map[string][]string{
	"postgres":  PostgresFaults,
	"pgbouncer": append([]string{"bouncer_kill", "bouncer_stop"}, PostgresFaults...),
	"mariadb":   MariaDBFaults,
	"sqlite":    {"file_locked", "writer_killed"},
}

// StartDatabase starts a database of one of the kinds in DatabaseFaults.
func StartDatabase(kind, dir string) (d *Database, err error) {
	d = &Database{kind: kind, dir: dir}
	switch kind {
	case "sqlite":
		d.file = filepath.Join(dir, "torture.db")
	case "postgres", "pgbouncer":
		// The machine itself does not crash, so fsync is not needed.
		if d.server, err = sqltest.StartPostgres(sqltest.Options{Settings: []string{"fsync=off"}}); err != nil {
			return nil, err
		}
		if kind == "pgbouncer" {
			d.bouncer, err = sqltest.StartPgBouncer(d.server, "transaction",
				sqltest.Options{Settings: []string{"default_pool_size = 30"}})
		}
	case "mariadb":
		if d.server, err = sqltest.StartMariaDB(sqltest.Options{}); err != nil {
			return nil, err
		}
		_, err = d.server.Exec("", "CREATE DATABASE "+databaseName)
	default:
		return nil, fmt.Errorf("no store %q: use postgres, pgbouncer, mariadb or sqlite", kind)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// HasNetwork reports whether processes reach it through a network.
func (d *Database) HasNetwork() bool { return d.server != nil }

// Bounced reports whether a PgBouncer is in front of it.
func (d *Database) Bounced() bool { return d.bouncer != nil }

// Target returns the address that needs proxies.
func (d *Database) Target() string {
	if d.bouncer != nil {
		return d.bouncer.Addr()
	}
	return d.server.Addr()
}

// Direct returns a connection without faults.
func (d *Database) Direct() Way {
	switch d.kind {
	case "sqlite":
		return Way{DSN: d.file}
	case "mariadb":
		// Otherwise the session of a disconnected host keeps its locks for 8 hours: see
		// outbox.MySQL.
		// outbox.MySQL.
		return Way{DSN: d.server.DSN("", "", databaseName) + "?interpolateParams=true&wait_timeout=10", Prepares: true}
	default:
		return Way{DSN: d.server.DSN("", "", ""), Prepares: true}
	}
}

// Via returns a connection through a proxy in front of the target.
func (d *Database) Via(addr string) Way {
	way := d.Direct()
	if d.server != nil {
		way.DSN = strings.Replace(way.DSN, d.server.Addr(), addr, 1)
		way.Prepares = d.bouncer == nil
	}
	return way
}

// Aside returns a connection through PgBouncer without faults, with a separate pool.
func (d *Database) Aside() Way { return Way{DSN: d.bouncer.DSN("", "", sqltest.BouncerAside)} }

// Close stops it.
func (d *Database) Close() {
	if d.bouncer != nil {
		d.bouncer.Close()
	}
	if d.server != nil {
		d.server.Close()
	}
	if d.file != "" {
		_ = os.Remove(d.file)
	}
}

// keepUp restarts PgBouncer whenever it exits, like an init system, until ctx ends. Version 1.18
// sometimes exits when clients cancel requests ("FATAL bad client state"). It calls ended with the
// time.
func (d *Database) keepUp(ctx context.Context, ended func(from int64, err error)) {
	Each(ctx, func(context.Context) {
		d.hurting.Lock()
		defer d.hurting.Unlock()
		if from := Mono(); d.bouncer.Pid() == 0 {
			ended(from, d.bouncer.Restart())
		}
	})
}

// hurt performs one of DatabaseFaults and returns when it is over. A fault may lock the whole
// table, or some rows that match the condition. mark logs from when on commits may be lost.
func (d *Database) hurt(f Fault, table, rows string, writer func(name string) any,
	mark func(kind string, from int64)) error {
	d.hurting.Lock()
	defer d.hurting.Unlock()
	switch f.Kind {
	case "bouncer_kill":
		if d.bouncer.Pid() != 0 { // otherwise it has exited on its own
			if err := d.bouncer.Kill(); err != nil {
				return err
			}
		}
		time.Sleep(f.For)
		return d.bouncer.Restart()
	case "bouncer_stop":
		if d.bouncer.Pid() == 0 {
			return d.bouncer.Restart()
		}
		return Stop(d.bouncer.Server, f.For)
	// Another process locks the file, and unlocks it or dies during a transaction.
	case "file_locked", "writer_killed":
		name := fmt.Sprint("writer-", Mono())
		p, err := Spawn("", d.dir, name, writer(name))
		if err != nil {
			return err
		}
		time.Sleep(100*time.Millisecond + f.For)
		if f.Kind == "writer_killed" {
			p.Kill()
			return nil
		}
		return p.End(drainTime)
	}
	if f.Kind == torture.Promoted {
		return promote(d.server, f.For, mark)
	}
	if d.kind == "mariadb" {
		return MariaDB(d.server, f, databaseName, table, rows)
	}
	return Postgres(d.server, f, table, rows)
}

// RunWriter locks the file until the process is told to end, and rolls back its writes.
func RunWriter(spec Spec) error {
	d, err := openFile(spec.Ways[0].DSN)
	if err != nil {
		return err
	}
	defer d.Close()
	var tx *sql.Tx
	// A paused process may hold the lock for longer than SQLite waits.
	err = testkit.Poll(time.Minute, "lock the file", func() (err error) {
		tx, err = d.DB.BeginTx(context.Background(), nil) // BEGIN IMMEDIATE
		return err
	})
	if err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM " + spec.Table)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return errors.Join(err, tx.Rollback())
}

// UntilTold returns a context that ends when the process is told to end.
func UntilTold() (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.Background())
	go func() { // runs until the process ends
		bufio.NewScanner(os.Stdin).Scan() // there is only one command
		stop()
	}()
	return ctx, stop
}

// LookEvery is how often a watch reads the database.
const LookEvery = 100 * time.Millisecond

// Each calls look regularly until ctx ends.
func Each(ctx context.Context, look func(context.Context)) {
	for ctx.Err() == nil {
		look(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(LookEvery):
		}
	}
}

// LookThrough logs whether PgBouncer reaches the server, because it may be stuck while the server
// is well. The door must be one of Aside, which has a separate pool. In the pool of the tortured
// processes, the look would fail whenever they use up its connections, and that would excuse them.
func LookThrough(ctx context.Context, bounced *Door, log *torture.Log) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	l := torture.Line{Kind: torture.Looked, First: Mono()}
	_, err := bounced.DB.ExecContext(ctx, "SELECT 1")
	l.Last, l.Failed = Mono(), err != nil
	log.Write(l)
}
