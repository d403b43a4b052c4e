package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/examples/internal/demo/demotest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) {
	servertest.Main(m, func() error { return goleak.Find() }) // the program leaves no goroutine
}

func TestLimitsHoldAndSlotComesBack(t *testing.T) {
	for _, hosts := range []struct {
		flag string
		n    int
	}{{"3", 3}, {"5", 5}} {
		t.Run(hosts.flag+" hosts", func(t *testing.T) {
			t.Parallel()
			demotest.Check(t, run, hosts.n, "-hosts", hosts.flag)
		})
	}
}

// The output fits a terminal of 24 lines and 80 columns. It shows hosts in slots, and the end of
// the host that is cut off.
//
// Fails when a line is printed for each run.
func TestOutputFitsAScreen(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), nil, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	t.Logf("\n%s%s", &stderr, &stdout)
	if lines := strings.Count(stdout.String()+stderr.String(), "\n"); lines > 24 {
		t.Errorf("%d lines", lines)
	}
	for line := range strings.Lines(stdout.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{"host-1", "is CUT OFF, from now on (host-", "its lease is lost", "was cut off",
		"3 (limit 3)", "ticks: at least one", "skipped: none did"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("missing %q", want)
		}
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	stdout := &onWrite{do: interrupt} // the first line is the heading
	var stderr bytes.Buffer
	if code := run(ctx, nil, stdout, &stderr); code != 0 {
		t.Errorf("exit status %d: %s", code, &stderr)
	}
	for _, want := range []string{"resize-images, limit 3", "the hosts finish", "most at once"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("missing %q in:\n%s", want, stdout)
		}
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-hosts", "1"}, {"-for", "-1s"}, {"please"}, {"-store", "memory:"}} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code == 0 {
			t.Errorf("%q: exit status 0", args)
		}
		if stderr.Len() == 0 {
			t.Errorf("%q: no error message", args)
		}
	}
}

// An onWrite calls do before each line that it records.
type onWrite struct {
	testkit.Log
	do func()
}

func (w *onWrite) Write(p []byte) (int, error) {
	w.do()
	return w.Log.Write(p)
}
