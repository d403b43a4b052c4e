package sqltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tickslot/tickslot/proof/servertest"
)

// BouncerAside is a database of each PgBouncer that maps to the server's database postgres and has
// its own pool, so its clients do not wait for the connections of others.
const BouncerAside = "aside"

// StartPgBouncer runs a PgBouncer in front of a Postgres server, in the pool mode session,
// transaction, or statement, and waits until it answers. It knows the server's users postgres and
// app. Each database has a pool of five connections unless default_pool_size is set. Close stops
// it.
func StartPgBouncer(target *Server, mode string, opts Options) (*Server, error) {
	program, err := findPgBouncer()
	if err != nil {
		return nil, err
	}
	programs, err := findPostgres()
	if err != nil {
		return nil, err
	}
	base, err := servertest.Start(servertest.Program{
		Name: "pgbouncer",
		Command: func(base *servertest.Server) (*exec.Cmd, error) {
			config := fmt.Sprintf(`[databases]
%[1]s = host=127.0.0.1 port=%[2]d dbname=postgres
* = host=127.0.0.1 port=%[2]d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[3]d
unix_socket_dir =
auth_type = md5
auth_file = users.txt
admin_users = postgres
pool_mode = %[4]s
default_pool_size = 5
max_client_conn = 500
; A server that was away is tried again at once.
server_login_retry = 0.1
%[5]s
`, BouncerAside, target.Port(), base.Port(), mode, strings.Join(opts.Settings, "\n"))
			users := fmt.Sprintf("\"postgres\" \"%[1]s\"\n\"app\" \"%[1]s\"\n", servertest.Canary)
			err := errors.Join(
				os.WriteFile(filepath.Join(base.Dir(), "users.txt"), []byte(users), 0o644),
				os.WriteFile(filepath.Join(base.Dir(), "pgbouncer.ini"), []byte(config), 0o644))
			return hermetic(base.Command(program, "pgbouncer.ini"), base.Dir()), err
		},
		Ready:       says("process up"),
		RefusesRoot: true,
	})
	if err != nil {
		return nil, err
	}
	dsn := postgresURL(base, "disable")
	return &Server{Server: base, dsn: dsn, client: psql(base, programs.client, dsn), read: postgresMessage}, nil
}
