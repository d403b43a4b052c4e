//go:build linux && amd64

package main

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
)

// A process is this program once more, in another role, or another build of it. It dies with us.
type process struct {
	spec  Spec
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}
	err   error // how it ended; read it after done
}

// spawn starts a process: of the program at that path, or of this one if it is "".
func spawn(program string, spec Spec) (*process, error) {
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
	p := &process{spec: spec, cmd: exec.Command(program), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), specEnv+"="+string(text), "GOMAXPROCS=2")
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
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// errors is where what it prints goes.
func (p *process) errors() string { return filepath.Join(p.spec.Dir, p.spec.Name+".err") }

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may have ended

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// tell sends a command.
func (p *process) tell(format string, args ...any) { fmt.Fprintf(p.stdin, format+"\n", args...) }

// end tells it to stop in good order, and returns an error if it does not, or not well.
func (p *process) end(within time.Duration) error {
	p.tell("drain")
	select {
	case <-p.done:
		return p.failure()
	case <-time.After(within):
		p.signal(syscall.SIGQUIT) // it prints where its goroutines hang
		select {
		case <-p.done:
		case <-time.After(5 * time.Second):
			p.kill()
		}
		return fmt.Errorf("%s did not stop within %v", p.spec.Name, within)
	}
}

// failure is why a process ended that was not killed.
func (p *process) failure() error {
	if p.err == nil {
		return nil
	}
	text, _ := os.ReadFile(p.errors())
	return fmt.Errorf("%s: %w: %s", p.spec.Name, p.err, text[:min(len(text), 4000)])
}
