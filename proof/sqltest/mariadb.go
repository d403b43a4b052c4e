package sqltest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tickslot/tickslot/proof/servertest"
)

// mariaDB has the programs of a MariaDB or MySQL.
type mariaDB struct {
	server, client string
	install        string // "" for MySQL, whose server does that itself
}

// findMariaDB returns the programs of the server selected by servertest.Chosen, or of MariaDB, or
// of MySQL if there is no MariaDB.
func findMariaDB() (mariaDB, error) {
	server := servertest.Chosen("MYSQL")
	if server == "" {
		var err error
		if server, err = find("mariadbd", "mysqld"); err != nil {
			return mariaDB{}, err
		}
	}
	return besides(server)
}

// findMySQL returns the programs of the MySQL fetched by scripts/fetch.sh, or of the installed one.
func findMySQL() (mariaDB, error) {
	server := servertest.Fetched("mysql", "usr/sbin/mysqld")
	if server == "" {
		var err error
		if server, err = find("mysqld"); err != nil {
			return mariaDB{}, err
		}
		// MariaDB has a program of that name, too.
		if real, err := filepath.EvalSymlinks(server); err == nil && filepath.Base(real) == "mariadbd" {
			return mariaDB{}, errors.New("mysqld not found: there is a MariaDB of this name")
		}
	}
	return besides(server)
}

// besides returns the programs of a server. If a program is not in the server's directory, it
// returns the system's.
func besides(server string) (p mariaDB, err error) {
	beside := func(names ...string) (string, error) {
		for _, name := range names {
			for _, folder := range []string{"../bin", "../scripts", "."} {
				path, err := exec.LookPath(filepath.Join(filepath.Dir(server), folder, name))
				if err == nil {
					return path, nil
				}
			}
		}
		return find(names...)
	}
	p.server = server
	if filepath.Base(server) == "mariadbd" {
		if p.install, err = beside("mariadb-install-db"); err != nil {
			return p, err
		}
		p.client, err = beside("mariadb")
		return p, err
	}
	p.client, err = beside("mysql", "mariadb")
	return p, err
}

// StartMariaDB runs a MariaDB server, or another one that findMariaDB has found, and waits until it
// answers. Its superuser is root. There is also a user app without rights. Over TCP, passwords are
// required; all are servertest.Canary. Close stops it.
func StartMariaDB(opts Options) (*Server, error) {
	programs, err := findMariaDB()
	if err != nil {
		return nil, err
	}
	return startMariaDB(programs, opts)
}

// StartMySQL is StartMariaDB for MySQL.
func StartMySQL(opts Options) (*Server, error) {
	programs, err := findMySQL()
	if err != nil {
		return nil, err
	}
	return startMariaDB(programs, opts)
}

func startMariaDB(programs mariaDB, opts Options) (*Server, error) {
	command := func(base *servertest.Server, name string, args ...string) *exec.Cmd {
		args = append([]string{"--no-defaults"}, args...)
		return hermetic(base.Command(name, args...), base.Dir())
	}
	server := func(base *servertest.Server, name string, args ...string) *exec.Cmd {
		return command(base, name, append([]string{
			"--datadir=" + filepath.Join(base.Dir(), "data"),
			"--tmpdir=" + base.Dir(),
			"--skip-name-resolve",
			"--innodb-buffer-pool-size=24M",
			"--loose-innodb-log-file-size=16M",
		}, args...)...)
	}
	name := "mariadb"
	if programs.install == "" {
		name = "mysql"
	}
	base, err := servertest.Start(servertest.Program{
		Name: name,
		Prepare: func(base *servertest.Server) error {
			if opts.TLS {
				if err := base.WriteCerts(); err != nil {
					return err
				}
			}
			var forever []string // settings that MySQL accepts only when it creates the data
			for _, s := range opts.Settings {
				if programs.install == "" && strings.HasPrefix(s, "lower-case-table-names=") {
					forever = append(forever, "--"+s)
				}
			}
			return base.Fill("data", programs.server+strings.Join(forever, ""), func() error {
				if programs.install == "" {
					_, err := base.Run(server(base, programs.server, append(forever, "--initialize-insecure")...))
					if err != nil {
						return err
					}
					// A server without a UUID creates one. Copies would share it.
					return os.Remove(filepath.Join(base.Dir(), "data", "auto.cnf"))
				}
				_, err := base.Run(server(base, programs.install, "--auth-root-authentication-method=normal",
					"--basedir="+filepath.Join(filepath.Dir(programs.install), ".."),
					"--skip-test-db", "--debug-no-sync"))
				return err
			})
		},
		Command: func(base *servertest.Server) (*exec.Cmd, error) {
			args := []string{
				"--bind-address=127.0.0.1",
				"--port=" + strconv.Itoa(base.Port()),
				// Relative to the data directory, because a full path may be too long.
				"--socket=socket",
				"--pid-file=" + filepath.Join(base.Dir(), "pid"),
				"--innodb-flush-log-at-trx-commit=1",
				// Every commit is passed to the operating system, which survives a killed server,
				// without waiting for the disk.
				"--innodb-flush-method=nosync",
				"--loose-debug-no-sync",
				"--max-connections=200",
			}
			if programs.install == "" {
				// By default, packages make it read files from a directory that may not exist.
				args = append(args, "--mysqlx=OFF", "--secure-file-priv=NULL")
			}
			if opts.TLS {
				args = append(args, "--ssl-ca="+base.CAFile(), "--ssl-cert="+base.CertFile(),
					"--ssl-key="+base.KeyFile(), "--require-secure-transport=ON")
			}
			for _, s := range opts.Settings {
				args = append(args, "--"+s)
			}
			return server(base, programs.server, args...), nil
		},
		// The text after the program's path, because plugins may also report that they are ready.
		Ready:       says(": ready for connections."),
		RefusesRoot: true,
	})
	if err != nil {
		return nil, err
	}
	s := &Server{Server: base, read: mysqlMessage}
	s.client = func(database string) *exec.Cmd {
		cmd := command(base, programs.client, "--protocol=socket", "--socket=socket", "--user=root",
			"--batch", "--unbuffered", "--skip-column-names", "--default-character-set=utf8mb4", database)
		cmd.Dir = filepath.Join(base.Dir(), "data")
		return cmd
	}
	s.dsn = func(user, password, database string) string {
		return fmt.Sprintf("%s:%s@tcp(%s)/%s", cmp.Or(user, "root"), cmp.Or(password, servertest.Canary), base.Addr(),
			database)
	}
	s.drop = s.dropMariaDB
	// MySQL's root may connect only through the socket.
	password := " IDENTIFIED BY '" + servertest.Canary + "'; "
	// Not for a replica, which has the same users.
	_, err = s.Exec("", "SET sql_log_bin = 0; CREATE USER IF NOT EXISTS root@'127.0.0.1'; "+
		"ALTER USER root@'127.0.0.1'"+password+
		"GRANT ALL PRIVILEGES ON *.* TO root@'127.0.0.1' WITH GRANT OPTION; CREATE USER app"+password)
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// dropMariaDB drops a database. It first ends the sessions in it, because it would wait for their
// locks.
func (s *Server) dropMariaDB(database string) error {
	sessions, err := s.Exec("", "SELECT id FROM information_schema.processlist WHERE db = '"+database+"'")
	if err != nil {
		return err
	}
	for _, id := range strings.Fields(sessions) {
		_, _ = s.Exec("", "KILL "+id) // it may have ended
	}
	_, err = s.Exec("", "DROP DATABASE IF EXISTS "+database)
	return err
}
