package redistest

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tickslot/tickslot/proof/servertest"
)

// binary returns the server program.
func binary() string { return cmp.Or(servertest.Chosen("REDIS"), "redis-server") }

// Persistence says which data survives the server's process.
type Persistence int

const (
	// None keeps nothing: a restarted server is empty.
	None Persistence = iota
	// RDB keeps the state of the last Save, and writes nothing on its own.
	RDB
	// AOF keeps every acknowledged write: the append-only file is synced before each reply.
	AOF
)

// Options configure a server. The zero value is a plain server without persistence.
type Options struct {
	Persistence Persistence
	// Args are additional arguments of redis-server. They override this package's.
	Args []string
	// Env are additional environment variables, as name=value.
	Env []string
	// Password is the default user's password. Client and URL use it. Default: servertest.Canary.
	Password string
	// TLS makes the server accept only TLS, with the certificate of Server.WriteCerts. Clients need
	// no certificate.
	TLS bool
}

// User is the text after ACL SETUSER for an additional user. Every server started later has it,
// also after a restart. TestMain may set it. Default: no additional user.
var User []string

// A role says how the process of a Server is used.
type role int

const (
	plain role = iota
	clusterNode
	sentinel
)

// A Server is one redis-server process. Its methods are safe for concurrent use.
type Server struct {
	*servertest.Server

	opts Options
	role role
	tls  *tls.Config // nil without TLS

	mu     sync.Mutex
	client *redis.Client
	closed bool
}

// Start runs a server and waits until it answers. Close stops it.
func Start(opts Options) (*Server, error) {
	return start(opts, plain, nil)
}

// busOffset is the difference between a cluster node's port and its bus port.
const busOffset = 10000

// start runs a server in the given role. For a sentinel, config is the text of its configuration
// file.
func start(opts Options, as role, config []byte) (*Server, error) {
	if opts.Password == "" && as != sentinel {
		opts.Password = servertest.Canary
	}
	s := &Server{opts: opts, role: as}
	program := servertest.Program{
		Name:    "redis-server",
		Prepare: func(base *servertest.Server) error { return s.prepare(base, config) },
		Command: func(base *servertest.Server) (*exec.Cmd, error) {
			cmd := base.Command(binary(), s.args(base)...)
			if len(opts.Env) > 0 {
				cmd.Env = append(os.Environ(), opts.Env...)
			}
			return cmd, nil
		},
		Ready: s.probe,
	}
	if as == clusterNode {
		program.SecondPort = busOffset
	}
	base, err := servertest.Start(program)
	if err != nil {
		return nil, err
	}
	s.Server = base
	return s, nil
}

// prepare writes the files that the server starts from. The configuration file is needed for CONFIG
// REWRITE, with which sentinels persist a changed role.
func (s *Server) prepare(base *servertest.Server, config []byte) error {
	if s.opts.TLS {
		var err error
		if s.tls, err = servertest.ClientTLS(); err != nil {
			return err
		}
		if err := base.WriteCerts(); err != nil {
			return err
		}
	}
	return os.WriteFile(configPath(base), config, 0o600)
}

func configPath(base *servertest.Server) string { return filepath.Join(base.Dir(), "redis.conf") }

func (s *Server) args(base *servertest.Server) []string {
	port := strconv.Itoa(base.Port())
	args := []string{configPath(base)}
	if s.role == sentinel {
		args = append(args, "--sentinel")
	}
	args = append(args,
		"--bind", "127.0.0.1",
		"--protected-mode", "no",
		"--dir", base.Dir(),
	)
	if s.opts.TLS {
		args = append(args, "--port", "0", "--tls-port", port, "--tls-ca-cert-file", base.CAFile(),
			"--tls-cert-file", base.CertFile(), "--tls-key-file", base.KeyFile(), "--tls-auth-clients", "no",
			"--tls-replication", "yes")
	} else {
		args = append(args, "--port", port)
	}
	if s.role == sentinel {
		return append(args, s.opts.Args...)
	}
	args = append(args,
		"--save", "",
		// Replicas should be in sync at once, not after the batching delay.
		"--repl-diskless-sync-delay", "0",
		"--repl-ping-replica-period", "1",
	)
	if s.opts.Persistence == AOF {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always",
			// A background rewrite would outlive a killed server.
			"--auto-aof-rewrite-percentage", "0")
	} else {
		args = append(args, "--appendonly", "no")
	}
	if s.opts.Password != "" {
		args = append(args, "--requirepass", s.opts.Password, "--masterauth", s.opts.Password)
	}
	if s.role == clusterNode {
		args = append(args,
			"--cluster-enabled", "yes",
			"--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "1000",
			"--cluster-require-full-coverage", "no",
			"--cluster-announce-ip", "127.0.0.1",
			// A replica may stand for election however old its data is.
			"--cluster-replica-validity-factor", "0",
		)
		if s.opts.TLS {
			args = append(args, "--tls-cluster", "yes")
		}
	}
	if len(User) > 0 {
		args = append(append(args, "--user"), User...)
	}
	return append(args, s.opts.Args...)
}

