package redistest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
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
)

// binary is the program that every server is a run of.
const binary = "redis-server"

// Persistence says what of a server's data outlives its process.
type Persistence int

const (
	// None keeps nothing: a restarted server is empty.
	None Persistence = iota
	// RDB keeps what the last call of Save wrote, and writes nothing by itself.
	RDB
	// AOF keeps every acknowledged write: the append-only file is synced before
	// each reply.
	AOF
)

// Options configure a server. The zero value is a plain server without
// persistence.
type Options struct {
	Persistence Persistence
	// Args are further arguments of redis-server; they win over this package's.
	Args []string
	// Password is the default user's password. Client and URL know it.
	Password string
	// TLS makes the server speak TLS only, with a certificate of a CA of its
	// own; see Server.TLSConfig.
	TLS bool
}

// role is how the process of a Server is used.
type role int

const (
	plain role = iota
	clusterNode
	sentinel
)

// Server is one redis-server process, which can be killed, paused, and started
// again in place. Its methods are safe for concurrent use.
type Server struct {
	opts Options
	role role
	dir  string
	port int // constant after start
	pool *x509.CertPool

	mu      sync.Mutex
	proc    *process // nil while there is no process
	client  *redis.Client
	closed  bool
	lastLog string // the log's tail, once the folder is gone
}

// Start runs a server and waits until it answers. Close ends it.
func Start(opts Options) (*Server, error) {
	return start(opts, plain, nil)
}

// errPort says that a server did not come up because its port was in use.
var errPort = errors.New("port in use")

// start runs a server in the given role. A sentinel's config is the text of its
// configuration file.
func start(opts Options, as role, config []byte) (*Server, error) {
	var err error
	// Another process can take a port between the look and the bind.
	for range 10 {
		var s *Server
		if s, err = startOnce(opts, as, config); err == nil {
			return s, nil
		}
		if !errors.Is(err, errPort) {
			break
		}
	}
	return nil, err
}

func startOnce(opts Options, as role, config []byte) (*Server, error) {
	port, err := takePort(as == clusterNode)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		givePort(port, as == clusterNode)
		return nil, err
	}
	s := &Server{opts: opts, role: as, dir: dir, port: port}
	if err := s.prepare(config); err != nil {
		s.Close()
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s.mu.Lock()
	err = s.run()
	s.mu.Unlock()
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// prepare writes the files the server starts from. The configuration file is
// there for CONFIG REWRITE: sentinels persist a changed role through it.
func (s *Server) prepare(config []byte) error {
	if s.opts.TLS {
		pool, err := writeCerts(s.dir)
		if err != nil {
			return err
		}
		s.pool = pool
	}
	return os.WriteFile(s.configPath(), config, 0o600)
}

func (s *Server) configPath() string { return filepath.Join(s.dir, "redis.conf") }
func (s *Server) logPath() string    { return filepath.Join(s.dir, "output.log") }

func (s *Server) args() []string {
	port := strconv.Itoa(s.port)
	args := []string{s.configPath()}
	if s.role == sentinel {
		args = append(args, "--sentinel")
	}
	args = append(args,
		"--bind", "127.0.0.1",
		"--protected-mode", "no",
		"--dir", s.dir,
	)
	if s.opts.TLS {
		args = append(args, tlsArgs(s.dir, port)...)
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
			// A rewrite in the background would outlive a killed server.
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
			// Let a replica stand for election however old its data is.
			"--cluster-replica-validity-factor", "0",
		)
	}
	return append(args, s.opts.Args...)
}

// run starts the process and waits until it answers. The caller holds s.mu.
func (s *Server) run() error {
	out, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	// The child has its own descriptor.
	defer out.Close()
	from, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	cmd := exec.Command(binary, s.args()...)
	cmd.Dir = s.dir
	// A file, not a buffer: with a buffer, Wait would also wait for forks of
	// the server that still hold the pipe.
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttr()
	proc, err := spawn(cmd)
	if err != nil {
		return fmt.Errorf("redistest: start %s: %w", binary, err)
	}
	err = poll(startLimit, "start "+binary, func(ctx context.Context) error {
		err := s.probe(ctx, cmd.Process.Pid)
		if err != nil && proc.exited() {
			return nil // looked at below: no use in waiting on
		}
		return err
	})
	if err == nil && !proc.exited() {
		s.proc = proc
		return nil
	}
	proc.kill()
	text := s.logTail(from)
	if strings.Contains(text, "already in use") || strings.Contains(text, "Failed listening") {
		err = errPort
	} else if err == nil {
		err = errors.New("it exited")
	}
	return fmt.Errorf("redistest: start %s on port %d: %w\n%s", binary, s.port, err, text)
}

