package servertest

import (
	"os"
	"path/filepath"
)

// Chosen returns the server program that the environment selects instead of the installed one:
// TICKSLOT_SERVER_POSTGRES, _PGBOUNCER, _MYSQL (mysqld or mariadbd) or _REDIS (redis-server or
// valkey-server), each with a path. It returns "" if none is selected. The server's other programs
// are expected in the same directory.
func Chosen(kind string) string { return os.Getenv("TICKSLOT_SERVER_" + kind) }

// Fetched returns the path of a server program fetched by scripts/fetch.sh, or "".
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
