package servertest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the thread that started it ends, however the
// test binary dies. spawn keeps that thread alive.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// threadStates returns the state of each thread of the process as a letter (T is stopped, Z is
// dead), or nothing if there is no such process.
func threadStates(pid int) string {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	var states []byte
	for _, path := range threads {
		if stat := readStat(path); len(stat) > 0 {
			states = append(states, stat[0][0])
		}
	}
	return string(states)
}

// children returns the children of the given processes. A child that ends meanwhile may hide
// another one. If all are stopped, none is missed.
func children(of []int) ([]*os.Process, error) {
	var found []*os.Process
	for _, pid := range of {
		lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
		if len(lists) == 0 && threadStates(pid) != "" {
			return anyChildren(of) // the kernel has no such list
		}
		for _, path := range lists {
			text, _ := os.ReadFile(path)
			for _, field := range bytes.Fields(text) {
				child, err := strconv.Atoi(string(field))
				if err != nil {
					return nil, err
				}
				one, err := os.FindProcess(child)
				if err != nil {
					return nil, err
				}
				found = append(found, one)
			}
		}
	}
	return found, nil
}

// anyChildren is children by reading all processes, which takes tens of times as long.
func anyChildren(of []int) ([]*os.Process, error) {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var found []*os.Process
	for _, path := range all {
		stat := readStat(path)
		if len(stat) < 2 {
			continue // it has ended
		}
		if parent, _ := strconv.Atoi(string(stat[1])); !slices.Contains(of, parent) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
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

// readStat returns the fields of a stat file, beginning with the state. The name before it is in
// parentheses, and may contain anything.
func readStat(path string) [][]byte {
	text, _ := os.ReadFile(path)
	return bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
}