// probe returns nil if the process pid answers on the server's port. The pid check detects another
// process on that port.
func (s *Server) probe(ctx context.Context, base *servertest.Server, pid int, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var conn net.Conn
	var err error
	if s.opts.TLS {
		conn, err = (&tls.Dialer{Config: s.TLSConfig()}).DialContext(ctx, "tcp", base.Addr())
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", base.Addr())
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	in := bufio.NewReader(conn)
	ask := func(args ...string) (string, error) {
		if _, err := conn.Write(encode(args...)); err != nil {
			return "", err
		}
		line, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "$") {
			return strings.TrimSpace(line), err
		}
		n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
		if err != nil || n < 0 {
			return "", fmt.Errorf("unexpected reply %q", line)
		}
		body := make([]byte, n+2)
		_, err = io.ReadFull(in, body)
		return string(body), err
	}
	if s.opts.Password != "" {
		if reply, err := ask("AUTH", s.opts.Password); err != nil || reply != "+OK" {
			return fmt.Errorf("AUTH answered %q: %w", reply, orMismatch(err))
		}
	}
	reply, err := ask("PING")
	if err == nil && strings.HasPrefix(reply, "-NOAUTH") {
		return nil // the default user is locked through Args: the server is up
	}
	if err != nil || reply != "+PONG" {
		return fmt.Errorf("PING answered %q: %w", reply, orMismatch(err))
	}
	info, err := ask("INFO", "server")
	if err == nil && strings.HasPrefix(info, "-ERR unknown command") {
		return nil // the command is renamed through Args: the server is up
	}
	if err != nil || !strings.Contains(info, fmt.Sprintf("\r\nprocess_id:%d\r\n", pid)) {
		return fmt.Errorf("port %d answers, but not from process %d: %w", base.Port(), pid, orMismatch(err))
	}
	return nil
}

func orMismatch(err error) error {
	if err != nil {
		return err
	}
	return errors.New("unexpected reply")
}

// encode returns a command in wire format.
func encode(args ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return []byte(b.String())
}

// URL returns the server's address as a redis:// URL, or rediss:// with TLS.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.opts.TLS {
		u.Scheme = "rediss"
	}
	if s.opts.Password != "" {
		u.User = url.UserPassword("", s.opts.Password)
	}
	return u.String()
}

// TLSConfig returns a client configuration that trusts the server's
// certificate, or nil for a server without TLS.
func (s *Server) TLSConfig() *tls.Config { return s.tls.Clone() }

// Restart starts a killed or stopped server again, on the same port and in the same folder, and
// waits until it answers. It has the data that its Persistence kept.
func (s *Server) Restart() error {
	if s.opts.Persistence == None {
		return s.RestartEmpty() // a replica keeps the snapshot it syncs from
	}
	return s.Server.Restart()
}

// RestartEmpty is Restart after removing the data files. A cluster node keeps its identity and its
// slots.
func (s *Server) RestartEmpty() error {
	return s.Server.Restart(func(dir string) error {
		for _, name := range []string{"dump.rdb", "appendonly.aof", "appendonlydir"} {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Save writes a snapshot and returns once it is on disk.
func (s *Server) Save() error {
	if s.opts.Persistence == None {
		return errors.New("redistest: save: the server has no persistence")
	}
	if err := s.Client().Save(context.Background()).Err(); err != nil {
		return fmt.Errorf("redistest: save: %w", err)
	}
	return nil
}

// Client returns the test's client for the server, always the same one. Close closes it. It gives
// up early: a call on a paused server fails after two seconds.
func (s *Server) Client() *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		s.client = redis.NewClient(&redis.Options{
			Addr:                  s.Addr(),
			Password:              s.opts.Password,
			TLSConfig:             s.TLSConfig(),
			DialTimeout:           time.Second,
			ReadTimeout:           2 * time.Second,
			WriteTimeout:          2 * time.Second,
			ContextTimeoutEnabled: true,
			MaxRetries:            1,
			DialerRetries:         1,
			// After this many failed dials, the pool would refuse calls for up to a second more,
			// although the server is back.
			PoolSize: 1000,
			MaintNotificationsConfig: &maintnotifications.Config{
				Mode: maintnotifications.ModeDisabled,
			},
		})
		if s.closed {
			_ = s.client.Close()
		}
	}
	return s.client
}

// Close stops the server, paused or not, and removes its folder. It may be called repeatedly.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed && s.client != nil {
		_ = s.client.Close()
	}
	s.closed = true
	s.mu.Unlock()
	s.Server.Close()
}
