package sqltest

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/tickslot/tickslot/proof/servertest"
)

// StartPostgres runs a Postgres server, and waits until it answers. Its superuser is postgres, its
// encoding UTF8, its collation C. There is also a role app, which may only log in. Passwords are
// required; all are servertest.Canary. Close stops it.
func StartPostgres(opts Options) (*Server, error) {
	programs, err := findPostgres()
	if err != nil {
		return nil, err
	}
	command := func(base *servertest.Server, name string, args ...string) *exec.Cmd {
		return hermetic(base.Command(filepath.Join(programs.folder, name), args...), base.Dir())
	}
	accepts := "connections"
	if opts.StandbyOf != nil {
		accepts = "read-only connections"
	}
	base, err := servertest.Start(servertest.Program{
		Name: "postgres",
		Prepare: func(base *servertest.Server) error {
			if opts.TLS {
				err := errors.Join(base.WriteCerts(),
					os.WriteFile(tlsOnly(base), []byte("hostssl all all 127.0.0.1/32 md5\n"), 0o644))
				if err != nil {
					return err
				}
			}
			if opts.StandbyOf != nil {
				_, err := base.Run(command(base, "pg_basebackup", "-D", "data", "-R", "-c", "fast", "--no-sync",
					"-d", opts.StandbyOf.DSN("", "", "")))
				return err
			}
			err := os.WriteFile(filepath.Join(base.Dir(), "password"), []byte(servertest.Canary+"\n"), 0o644)
			if err != nil {
				return err
			}
			// Not scram-sha-256, because under the race detector the thousands of hashes per new
			// connection take longer than the tests' faults allow.
			return base.Fill("data", programs.folder, func() error {
				_, err := base.Run(command(base, "initdb", "-D", "data", "-U", "postgres", "-A", "md5",
					"--pwfile=password", "-E", "UTF8", "--no-locale", "--no-sync"))
				return err
			})
		},
		Command: func(base *servertest.Server) (*exec.Cmd, error) {
			settings := append([]string{
				"listen_addresses=127.0.0.1",
				"port=" + strconv.Itoa(base.Port()),
				"unix_socket_directories=",
				"max_connections=200",
				// Its shared memory is deleted with its folder.
				"dynamic_shared_memory_type=mmap",
			}, opts.Settings...)
			if opts.TLS {
				settings = append(settings, "ssl=on", "ssl_cert_file="+base.CertFile(), "ssl_key_file="+base.KeyFile(),
					"ssl_ca_file="+base.CAFile(),
					"hba_file="+tlsOnly(base))
			}
			args := []string{"-D", "data"}
			for _, s := range settings {
				args = append(args, "-c", s)
			}
			cmd := command(base, "postgres", args...)
			if opts.ClockAhead != 0 {
				library, err := servertest.Faketime()
				if err != nil {
					return nil, err
				}
				cmd.Env = append(cmd.Env, "LD_PRELOAD="+library, "FAKETIME_DONT_FAKE_MONOTONIC=1",
					fmt.Sprintf("FAKETIME=%+.3f", opts.ClockAhead.Seconds()))
			}
			return cmd, nil
		},
		Ready:  says("database system is ready to accept " + accepts),
		Remove: func(base *servertest.Server) { removeSharedMemory(base.Dir()) },
		// SIGTERM would wait until clients disconnect.
		StopSignal:  syscall.SIGINT,
		RefusesRoot: true,
	})
	if err != nil {
		return nil, err
	}
	sslmode := "disable"
	if opts.TLS {
		sslmode = "require"
	}
	s := &Server{Server: base, dsn: postgresURL(base, sslmode), read: postgresMessage, state: statePostgres,
		empty: emptyPostgres}
	s.client = psql(base, programs.client, s.dsn)
	s.drop = func(database string) error {
		_, err := s.Exec("", "DROP DATABASE IF EXISTS "+database+" WITH (FORCE)")
		return err
	}
	if opts.StandbyOf != nil {
		return s, nil
	}
	if _, err := s.Exec("", "CREATE ROLE app LOGIN PASSWORD '"+servertest.Canary+"'"); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// tlsOnly is the pg_hba.conf of a server that requires TLS.
func tlsOnly(base *servertest.Server) string { return filepath.Join(base.Dir(), "tls_only.conf") }

// psql returns a client for Postgres and PgBouncer.
func psql(base *servertest.Server, program string, dsn func(user, password, database string) string) func(
	database string) *exec.Cmd {
	return func(database string) *exec.Cmd {
		return hermetic(base.Command(program, "-X", "-q", "-A", "-t",
			"-v", "ON_ERROR_STOP=1", "-d", dsn("", "", database)), base.Dir())
	}
}

func postgresURL(base *servertest.Server, sslmode string) func(user, password, database string) string {
	return func(user, password, database string) string {
		u := url.URL{Scheme: "postgres", Host: base.Addr(), Path: "/postgres", RawQuery: "sslmode=" + sslmode}
		if database != "" {
			u.Path = "/" + database
		}
		u.User = url.UserPassword(cmp.Or(user, "postgres"), cmp.Or(password, servertest.Canary))
		return u.String()
	}
}

// removeSharedMemory removes the block of shared memory that a killed server leaves in the system,
// which has a limited number.
func removeSharedMemory(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 7 {
		return // it was not killed
	}
	if block := strings.Fields(lines[6]); len(block) == 2 {
		_ = exec.Command("ipcrm", "-m", block[1]).Run()
	}
}
