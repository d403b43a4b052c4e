package commands_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/commands"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

// asProgram, set to 1, makes the test binary act as the program, which is faster than building it.
const asProgram = "TICKSLOT_TEST_AS_PROGRAM"

func runAsProgram() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	std := commands.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}
	os.Exit(commands.Run(ctx, os.Args[1:], std))
}

// A terminal is a tmux terminal in which the program runs.
type terminal struct {
	t      *testing.T
	socket string
}

// newTerminal runs the program in a terminal of the given size, which remains open when the program
// has ended.
func newTerminal(t *testing.T, width, height int, url, command string) *terminal {
	t.Helper()
	_, err := exec.LookPath("tmux")
	servertest.Require(t, err, "install tmux (apt-get install tmux, brew install tmux)")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "tmux") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t, filepath.Join(folder, "socket")}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", x.socket, "kill-server").Run() // the server may have ended
		_ = os.RemoveAll(folder)
	})
	script := fmt.Sprintf("%s %s; echo it has ended: $?; exec cat", program, command)
	start := exec.Command("tmux", "-S", x.socket, "-u", "-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width),
		"-y", fmt.Sprint(height), "sh", "-c", script)
	start.Env = append(os.Environ(), asProgram+"=1", "TICKSLOT_STORE="+url) // flags are visible to others
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	return x
}

func (x *terminal) tmux(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %s: %v: %s", args, err, out)
	}
	return string(out)
}

// screen returns the visible text. With joined, wrapped lines are joined into one.
func (x *terminal) screen(joined ...string) string {
	return x.tmux(append([]string{"capture-pane", "-p"}, joined...)...)
}

// shows waits until all texts are visible, and checks that no line is wrapped.
func (x *terminal) shows(texts ...string) string {
	x.t.Helper()
	screen := ""
	testkit.Eventually(x.t, testkit.Patience, fmt.Sprintf("%q is seen", texts), func() error {
		screen = x.screen()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return fmt.Errorf("%q is not seen:\n%s", text, screen)
			}
		}
		return nil
	})
	if n, all := strings.Count(x.screen("-J"), "\n"), strings.Count(x.screen(), "\n"); n != all {
		x.t.Errorf("the terminal has wrapped lines:\n%s", screen)
	}
	return screen
}

func (x *terminal) press(keys ...string) { x.tmux(append([]string{"send-keys"}, keys...)...) }

// crowd returns a fleet on Redis with long and hostile names.
func crowd(t *testing.T) (url string, stop func()) {
	t.Helper()
	url, registry, server := redisFleetOn(t)
	for i := range 3 {
		h := dlock.Holder{Host: fmt.Sprintf("payments-worker-7d9f8b6c5-%02d.internal.example.com", i), PID: 1000 + i,
			ID: "0123456789abcdef"}
		row := hostRow(h, "2026.11.3-rc.1+build.4711", "production", 3, cluster.RunnerDetail{Kind: "leader",
			Name: "billing", State: "candidate", Err: "\x1b[2Jowned \x1b]0;owned\x07 no route to the store, for long"})
		row.Detail = []byte(strings.Replace(string(row.Detail), `"name":"report"`,
			`"name":"nightly-report-of-all-customers-\u001b]0;owned\u0007\u202e時計時計"`, 1))
		write(t, registry, cluster.Batch{Host: row, Runs: []cluster.Run{{ID: fmt.Sprint("x", i),
			Timer: "nightly-report-of-all-customers", Holder: h, Took: time.Minute, Outcome: "error",
			Err: strings.Repeat("the printer is out of paper ", 8), Attempts: 3}},
			Events: []cluster.Event{{ID: fmt.Sprint("e", i), Kind: cluster.EventOperator, Name: "timer:nightly-report",
				Slot: 0, Holder: h, Text: strings.Repeat("paused by ann for the move of the warehouse ", 4)}}})
	}
	return url, server.Close
}

