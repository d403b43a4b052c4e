package servertest

import (
	"os"
	"path/filepath"
)

// Chosen returns the program of a server that the environment chooses in place of what is
// installed: TICKSLOT_SERVER_POSTGRES, _PGBOUNCER, _MYSQL (a mysqld, or a mariadbd) or _REDIS (a
// redis-server, or a valkey-server), each with the path of the program. It is empty if none is
// chosen. The programs that belong to a server are looked for beside it.
func Chosen(kind string) string { return os.Getenv("TICKSLOT_SERVER_" + kind) }

// Fetched returns where scripts/fetch.sh has put a program of a server, or "" if it has not.
func Fetched(server, program string) string {
	folders := []string{"/var/cache/tickslot/servers"}
	if cache, err := os.UserCacheDir(); err == nil {
		folders = append(folders, filepath.Join(cache, "tickslot", "servers"))
	}
	for _, folder := range folders {
		path := filepath.Join(folder, server, program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