// probe reports whether the process pid answers on the server's port. Asking
// for the pid as well keeps a stranger on the port from passing for the server.
func (s *Server) probe(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var conn net.Conn
	var err error
	if s.opts.TLS {
		conn, err = (&tls.Dialer{Config: s.TLSConfig()}).DialContext(ctx, "tcp", s.Addr())
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
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
		return nil // locked through Args: it is up, and will not say more
	}
	if err != nil || reply != "+PONG" {
		return fmt.Errorf("PING answered %q: %w", reply, orMismatch(err))
	}
	info, err := ask("INFO", "server")
	if err != nil || !strings.Contains(info, fmt.Sprintf("\r\nprocess_id:%d\r\n", pid)) {
		return fmt.Errorf("port %d answers, but not from process %d: %w", s.port, pid, orMismatch(err))
	}
	return nil
}

func orMismatch(err error) error {
	if err != nil {
		return err
	}
	return errors.New("unexpected reply")
}

// encode returns a command as it goes over the wire.
func encode(args ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return []byte(b.String())
}

// Addr returns the server's host:port, which stays the same over restarts.
func (s *Server) Addr() string { return hostPort(s.port) }

// Port returns the port of Addr.
func (s *Server) Port() int { return s.port }

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
func (s *Server) TLSConfig() *tls.Config {
	if s.pool == nil {
		return nil
	}
	return clientTLS(s.pool)
}

// Pid returns the id of the server's process, or 0 while it is not running.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// running reports whether there is a live process. The caller holds s.mu.
func (s *Server) running() bool { return s.proc != nil && !s.proc.exited() }

var errNotRunning = errors.New("redistest: server is not running")

// Kill ends the server at once, as a crash would, and waits until it is gone.
// It may be paused.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return errNotRunning
	}
	s.proc.kill()
	s.proc = nil
	return nil
}

// Stop has the server shut down in good order, without a snapshot, and waits
// until it is gone.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return errNotRunning
	}
	p := s.proc
	s.proc = nil
	// A paused process would not see the request; a running one does not mind.
	_ = resumeProcess(p.cmd.Process)
	if err := stopProcess(p.cmd.Process); err != nil {
		p.kill()
		return fmt.Errorf("redistest: stop: %w", err)
	}
	late := time.NewTimer(startLimit)
	defer late.Stop()
	select {
	case <-p.done:
		return nil
	case <-late.C:
		p.kill()
		return fmt.Errorf("redistest: stop: still running after %v, killed", startLimit)
	}
}

// Pause freezes the process: its connections stay up, and nothing is answered.
// It fails with errors.ErrUnsupported where the system cannot do that.
func (s *Server) Pause() error { return s.signal(pauseProcess) }

// Resume ends a Pause. What clients sent in the meantime is executed then.
func (s *Server) Resume() error { return s.signal(resumeProcess) }

func (s *Server) signal(send func(*os.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return errNotRunning
	}
	return send(s.proc.cmd.Process)
}

// Restart starts a killed or stopped server again, on the same port and in the
// same folder, and waits until it answers: what its Persistence kept is back.
func (s *Server) Restart() error { return s.restart(s.opts.Persistence == None) }

// RestartEmpty is Restart with the data files removed first. A cluster node
// keeps its identity and its slots.
func (s *Server) RestartEmpty() error { return s.restart(true) }

func (s *Server) restart(empty bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("redistest: restart: server is closed")
	}
	if s.running() {
		return errors.New("redistest: restart: server is still running")
	}
	if empty {
		// None has files to remove too: a replica stores the snapshot it syncs
		// from.
		for _, name := range []string{"dump.rdb", "appendonly.aof", "appendonlydir"} {
			if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
				return fmt.Errorf("redistest: restart: %w", err)
			}
		}
	}
	// The port cannot be another one, so wait for whoever has it.
	var fatal error
	err := poll(startLimit, "restart", func(context.Context) error {
		err := s.run()
		if err != nil && !errors.Is(err, errPort) {
			fatal = err
			return nil
		}
		return err
	})
	return errors.Join(err, fatal)
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

// Client returns a client for the test's own look at the server, always the
// same one. Close closes it. It gives up early: a call on a paused server fails
// after two seconds.
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
			// After this many failed dials the pool would refuse for up to a
			// second more, although the server is back.
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

// Log returns the end of what the server has printed, also after Close.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.lastLog
	}
	return s.logTail(0)
}

// logTail returns the log from the given offset, at most its last 8 KiB.
func (s *Server) logTail(from int64) string {
	const most = 8 << 10
	f, err := os.Open(s.logPath())
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil {
		from = max(from, st.Size()-most)
	}
	text, _ := io.ReadAll(io.NewSectionReader(f, from, most))
	return string(text)
}

// Close ends the server, paused or not, and removes its folder. It can be
// called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.client != nil {
		_ = s.client.Close()
	}
	if s.proc != nil {
		s.proc.kill()
		s.proc = nil
	}
	s.lastLog = s.logTail(0)
	_ = os.RemoveAll(s.dir)
	givePort(s.port, s.role == clusterNode)
}
