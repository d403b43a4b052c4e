//go:build unix

package timertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// A child is the other process as seen by this one.
type child struct {
	book
	t      *testing.T
	cmd    *exec.Cmd
	in     io.Writer
	over   chan struct{} // closed when its output has ended
	stderr bytes.Buffer
}

func newChild(t *testing.T, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{t: t, cmd: cmd, over: make(chan struct{})}
	cmd.Stderr = &c.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.over)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = event{What: failed, At: time.Now(), Cause: fmt.Sprintf("it said %q", lines.Text())}
			}
			c.add(e)
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // works even if it is paused
		<-c.over
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the child's stderr:\n%s", c.stderr.String())
		}
	})
	return c
}

func (c *child) tells(order string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, order); err != nil {
		c.t.Fatalf("the child cannot be told to %s: %v", order, err)
	}
}

// asks returns the child's report about itself.
func (c *child) asks() event {
	c.t.Helper()
	before := c.count(status, "")
	c.tells("status")
	testkit.Eventually(c.t, patience, "the child answers", func() bool { return c.count(status, "") > before })
	return c.last(status, "")
}

// failures returns the number of failed store calls at its last report.
func (c *child) failures() int {
	if e := c.last(status, ""); e.Said != nil {
		return e.Said.Failed
	}
	return math.MinInt
}

// signal sends a signal. After SIGSTOP, it returns when the child is paused.
func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
	if s != syscall.SIGSTOP {
		return
	}
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(c.cmd.Process.Pid, &ws, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !ws.Stopped() {
			c.t.Fatalf("the child has ended, or cannot be stopped: %v, %v", ws, err)
		}
		return
	}
}

// ends stops the child cleanly.
func (c *child) ends() {
	c.t.Helper()
	c.tells("stop")
	select {
	case <-c.over:
	case <-time.After(patience):
		c.t.Fatal("Run has not returned in the child")
	}
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("the child: %v", err)
	}
}
