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

// folders are places of programs that PATH often lacks.
var folders = []string{
	"/usr/sbin", "/usr/local/sbin", "/usr/libexec",
	"/opt/homebrew/opt/mariadb/bin", "/usr/local/opt/mariadb/bin",
	"/opt/homebrew/opt/mysql/bin", "/usr/local/opt/mysql/bin",
}

// path returns PATH with the folders after it.
func path() string {
	return strings.Join(append([]string{os.Getenv("PATH")}, folders...), string(filepath.ListSeparator))
}

// find returns the first of the programs that there is.
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

// postgres are the programs of one version of Postgres.
type postgres struct{ folder, client string }

// findPostgres returns the programs of the Postgres that servertest.Chosen chooses, or of that of
// PATH, or else of the newest. (Debian keeps its folders out of PATH, and the psql in PATH is a
// slow script there.) A server that is chosen may lack a psql: any other will do. It looks once, as
// pg_config is such a script, too.
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
		found, _ := filepath.Glob(pattern) // the patterns are good
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

// findPgBouncer returns the PgBouncer that servertest.Chosen chooses, or else the one that
// scripts/fetch.sh has fetched, or that is installed. 1.18, which Debian 12 has, ends itself when
// clients cancel calls (https://github.com/pgbouncer/pgbouncer/issues/801 and 822), so it is none.
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

// version returns the number in the name of a folder of Postgres.
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

// Program returns the program that a kind of server is started from, see servertest.Chosen.
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
