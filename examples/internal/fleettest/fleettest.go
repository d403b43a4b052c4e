//go:build unix

// Package fleettest runs an example as a fleet of several processes. It ends them like an
// orchestrator, and reads their output in the format of slog.TextHandler.
package fleettest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// beMain is the environment variable that makes the test binary run the program.
const beMain = "TICKSLOT_EXAMPLE"

// patience bounds every wait. It is long because test machines are busy.
const patience = 60 * time.Second

// Main must be called first in TestMain. It runs the program if Start has started the test binary,
// and otherwise returns.
func Main(main func()) {
	if os.Getenv(beMain) != "" {
		main()
		os.Exit(0)
	}
}

// A Fleet is several processes of one program. It is not safe for concurrent use.
type Fleet struct {
	copies []*exec.Cmd
	killed map[int]time.Time // the copies killed by Kill, and when
	lines  chan Line
	read   []Line
}

// A Line is a line printed by a process.
type Line struct {
	Copy   int // index of the process
	At     time.Time
	Msg    string
	Fields map[string]string
}

// Command returns a command for the program, not yet started.
func Command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), beMain+"=1")
	return cmd
}

// Start starts n copies of the program. They are killed when the test ends.
func Start(t *testing.T, n int, env []string, args ...string) *Fleet {
	t.Helper()
	f := &Fleet{killed: map[int]time.Time{}, lines: make(chan Line, 1000)}
	var reading sync.WaitGroup
	for i := range n {
		cmd := Command(t, args...)
		cmd.Env = append(cmd.Env, env...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		f.copies = append(f.copies, cmd)
		reading.Go(func() { f.readFrom(i, out) })
	}
	go func() { reading.Wait(); close(f.lines) }()
	return f
}

func (f *Fleet) readFrom(i int, out io.Reader) {
	for in := bufio.NewScanner(out); in.Scan(); {
		f.lines <- parse(i, in.Text())
	}
}

var field = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*"|\S*)`)

// parse parses a line. If the line is not from a slog.TextHandler, it keeps the text.
func parse(i int, text string) Line {
	l := Line{Copy: i, Msg: text, Fields: map[string]string{}}
	for _, m := range field.FindAllStringSubmatch(text, -1) {
		value := m[2]
		if plain, err := strconv.Unquote(value); err == nil {
			value = plain
		}
		switch m[1] {
		case "time":
			var err error
			if l.At, err = time.Parse(time.RFC3339Nano, value); err != nil {
				return Line{Copy: i, Msg: text}
			}
		case "msg":
			l.Msg = value
		default:
			l.Fields[m[1]] = value
		}
	}
	return l
}

// Await reads until n more lines have this message, and returns the last of them.
func (f *Fleet) Await(t *testing.T, msg string, n int) Line {
	t.Helper()
	return f.AwaitLine(t, msg, func(l Line) bool {
		if l.Msg == msg {
			n--
		}
		return n == 0
	})
}

// AwaitLine reads until match accepts a line, and returns the line.
func (f *Fleet) AwaitLine(t *testing.T, what string, match func(Line) bool) Line {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case l, more := <-f.lines:
			if !more {
				t.Fatalf("all have ended before %q:\n%s", what, f)
			}
			f.read = append(f.read, l)
			if match(l) {
				return l
			}
		case <-deadline:
			t.Fatalf("not within %v: %q:\n%s", patience, what, f)
		}
	}
}

// Kill kills one process, as kill -9 does.
func (f *Fleet) Kill(t *testing.T, copy int) {
	t.Helper()
	if err := f.copies[copy].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.killed[copy] = time.Now()
}

// Terminate sends SIGTERM to all processes.
func (f *Fleet) Terminate(t *testing.T) {
	t.Helper()
	for i, cmd := range f.copies {
		if !f.killed[i].IsZero() {
			continue
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
}

// End waits until all processes have ended, and reads their remaining output. All except killed
// processes must exit with status 0.
func (f *Fleet) End(t *testing.T) {
	t.Helper()
	kill := time.AfterFunc(patience, func() {
		for _, cmd := range f.copies {
			_ = cmd.Process.Kill()
		}
	})
	defer kill.Stop()
	for l := range f.lines {
		f.read = append(f.read, l)
	}
	for i, cmd := range f.copies {
		if err := cmd.Wait(); err != nil && f.killed[i].IsZero() {
			t.Errorf("copy %d: %v:\n%s", i, err, f)
		}
	}
}

// String returns the output so far.
func (f *Fleet) String() string {
	var all strings.Builder
	for _, l := range f.read {
		all.WriteString(l.At.Format("05.000") + " copy " + strconv.Itoa(l.Copy) + ": " + l.Msg + "\n")
	}
	return all.String()
}

// A Run is a run of a timer, as printed by its handler.
type Run struct {
	Copy       int
	Tick, Slot string
	Fence      int64
	Begin, End time.Time
}

// Runs returns a timer's runs in order of their start, from the lines "<timer> starts" and "<timer>
// ends", which have the fields slot, fence and, if the test needs it, tick. All runs must have
// ended; killing a process ends its runs. Call it after End.
func (f *Fleet) Runs(t *testing.T, timer string) (runs []Run) {
	t.Helper()
	type key struct{ slot, fence string }
	going := map[key]Run{}
	for _, l := range f.read {
		k := key{l.Fields["slot"], l.Fields["fence"]}
		switch l.Msg {
		case timer + " starts":
			fence, err := strconv.ParseInt(k.fence, 10, 64)
			if err != nil || fence == 0 {
				t.Errorf("a run without a fence: %+v", l)
			}
			going[k] = Run{Copy: l.Copy, Tick: l.Fields["tick"], Slot: k.slot, Fence: fence, Begin: l.At}
		case timer + " ends":
			run := going[k]
			delete(going, k)
			run.End = l.At
			runs = append(runs, run)
		}
	}
	for _, run := range going {
		if run.End = f.killed[run.Copy]; run.End.IsZero() {
			t.Errorf("it has not ended: %+v", run)
		}
		runs = append(runs, run)
	}
	slices.SortFunc(runs, func(a, b Run) int { return a.Begin.Compare(b.Begin) })
	return runs
}

// MostAtOnce returns the largest number of concurrent runs. If a run starts in the millisecond in
// which another ends, they do not overlap.
func MostAtOnce(runs []Run) (most int) {
	for i, run := range runs {
		now := 1
		for _, before := range runs[:i] {
			if before.End.After(run.Begin) {
				now++
			}
		}
		most = max(most, now)
	}
	return most
}

// FencesGrow fails the test if a run has a lower fence than an earlier one in its slot.
func FencesGrow(t *testing.T, runs []Run) {
	t.Helper()
	last := map[string]int64{}
	for _, run := range runs {
		if run.Fence <= last[run.Slot] {
			t.Errorf("slot %s: fence %d after %d", run.Slot, run.Fence, last[run.Slot])
		}
		last[run.Slot] = run.Fence
	}
}
