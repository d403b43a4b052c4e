//go:build linux

package nemesis

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// SpecEnv is the environment variable with the spec of a process started by Spawn, as JSON.
const SpecEnv = "TICKSLOT_TORTURE_SPEC"

// A Process is another process of this program in another role, or of another build of it. It dies
// with this process.
type Process struct {
	Name  string
	Done  chan struct{} // closed when it has ended
	dir   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	err   error // how it ended; readable after Done
}

// Spawn starts a process of the program at that path, or of this one if the path is "". Its output
// goes to a file in dir.
func Spawn(program, dir, name string, spec any) (*Process, error) {
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program = self
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	p := &Process{Name: name, Done: make(chan struct{}), dir: dir, cmd: exec.Command(program)}
	p.cmd.Env = append(os.Environ(), SpecEnv+"="+string(text), "GOMAXPROCS=2")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	errs, err := os.OpenFile(p.errors(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer errs.Close()
	p.cmd.Stdout, p.cmd.Stderr = errs, errs
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() {
		// The parent-death signal is sent when this thread ends, not when the process does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.Done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// errors returns the path of its output.
func (p *Process) errors() string { return filepath.Join(p.dir, p.Name+".err") }

// Signal sends a signal, unless the process has ended.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill kills the process, and returns when it is gone.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.Done
}

// Tell sends a command.
func (p *Process) Tell(format string, args ...any) { fmt.Fprintf(p.stdin, format+"\n", args...) }

// End tells the process to stop cleanly, and returns an error if it fails or takes too long.
func (p *Process) End(within time.Duration) error {
	p.Tell("drain")
	select {
	case <-p.Done:
		return p.Failure()
	case <-time.After(within):
		p.Signal(syscall.SIGQUIT) // makes it print where its goroutines hang
		select {
		case <-p.Done:
		case <-time.After(5 * time.Second):
			p.Kill()
		}
		return fmt.Errorf("%s did not stop within %v", p.Name, within)
	}
}

// Failure returns why a process ended without being killed.
func (p *Process) Failure() error {
	if p.err == nil {
		return nil
	}
	text, _ := os.ReadFile(p.errors())
	return fmt.Errorf("%s: %w: %s", p.Name, p.err, text[:min(len(text), 4000)])
}

// Mono reads CLOCK_MONOTONIC, which all processes of a machine share, in nanoseconds. Go's own
// readings are relative to the start of a process.
func Mono() int64 {
	const clockMonotonic = 1
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic(errno)
	}
	return ts.Nano()
}
