package sqltest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tickslot/tickslot/proof/servertest"
)

// folders lists directories of programs that PATH often lacks.
var folders = []string{
	"/usr/sbin", "/usr/local/sbin", "/usr/libexec",
	"/opt/homebrew/opt/mariadb/bin", "/usr/local/opt/mariadb/bin",
	"/opt/homebrew/opt/mysql/bin", "/usr/local/opt/mysql/bin",
}

// path returns PATH followed by the folders.
func path() string {
	return strings.Join(append([]string{os.Getenv("PATH")}, folders...), string(filepath.ListSeparator))
}

// find returns the path of the first program that exists.
func find(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		for _, dir := range folders {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s not found", strings.Join(names, " or "))
}

// A postgres has the programs of one version of Postgres.
type postgres struct{ folder, client string }

// findPostgres returns the programs of the Postgres selected by servertest.Chosen, or of the one in
// PATH, or of the newest. (Debian keeps its directories out of PATH, and its psql in PATH is a slow
// script.) If the selected server has no psql, any other will do. The result is cached, because
// pg_config is also a slow script.
var findPostgres = sync.OnceValues(func() (postgres, error) {
	folder, err := folderOfPostgres()
	found := postgres{folder, filepath.Join(folder, "psql")}
	if server := servertest.Chosen("POSTGRES"); server != "" {
		found.folder = filepath.Dir(server)
		if _, beside := exec.LookPath(filepath.Join(found.folder, "psql")); beside == nil {
			found.client, err = filepath.Join(found.folder, "psql"), nil
		}
	}
	return found, err
})

func folderOfPostgres() (string, error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	var versions []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
	} {
		found, _ := filepath.Glob(pattern) // the patterns are valid
		versions = append(versions, found...)
	}
	slices.SortFunc(versions, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	for _, dir := range append(dirs, versions...) {
		if complete(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("postgres not found")
}

// findPgBouncer returns the PgBouncer selected by servertest.Chosen, or the one fetched by
// scripts/fetch.sh, or the installed one. It ignores 1.18, which is in Debian 12, because it exits
// when clients cancel calls (https://github.com/pgbouncer/pgbouncer/issues/801 and 822).
func findPgBouncer() (string, error) {
	for _, program := range []string{servertest.Chosen("PGBOUNCER"),
		servertest.Fetched("pgbouncer-1.26", "usr/sbin/pgbouncer")} {
		if program != "" {
			return program, nil
		}
	}
	program, err := find("pgbouncer")
	if err != nil {
		return "", err
	}
	if told, _ := exec.Command(program, "--version").Output(); strings.HasPrefix(string(told), "PgBouncer 1.18.") {
		return "", errors.New("a PgBouncer other than 1.18, which ends itself when calls are canceled, not found")
	}
	return program, nil
}

// version returns the number in the name of a Postgres directory.
func version(dir string) float64 {
	number, _ := strconv.ParseFloat(regexp.MustCompile(`[0-9.]+`).FindString(dir), 64)
	return number
}

func complete(dir string) bool {
	for _, name := range []string{"initdb", "postgres", "psql"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// Program returns the program that starts a kind of server: see servertest.Chosen.
func Program(kind string) (string, error) {
	switch kind {
	case "POSTGRES":
		found, err := findPostgres()
		return filepath.Join(found.folder, "postgres"), err
	case "PGBOUNCER":
		return findPgBouncer()
	case "MYSQL":
		found, err := findMariaDB()
		return found.server, err
	}
	return find(cmp.Or(servertest.Chosen(kind), strings.ToLower(kind)+"-server"))
}
