package servertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// A process is one run of a program.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has been waited for
	err  error         // how it ended; readable after done
}

// spawn starts cmd on a goroutine that keeps its OS thread for as long as the child lives. The
// parent-death signal depends on the thread that forked, not on the process. Without the lock, the
// server would be killed whenever the runtime retires that thread.
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
		p.err = cmd.Wait()
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

// limit bounds the wait for a single server to start, stop, or freeze. It is long because initdb
// has taken half a minute on a busy machine.
const limit = 2 * time.Minute

// ends waits for the process to end, and returns false if that takes longer than limit.
func (p *process) ends(limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-p.done:
		return true
	case <-late.C:
		return false
	}
}

// kill ends the process and its descendants, even paused ones, and waits until they are gone. None
// of them sees another one end.
func (p *process) kill() error {
	all, err := p.freeze()
	if errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	for _, one := range all {
		// The only possible error is that it has already ended.
		_ = one.Kill()
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return errors.Join(err, testkit.Poll(limit, "kill", func(context.Context) error {
		return without(all, "ZX", "still running")
	}))
}

// freeze stops the process and its descendants (SIGSTOP) and returns them, parents before children.
// It lists the children of all stopped processes until there are no new ones. So none is missed,
// and none can end and free its pid for another process.
func (p *process) freeze() (all []*os.Process, err error) {
	known := map[int]bool{}
	for others := []*os.Process{p.cmd.Process}; len(others) > 0; {
		for _, one := range others {
			known[one.Pid] = true
			err := pause(one)
			if errors.Is(err, os.ErrProcessDone) {
				continue
			}
			if err != nil {
				return all, err
			}
			all = append(all, one)
		}
		err := testkit.Poll(limit, "pause", func(context.Context) error {
			return without(all, "TtZX", "not stopped")
		})
		if err != nil {
			return all, err
		}
		var pids []int
		for _, one := range all {
			pids = append(pids, one.Pid)
		}
		found, err := children(pids)
		if err != nil {
			return all, err
		}
		others = slices.DeleteFunc(found, func(one *os.Process) bool { return known[one.Pid] })
	}
	return all, nil
}

// thaw resumes frozen processes, the youngest first.
func thaw(all []*os.Process) error {
	var errs []error
	for _, one := range slices.Backward(all) {
		if err := resume(one); !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// without returns an error while a thread of the processes is in a state that is not in states.
func without(processes []*os.Process, states, what string) error {
	for _, one := range processes {
		if now := threadStates(one.Pid); strings.Trim(now, states) != "" {
			return fmt.Errorf("process %d is %s: %s", one.Pid, what, now)
		}
	}
	return nil
}
