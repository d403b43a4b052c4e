//go:build unix && !linux

package servertest

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent does nothing, because there is no parent-death signal. A test binary that dies
// without its cleanups leaves its servers running.
func dieWithParent(*syscall.SysProcAttr) {}

// threadStates returns the state of the process as a letter (T is stopped, Z is dead), or nothing
// if there is no such process.
func threadStates(pid int) string {
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if state := strings.TrimSpace(string(out)); state != "" {
		return state[:1]
	}
	return ""
}

// children returns the children of the given processes.
func children(of []int) ([]*os.Process, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=").Output()
	if err != nil {
		return nil, err
	}
	var found []*os.Process
	for line := range strings.Lines(string(out)) {
		pair := strings.Fields(line)
		if len(pair) != 2 {
			continue
		}
		if parent, _ := strconv.Atoi(pair[1]); !slices.Contains(of, parent) {
			continue
		}
		pid, err := strconv.Atoi(pair[0])
		if err != nil {
			return nil, err
		}
		child, err := os.FindProcess(pid)
		if err != nil {
			return nil, err
		}
		found = append(found, child)
	}
	return found, nil
}
