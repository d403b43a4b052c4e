//go:build linux

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/sqltest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/internal/torture/nemesis"
)

// A database is a real server, or a file, and what can be done to it.
type database struct {
	server  *sqltest.Server // nil: it is a file
	bouncer *sqltest.Server // nil: there is none
	file    string
	dir     string

	hurting sync.Mutex // held while something is done to it
}

// startDatabase starts one of databaseFaults.
func startDatabase(kind, dir string) (d *database, err error) {
	d = &database{dir: dir}
	switch kind {
	case "sqlite":
		d.file = filepath.Join(dir, "durable.db")
		return d, nil
	case "postgres", "pgbouncer":
		// the machine goes on
		if d.server, err = sqltest.StartPostgres(sqltest.Options{Settings: []string{"fsync=off"}}); err != nil {
			return nil, err
		}
		if kind == "pgbouncer" {
			d.bouncer, err = sqltest.StartPgBouncer(d.server, "transaction",
				sqltest.Options{Settings: []string{"default_pool_size = 30"}})
		}
		if err != nil {
			d.close()
			return nil, err
		}
		return d, nil
	default:
		return nil, fmt.Errorf("no store %q: use postgres, pgbouncer or sqlite", kind)
	}
}

// target is the address that proxies are to be put in front of; "": there is none.
func (d *database) target() string {
	switch {
	case d.bouncer != nil:
		return d.bouncer.Addr()
	case d.server != nil:
		return d.server.Addr()
	default:
		return ""
	}
}

// direct is the way that nobody disturbs.
func (d *database) direct() Way {
	if d.server == nil {
		return Way{DSN: d.file}
	}
	return Way{DSN: d.server.DSN("", "", ""), Prepares: true}
}

// via is the way through a proxy in front of the target.
func (d *database) via(addr string) Way {
	way := d.direct()
	if d.server != nil {
		way.DSN = strings.Replace(way.DSN, d.server.Addr(), addr, 1)
		way.Prepares = d.bouncer == nil
	}
	return way
}

func (d *database) close() {
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

// keepUp starts the PgBouncer again when it has ended by itself, as an init system does, until ctx
// ends: version 1.18 does so now and then when clients cancel what they asked for ("FATAL bad
// client state"). It tells when that was.
func (d *database) keepUp(ctx context.Context, ended func(from int64, err error)) {
	for ctx.Err() == nil {
		d.hurting.Lock()
		if from := nemesis.Mono(); d.bouncer.Pid() == 0 {
			err := d.bouncer.Restart()
			ended(from, err)
		}
		d.hurting.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

// hurt does one of databaseFaults and returns when it is over.
func (d *database) hurt(f nemesis.Fault) error {
	d.hurting.Lock()
	defer d.hurting.Unlock()
	switch f.Kind {
	case "bouncer_kill":
		if d.bouncer.Pid() != 0 { // else it has ended by itself
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
		return nemesis.Stop(d.bouncer.Server, f.For)
	// Somebody else has the lock of the file, and gives it back, or dies in the middle of a
	// transaction.
	case "file_locked", "writer_killed":
		name := fmt.Sprint("writer-", nemesis.Mono())
		p, err := nemesis.Spawn("", d.dir, name, Spec{Role: "writer", Name: name, Dir: d.dir,
			Database: []Way{d.direct()}})
		if err != nil {
			return err
		}
		time.Sleep(100*time.Millisecond + f.For)
		if f.Kind == "writer_killed" {
			p.Kill()
			return nil
		}
		return p.End(drainTime)
	default:
		return nemesis.Postgres(d.server, f, tableOfRuns, "state = 'running'")
	}
}

// runWriter locks the file until it is told to end, and undoes what it wrote.
func runWriter(spec Spec) error {
	d, err := openFile(spec.Database[0].DSN)
	if err != nil {
		return err
	}
	defer d.close()
	var tx *sql.Tx
	// A worker that is stopped may have the lock for longer than SQLite waits.
	err = testkit.Poll(time.Minute, "lock the file", func() (err error) {
		tx, err = d.db.BeginTx(context.Background(), nil) // BEGIN IMMEDIATE
		return err
	})
	if err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM " + tableOfRuns)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return errors.Join(err, tx.Rollback())
}
