package servertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// A Program describes how to run a server. Its functions get the Server before Start has returned
// it, to use its folder, port and commands.
type Program struct {
	// Name is the name in errors and in the name of the folder.
	Name string
	// Prepare fills the new folder. Default: the folder stays empty.
	Prepare func(*Server) error
	// Command returns the server's command, created with Server.Command. It is called for each run,
	// and may first write the port to a file.
	Command func(*Server) (*exec.Cmd, error)
	// Ready returns an error until the process with this pid is serving. log is its output so far.
	Ready func(ctx context.Context, s *Server, pid int, log string) error
	// Remove deletes what a stopped server left outside its folder. Default: nothing.
	Remove func(*Server)
	// StopSignal makes it shut down cleanly. Default: SIGTERM.
	StopSignal syscall.Signal
	// SecondPort is the offset of a second port that it listens on. Default: none.
	SecondPort int
	// RefusesRoot makes it run as the user "nobody" if the test runs as root.
	RefusesRoot bool
}

// A Server is one server process with its children. It can be killed, paused, and restarted in
// place. Its methods are safe for concurrent use.
type Server struct {
	program Program
	account *account // nil: the current user
	dir     string
	port    int // constant after Start

	mu      sync.Mutex
	proc    *process      // nil while there is no process
	paused  []*os.Process // processes stopped by Pause
	closed  bool
	lastLog string // end of the log, once the folder is gone
}

// Start runs a server and waits until it is ready. Close stops it.
func Start(program Program) (*Server, error) {
	s := &Server{program: program}
	err := s.start()
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", program.Name, err)
	}
	return s, nil
}

// errPort means that a server did not start because its port was in use.
var errPort = errors.New("port in use")

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeDir(); err != nil {
		return err
	}
	if s.program.Prepare != nil {
		if err := s.program.Prepare(s); err != nil {
			return err
		}
	}
	var err error
	// Another process can take a port between the check and the bind.
	for range 10 {
		s.givePort()
		if s.port, err = takePort(s.program.SecondPort); err != nil {
			return err
		}
		if err = s.run(); !errors.Is(err, errPort) {
			break
		}
	}
	return err
}

// givePort releases the server's port, if it has one.
func (s *Server) givePort() {
	if s.port != 0 {
		givePort(s.port, s.program.SecondPort)
	}
	s.port = 0
}

func (s *Server) makeDir() error {
	temp := ""
	var err error
	if s.program.RefusesRoot && os.Geteuid() == 0 {
		temp = everybodysTemp()
		if s.account, err = nobody(); err != nil {
			return err
		}
	}
	if s.dir, err = os.MkdirTemp(temp, "tickslot-"+s.program.Name+"-"); err != nil {
		return err
	}
	return s.account.own(s.dir)
}

// Command returns a command that runs in the server's folder as its user, and dies with this
// process.
func (s *Server) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = s.account.attr()
	return cmd
}

// Run runs a helper program of the server, and returns its standard output. An error also contains
// that and standard error.
func (s *Server) Run(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 10 * time.Second // for descendants that keep the pipes open
	p, err := spawn(cmd)
	if err == nil {
		if p.ends(limit) {
			err = p.err
		} else {
			err = errors.Join(fmt.Errorf("still running after %v, killed", limit), p.kill())
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", filepath.Base(cmd.Path), err, &out, &errs)
	}
	return out.String(), nil
}

// run starts the process and waits until it is ready. The caller holds s.mu.
func (s *Server) run() error {
	out, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	// The child has its own file descriptor.
	defer out.Close()
	if err := s.account.own(s.logPath()); err != nil {
		return err
	}
	from, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd, err := s.program.Command(s)
	if err != nil {
		return err
	}
	// A file, not a buffer, because Wait would otherwise wait for children of the server that still
	// hold the pipe.
	cmd.Stdout, cmd.Stderr = out, out
	proc, err := spawn(cmd)
	if err != nil {
		return err
	}
	err = testkit.Poll(limit, "start", func(ctx context.Context) error {
		err := s.program.Ready(ctx, s, cmd.Process.Pid, s.logTail(from))
		if err != nil && proc.exited() {
			return nil // checked below
		}
		return err
	})
	if err == nil && !proc.exited() {
		s.proc = proc
		return nil
	}
	if err == nil {
		err = errors.New("it exited")
	}
	err = errors.Join(err, proc.kill())
	text := s.logTail(from)
	if strings.Contains(text, "already in use") {
		err = errPort
	}
	return fmt.Errorf("start on port %d: %w\n%s", s.port, err, text)
}

// Addr returns the server's host:port. Restarts do not change it.
func (s *Server) Addr() string { return hostPort(s.port) }

// Port returns the port of Addr.
func (s *Server) Port() int { return s.port }

// Dir returns the server's folder, which Close removes.
func (s *Server) Dir() string { return s.dir }

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

func (s *Server) notRunning() error { return fmt.Errorf("%s is not running", s.program.Name) }

// Kill ends the server and its children at once, like a crash of its machine, and waits until they
// are gone. They may be paused.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return s.notRunning()
	}
	return s.kill()
}

// kill ends the process and its children. The caller holds s.mu.
func (s *Server) kill() error {
	p := s.proc
	s.proc, s.paused = nil, nil
	return p.kill()
}

// Stop shuts the server down cleanly, and waits until it has ended.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return s.notRunning()
	}
	// Paused processes would not handle the signal.
	err := thaw(s.paused)
	s.paused = nil
	if err == nil {
		err = signal(s.proc.cmd.Process, cmp.Or(s.program.StopSignal, syscall.SIGTERM))
	}
	if err == nil && !s.proc.ends(limit) {
		err = fmt.Errorf("still running after %v, killed", limit)
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", s.program.Name, errors.Join(err, s.kill()))
	}
	s.proc = nil
	return nil
}

// Pause freezes the server and its children: connections stay up, and nothing is answered. It fails
// with errors.ErrUnsupported if the system cannot do that.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return s.notRunning()
	}
	all, err := s.proc.freeze()
	s.paused = all
	return err
}

// Resume ends a Pause. The server then executes what clients sent meanwhile.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return s.notRunning()
	}
	err := thaw(s.paused)
	s.paused = nil
	return err
}

// Restart starts a killed or stopped server again on the same port and in the same folder, and
// waits until it is ready. It first calls each prepare with the folder.
func (s *Server) Restart(prepare ...func(dir string) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("restart %s: it is closed", s.program.Name)
	}
	if s.running() {
		return fmt.Errorf("restart %s: it is still running", s.program.Name)
	}
	for _, do := range prepare {
		if err := do(s.dir); err != nil {
			return fmt.Errorf("restart %s: %w", s.program.Name, err)
		}
	}
	// The port must be the same, so wait until it is free.
	var fatal error
	err := testkit.Poll(limit, "restart "+s.program.Name, func(context.Context) error {
		err := s.run()
		if err != nil && !errors.Is(err, errPort) {
			fatal = fmt.Errorf("restart %s: %w", s.program.Name, err)
			return nil
		}
		return err
	})
	return errors.Join(err, fatal)
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "output.log") }

// Log returns the last output of the server, even after Close.
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

// Close stops the server, paused or not, and removes its folder. It may be called repeatedly.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.proc != nil {
		// The freeze may fail because the process is gone.
		_ = s.kill()
	}
	if s.dir == "" {
		return
	}
	s.lastLog = s.logTail(0)
	if s.program.Remove != nil {
		s.program.Remove(s)
	}
	_ = os.RemoveAll(s.dir)
	givePort(s.port, s.program.SecondPort)
}
