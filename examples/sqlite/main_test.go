//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/examples/internal/fleettest"
)

func TestMain(m *testing.M) {
	fleettest.Main(main)
	os.Exit(m.Run())
}

// An unusable path is reported, and the exit status is 1.
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
		out, err := fleettest.Command(t, "-db", path).CombinedOutput()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), want) || !strings.Contains(string(out), path) {
			t.Errorf("-db %q: %v, must be exit status 1: %s", path, err, out)
		}
	}
}

// Three copies never run more than two at once, and the slot of a killed copy is taken over.
//
// Fails when each copy has its own database (three at once), and with MaxConcurrency: 3 (no copy
// waits for the slot).
func TestThreeCopies(t *testing.T) {
	t.Parallel()
	const starts, ends = "resize-images starts", "resize-images ends"
	file := filepath.Join(t.TempDir(), "with space, ? and %41.db")
	fleet := fleettest.Start(t, 3, nil, "-db", file, "-every", "250ms", "-work", "600ms", "-ttl", "3s")
	ended := map[int]bool{}
	fleet.AwaitLine(t, "each copy has had a run", func(l fleettest.Line) bool {
		ended[l.Copy] = ended[l.Copy] || l.Msg == ends
		return ended[0] && ended[1] && ended[2]
	})
	killed := fleet.AwaitLine(t, "the first copy is running", func(l fleettest.Line) bool {
		return l.Msg == starts && l.Copy == 0
	})
	fleet.Kill(t, 0)
	fleet.AwaitLine(t, "its slot is taken by another copy", func(l fleettest.Line) bool {
		return l.Msg == starts && l.Fields["slot"] == killed.Fields["slot"] && l.Copy != 0
	})
	fleet.Await(t, ends, 10) // both slots are in use
	fleet.Terminate(t)
	fleet.End(t)
	runs := fleet.Runs(t, "resize-images")
	if most := fleettest.MostAtOnce(runs); most != 2 {
		t.Errorf("%d at once, want 2", most)
	}
	fleettest.FencesGrow(t, runs)
}
