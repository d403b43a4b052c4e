//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/examples/internal/fleettest"
)

func TestMain(m *testing.M) {
	fleettest.Main(main)
	os.Exit(m.Run())
}

// Every tick and the trigger have exactly one run, although a worker is killed during a run. No
// process or file is left.
//
// Fails when a dead worker's lease is not reclaimed, when a run is lost, and when a worker or the
// file outlives the demonstration.
func TestPlay(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	play := fleettest.Command(t, "-json")
	play.Env = append(play.Env, "TMPDIR="+folder)
	var stdout, stderr bytes.Buffer
	play.Stdout, play.Stderr = &stdout, &stderr // the workers inherit it, so Wait also waits for them
	began := time.Now()
	if err := play.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	if took := time.Since(began); took > 45*time.Second {
		t.Errorf("it takes %v", took)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	last := lines[len(lines)-1]
	form := regexp.MustCompile(`^\{"workers":3,"ticks":\d+,"runs":\d+,"lost":0,"doubled":0,"reclaimed":1,` +
		`"reclaimed_after_ms":\d+\}$`)
	if !form.MatchString(last) {
		t.Errorf("the last line is %s\n%s%s", last, &stdout, &stderr)
	}
	var r report
	if err := json.Unmarshal([]byte(last), &r); err != nil {
		t.Fatal(err)
	}
	if r.Ticks < 4 || r.Runs != r.Ticks+1 {
		t.Errorf("%d ticks and a trigger, %d runs", r.Ticks, r.Runs)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// A worker that cannot use its file reports it.
func TestBadFile(t *testing.T) {
	t.Parallel()
	out, err := fleettest.Command(t, "-db", t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "durable: ") {
		t.Errorf("%v: %s", err, out)
	}
}
