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

// SpecEnv has what a process was started with that Spawn has started, as JSON.
const SpecEnv = "TICKSLOT_TORTURE_SPEC"

// A Process is this program once more, in another role, or another build of it. It dies with us.
type Process struct {
	Name  string
	Done  chan struct{} // closed when it has ended
	dir   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	err   error // how it ended; read it after Done
}

// Spawn starts a process: of the program at that path, or of this one if it is "". What it prints
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
		// The parent-death signal comes when this thread ends, not when the process does.
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

// errors is where what it prints goes.
func (p *Process) errors() string { return filepath.Join(p.dir, p.Name+".err") }

// Signal sends it a signal, unless it has ended.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill kills it, and returns when it is gone.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.Done
}

// Tell sends a command.
func (p *Process) Tell(format string, args ...any) { fmt.Fprintf(p.stdin, format+"\n", args...) }

// End tells it to stop in good order, and returns an error if it does not, or not well.
func (p *Process) End(within time.Duration) error {
	p.Tell("drain")
	select {
	case <-p.Done:
		return p.Failure()
	case <-time.After(within):
		p.Signal(syscall.SIGQUIT) // it prints where its goroutines hang
		select {
		case <-p.Done:
		case <-time.After(5 * time.Second):
			p.Kill()
		}
		return fmt.Errorf("%s did not stop within %v", p.Name, within)
	}
}

// Failure is why a process ended that was not killed.
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
