package main

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/proof/sqltest"
)

// Fails when hold does not hold xmin, as with READ COMMITTED, or holds it after its release.
func TestHoldKeepsDeadRows(t *testing.T) {
	sqltest.RequirePostgres(t)
	p, err := startPostgres()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.admin.Close(); p.Close() })
	d, err := p.newDatabase(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := d.server.Exec(d.name, statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	pages := func() int {
		t.Helper()
		n, err := d.count("SELECT pg_relation_size('rows')::int")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	exec("CREATE TABLE rows AS SELECT * FROM generate_series(1, 1000)")
	release, err := d.hold()
	if err != nil {
		t.Fatal(err)
	}
	exec("DELETE FROM rows", "VACUUM rows")
	if pages() == 0 {
		t.Error("vacuum has removed rows that the transaction sees")
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	exec("VACUUM rows")
	if n := pages(); n != 0 {
		t.Errorf("%d bytes are left after the release", n)
	}
}

// Fails when the table's columns are not ordered by time, or when the plot reads another time than
// was written.
func TestByTime(t *testing.T) {
	last := ""
	for at := 30 * time.Second; at <= 3*time.Minute; at += 30 * time.Second {
		key := byTime(at)
		if key <= last || seconds(key[len(byTimePrefix):]) != at.Seconds() {
			t.Errorf("%v is %q, after %q", at, key, last)
		}
		last = key
	}
}
