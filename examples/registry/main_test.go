//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/examples/internal/fleettest"
)

func TestMain(m *testing.M) {
	fleettest.Main(main)
	os.Exit(m.Run())
}

// patience is longer than the demonstration may take, including ten seconds for hosts to end.
const patience = 60 * time.Second

// A stage is the program without -db.
type stage struct {
	*exec.Cmd
	temp           string // the directory for its files
	stdout, stderr bytes.Buffer
}

func newStage(t *testing.T, args ...string) *stage {
	t.Helper()
	s := &stage{Cmd: fleettest.Command(t, args...), temp: t.TempDir()}
	s.Env = append(s.Env, "TMPDIR="+s.temp)
	s.Cmd.Stderr = &s.stderr
	s.WaitDelay = patience
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s%s", &s.stdout, &s.stderr)
		}
	})
	return s
}

// wait waits for the program and its hosts, which inherit its standard error.
func (s *stage) wait(t *testing.T) error {
	t.Helper()
	kill := time.AfterFunc(patience, func() { _ = s.Process.Kill() })
	defer kill.Stop()
	began := time.Now()
	err := s.Wait()
	if time.Since(began) >= patience {
		t.Errorf("the program, or a host, goes on after %v", patience)
	}
	return err
}

// Three hosts agree on the leader, and the remaining two on the next one, after a TTL and a
// RetryInterval. No process or file is left.
//
// Fails when a host names a killed leader for longer than its lease, when a host or the file
// outlives the demonstration, and when hosts log what the demonstration prints.
func TestPlay(t *testing.T) {
	t.Parallel()
	s := newStage(t, "-json")
	s.Cmd.Stdout = &s.stdout
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.wait(t); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(s.stdout.String()), "\n")
	last := lines[len(lines)-1]
	form := regexp.MustCompile(`^\{"hosts":3,"leases":\d+,"leader":"[^"/]+/\d+/\w+","leader_after_kill":"[^"/]+/\d+/\w+",` +
		`"failover_ms":\d+,"agree":true\}$`)
	if !form.MatchString(last) {
		t.Errorf("the last line is %s", last)
	}
	var r report
	if err := json.Unmarshal([]byte(last), &r); err != nil {
		t.Fatal(err)
	}
	if r.Leader == r.After || r.Leases < 2 || r.FailoverMS <= 0 {
		t.Errorf("%+v", r)
	}
	t.Logf("the next leader after %d ms, of at most %d", r.FailoverMS, (ttl + ttl/6).Milliseconds())
	nothingIsLeft(t, s.temp)
	if strings.Contains(s.stderr.String(), "INFO") {
		t.Errorf("the story drowns in what hosts log:\n%s", &s.stderr)
	}
}

// An interrupted demonstration leaves nothing behind.
func TestPlayIsInterrupted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan() // the line with the hosts
	if !lines.Scan() || !strings.Contains(lines.Text(), "kill") {
		t.Errorf("it does not say that it kills: %s", lines.Text())
	}
	if err := s.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := s.wait(t); err != nil && err.Error() != "exit status 1" { // nil if it had already ended
		t.Errorf("it ends with %v, must be exit status 1", err)
	}
	nothingIsLeft(t, s.temp)
}

// Hosts end when their parent is killed.
func TestPlayIsKilled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	bufio.NewScanner(out).Scan()
	if err := s.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.wait(t); err == nil || err.Error() != "signal: killed" {
		t.Errorf("it ends with %v, must be killed", err)
	}
}

func nothingIsLeft(t *testing.T, folder string) {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil || len(files) > 0 {
		t.Errorf("%v is left, %v", files, err)
	}
}

// A host that cannot use its file reports it.
func TestBadFile(t *testing.T) {
	t.Parallel()
	out, err := fleettest.Command(t, "-db", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "registry: ") {
		t.Errorf("%v: %s", err, out)
	}
}