// In a real terminal of 80 and of 200 columns, the live view shows the fleet, adapts to a change of
// size, sorts and filters, shows the age of its data when the store is down, and restores the
// terminal.
//
// Fails when a line is wrapped, a key has no effect, or an unescaped name reaches the terminal.
func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	url, stop := crowd(t)
	x := newTerminal(t, 80, 24, url, "top --prefix shop: --interval 200ms")
	first := x.shows("tickslot top: read ", "NEEDS ATTENTION", "TIMERS by attention", "report", "1/1 #", "HOSTS",
		"q quit")
	if strings.Contains(first, "DURABLE") || strings.Contains(first, "OUTBOX") {
		t.Errorf("Redis has neither:\n%s", first)
	}
	x.tmux("resize-window", "-x", "200", "-y", "50")
	x.shows("ENVIRONMENT", "production", `\u001b]0;owned`, "web-1/7/abc")
	x.press("s")
	x.shows("TIMERS by name")
	x.press("/", "n", "i", "g", "h", "t", "Enter")
	x.shows(`with "night"`, "nightly-report")
	x.tmux("resize-window", "-x", "80", "-y", "24")
	x.shows("TIMERS by name", "HELD BY")
	if title := x.tmux("display-message", "-p", "#{pane_title}"); strings.Contains(title, "owned") {
		t.Errorf("a name has set the title: %s", title)
	}
	stop()
	x.shows(" OLD: Redis 127.0.0.1:", "nightly-report")
	x.press("q")
	if screen := x.shows("it has ended: 0"); strings.Contains(screen, "HOSTS") {
		t.Errorf("the screen was not given back:\n%s", screen)
	}
}

// In a real terminal, the live view pauses a timer in the database, triggers a durable handler and
// shows the result. The events record these changes like those of the commands. Unknown names are
// rejected with the same messages.
//
// Fails when a key writes nothing, or something else than the corresponding command.
func TestTopActs(t *testing.T) {
	t.Parallel()
	url, file := sqlite(t)
	write(t, sqlregistry.SQLite(open(t, file), sqlregistry.Options{}), cluster.Batch{Host: hostRow(holder, "1", "", 1)})
	has(t, url, "limit invoice 3 --durable --force")
	has(t, url, "trigger invoice --durable", "queued run 1")
	x := newTerminal(t, 160, 40, url, "top --interval 200ms")
	x.shows("TIMERS by attention", "DURABLE HANDLERS: runs 1 queued, 0 running, 0 dead",
		"OUTBOX MESSAGES: 0 pending, 0 dead")
	x.press("p")
	x.shows("y or n? pause timer report on all hosts for 1h")
	x.press("y")
	x.shows("timer report: paused until ", ", by ", "report is paused by")
	x.press("Enter")
	x.shows("report: paused", "- it is paused for another 59m")
	x.press("q", "Tab", "t")
	x.shows("y or n? queue a run of durable handler invoice, without payload")
	x.press("y")
	x.shows("durable runs of invoice: queued run 2", "DURABLE HANDLERS: runs 2 queued")
	x.press("Enter")
	x.shows("invoice: active, limit 3 (set)", "latest runs: 2", "run 1: queued")
	x.press("q", "q")
	x.shows("it has ended: 0")
	has(t, url, "events ls -o wide", "timer report: paused until", "durable runs of invoice: queued run 2")
}

// The tables of all lists fit a real terminal of 80 and of 200 columns.
//
// Fails when a row is wrapped.
func TestListsInATerminal(t *testing.T) {
	t.Parallel()
	url, _ := crowd(t)
	var all []string
	for _, list := range []string{"timers", "hosts", "slots", "leases", "leaders", "runs", "events"} {
		all = append(all, os.Args[0]+" --prefix shop: "+list+" ls")
	}
	for _, width := range []int{80, 200} {
		// newTerminal runs the first command.
		x := newTerminal(t, width, 100, url, "timers ls --prefix shop:; "+strings.Join(all, "; "))
		x.shows("TIMER  ", "HOST  ", "HOLDER  ", "ROLE  ", "OUTCOME", "TEXT", "running", "it has ended: 0")
	}
}

// Without a terminal, or with one that cannot move its cursor, top says what to use instead.
//
// Fails when it writes escape sequences into a file.
func TestTopWithoutATerminal(t *testing.T) {
	t.Parallel()
	a := tickslot(t, "redis://127.0.0.1:1/0", "top")
	if a.code != 1 || a.out != "" || !strings.Contains(a.err, `"tickslot timers ls -w"`) {
		t.Errorf("exit code %d: %s", a.code, a)
	}
	x := newTerminal(t, 80, 24, "redis://127.0.0.1:1/0", "top --help; TERM=dumb "+os.Args[0]+" top")
	testkit.Eventually(t, testkit.Patience, "it says what to use", func() bool {
		screen := x.screen("-J")
		return strings.Contains(screen, "top needs a terminal") && strings.Contains(screen, "it has ended: 1")
	})
}
