package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/examples/internal/demo/demotest"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) {
	servertest.Main(m, func() error { return goleak.Find() }) // the program leaves no goroutine
}

func TestEveryStore(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "locks.db") },
		"redis":  func(t *testing.T) string { return redistest.New(t).URL() },
		"postgres": func(t *testing.T) string {
			server := sqltest.SharedPostgres(t)
			return server.DSN("", "", server.NewDatabase(t))
		},
		"mysql": func(t *testing.T) string {
			server := sqltest.SharedMariaDB(t)
			return "mysql://root:" + servertest.Canary + "@" + server.Addr() + "/" + server.NewDatabase(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			demotest.Check(t, run, 3, "-store", url(t))
		})
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"please"},
		{"-store", "hunter2"},
		{"-store", "redis://:hunter2@localhost:none/0"},
		{"-store", "postgres://user:hunter2@localhost:none/db"},
		{"-store", "mysql://user:hunter2@localhost:none/db"},
		{"-store", "mysql://user:hunter2@localhost"},
		{"-store", "sqlite:"},
		{"-store", "sqlite:/no/such/folder/hunter3"},
		{"-store", "redis://user:hunter2@127.0.0.1:1/0"}, // no server listens there
		{"-store", "postgres://user:hunter2@127.0.0.1:1/db"},
		{"-store", "mysql://user:hunter2@127.0.0.1:1/db"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code == 0 {
			t.Errorf("%q: exit status 0", args)
		}
		if stderr.Len() == 0 {
			t.Errorf("%q: no error message", args)
		}
		if strings.Contains(stdout.String()+stderr.String(), "hunter2") {
			t.Errorf("%q: the password is printed: %s", args, &stderr)
		}
	}
}
