//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/examples/internal/fleettest"
)

func TestMain(m *testing.M) {
	fleettest.Main(main)
	os.Exit(m.Run())
}

// Every order has one receipt and one shipment, although the partner sometimes fails. The page and
// the probe answer, and no process or file is left. The wiring takes 25 lines.
//
// Fails when InTx loses the run or the message, and when the partner has no inbox.
func TestPlay(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	play := fleettest.Command(t, "-addr", "127.0.0.1:0", "-json", "-for", "3s")
	play.Env = append(play.Env, "TMPDIR="+folder)
	var stdout, stderr bytes.Buffer
	play.Stdout, play.Stderr = &stdout, &stderr
	if err := play.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	last := lines[len(lines)-1]
	form := regexp.MustCompile(`^\{"orders":\d+,"runs":\d+,"messages":\d+,"effects":\d+,"lost":0,"doubled":0,` +
		`"page":200,"ready":200,"wiring_lines":\d+\}$`)
	if !form.MatchString(last) {
		t.Fatalf("the last line is %s\n%s%s", last, &stdout, &stderr)
	}
	var r report
	if err := json.Unmarshal([]byte(last), &r); err != nil {
		t.Fatal(err)
	}
	if r.Orders == 0 || r.Runs != r.Orders || r.Messages != r.Orders || r.Effects != r.Orders {
		t.Errorf("%+v", r)
	}
	if r.WiringLines < 10 || r.WiringLines > 25 {
		t.Errorf("%d lines of wiring, want up to 25", r.WiringLines)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// A taken address or an unusable file ends the program.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"listen":    {"-addr", "256.0.0.1:1"},
		"shop.db: ": {"-addr", "127.0.0.1:0", "-db", t.TempDir() + "/none/shop.db"},
	} {
		out, err := fleettest.Command(t, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "service: ") || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", args, err, out)
		}
	}
}
