//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// beMain makes the test binary the program.
const beMain = "TICKSLOT_EXAMPLE_SQLITE"

func TestMain(m *testing.M) {
	if os.Getenv(beMain) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), beMain+"=1")
	return cmd
}

// An unusable path is an error that says so, and exit status 1.
func TestBadPath(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"":                                     "-db FILE",
		filepath.Join(t.TempDir(), "no", "db"): "to create files in its directory",
		t.TempDir():                            "to create files in its directory",
		text:                                   "no SQLite database",
	} {
		out, err := program(t, "-db", path).CombinedOutput()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), want) || !strings.Contains(string(out), path) {
			t.Errorf("-db %q: %v, must be exit status 1: %s", path, err, out)
		}
	}
}

// A stretch is a run as its process reported it.
type stretch struct {
	pid, slot  int
	fence      int64
	begin, end time.Time
}

// A line is a line of a process' output.
type line struct {
	stretch
	what string
	at   time.Time
}

// Three copies never run more than two at once, and the slot of one that is killed comes back.
//
// Fails when each copy has a database of its own (three at once), and with MaxConcurrency: 3 (no
// copy waits for the slot).
func TestThreeCopies(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "with space, ? and %41.db")
	lines := make(chan line, 1000)
	var copies []*exec.Cmd
	for range 3 {
		cmd := program(t, "-db", file, "-every", "250ms", "-work", "600ms", "-ttl", "3s")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		copies = append(copies, cmd)
		go func() {
			for in := bufio.NewScanner(out); in.Scan(); {
				var l line
				var at string
				if _, err := fmt.Sscanf(in.Text(), "%s pid %d %s slot %d fence %d", &at, &l.pid, &l.what, &l.slot,
					&l.fence); err != nil {
					continue
				}
				l.at, _ = time.Parse("2006-01-02T15:04:05.000000", at)
				lines <- l
			}
		}()
	}

	type key struct {
		pid, slot int
		fence     int64
	}
	runs := map[key]*stretch{}
	read := func(what string, enough func(line) bool) {
		t.Helper()
		for deadline := time.After(60 * time.Second); ; {
			select {
			case l := <-lines:
				k := key{l.pid, l.slot, l.fence}
				switch l.what {
				case "starts":
					l.begin, l.end = l.at, l.at
					runs[k] = &l.stretch
				case "ends":
					runs[k].end = l.at
				default:
					t.Errorf("unexpected: %+v", l)
				}
				if enough(l) {
					return
				}
			case <-deadline:
				t.Fatalf("not within a minute: %s", what)
			}
		}
	}
	ended := map[int]bool{}
	read("each copy has had a run", func(l line) bool {
		ended[l.pid] = ended[l.pid] || l.what == "ends"
		return len(ended) == 3 && ended[copies[0].Process.Pid]
	})
	slot := -1
	read("the first copy is running", func(l line) bool {
		slot = l.slot
		return l.what == "starts" && l.pid == copies[0].Process.Pid
	})
	if err := copies[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	read("the slot is taken by another copy", func(l line) bool {
		return l.what == "starts" && l.slot == slot && l.pid != copies[0].Process.Pid
	})
	n := 0
	read("both slots are in use", func(l line) bool { n++; return n == 20 })
	for _, c := range copies[1:] {
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	all := make([]stretch, 0, len(runs))
	for _, r := range runs {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b stretch) int { return a.begin.Compare(b.begin) })
	for i, r := range all {
		at := 1
		for _, before := range all[:i] {
			if before.end.After(r.begin) {
				at++
			}
			if before.slot == r.slot && before.fence >= r.fence {
				t.Errorf("slot %d: fence %d after %d", r.slot, r.fence, before.fence)
			}
		}
		if at > 2 {
			t.Errorf("%d at once: %+v", at, all)
		}
	}
	for _, c := range copies[1:] {
		if err := c.Wait(); err != nil {
			t.Errorf("after Ctrl-C: %v", err)
		}
	}
}
