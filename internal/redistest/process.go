package redistest

import (
	"os/exec"
	"runtime"
)

// process is one run of a server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has been waited for
}

// spawn starts cmd from a goroutine that keeps its OS thread for as long as the
// child lives. The parent-death signal follows the thread that forked, not the
// process: without the lock, the server would be killed whenever the runtime
// retires that thread.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// How the child ended is in its log; a test only cares that it did.
		_ = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process, also a paused one, and waits until it is gone.
func (p *process) kill() {
	// The only error is that it has ended already.
	_ = p.cmd.Process.Kill()
	<-p.done
}
